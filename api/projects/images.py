"""Images of a project: checked when they arrive, decoded in confined processes, converted."""

from __future__ import annotations

import copy
import gzip
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from anyio import to_thread

from api.budget import current
from api.decoding.choice import NOTHING, Choice
from api.engine import Engine
from api.problems import IMAGE_NOT_FOUND, Refusal
from api.projects.files import ProjectFiles
from api.projects.groups import patient_digest
from api.projects.label_maps import KeptLabels, fitted, kept
from api.projects.records import Image, LabelVersion, Project
from api.projects.store import ProjectStore
from api.projects.strategies import place_in_order
from caps_med.batch.cases import called_like, split_suffix
from caps_med.errors import CapsMedError, InvalidParameter
from caps_med.images import MedicalImage, encode_image
from caps_med.images.codecs import zipped
from caps_med.images.codecs.nifti import has_one_member
from caps_med.images.codecs.registry import codec_of_content
from caps_med.inference import Model

#: Formats in which volumes are kept; others are converted to the first.
_OF_VOLUMES = ("nifti", "nrrd")
#: Formats whose files may hold several volumes or pictures, beside DICOM.
_OF_SEVERAL = (*_OF_VOLUMES, "tiff", "npy")
_GZIP = b"\x1f\x8b"
_GZIP_LEVEL = 6
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Upload:
    """An uploaded file: the name that its sender gave it, and its content."""

    name: str
    content: bytes

    @property
    def shown_name(self) -> str:
        """The last part of the name, bounded and printable; never part of a path."""
        last = self.name.replace("\\", "/").rpartition("/")[2]
        return "".join(c for c in last if c.isprintable())[:_LONGEST_NAME] or "unnamed"

    @property
    def stem(self) -> str:
        """`shown_name` without the suffix of an image file."""
        return split_suffix(self.shown_name)[0]


class ProjectImages:
    """Takes and decodes the images of projects.

    Args:
        root: the folder of all projects.
        engine: decodes, and loads the models that the images have to suit.
    """

    def __init__(self, root: Path, store: ProjectStore, engine: Engine) -> None:
        self._root, self._store, self._engine = root, store, engine

    def files(self, project: str) -> ProjectFiles:
        """The files of a project."""
        return ProjectFiles(self._root, project)

    async def add(
        self,
        project: Project,
        images: Sequence[Upload],
        labels: Sequence[Upload],
        author: str,
        choice: Choice = NOTHING,
        patient: str | None = None,
    ) -> list[Image]:
        """Add images to a project, all or none.

        Args:
            labels: label maps of some of them, found by their names without suffixes.
            author: of the label maps.
            choice: the series and volume to read of each image.
            patient: whose images all of them are.

        Raises:
            CapsMedError: a file cannot be decoded, does not suit the project's model, or a label
                map does not fit its image; the message names the file.
            Refusal: a quota is used up.
        """
        model = await self._engine.load(project.model)
        maps = _paired(images, labels)
        found: list[tuple[Image, bytes]] = []
        made: dict[str, KeptLabels] = {}
        for upload in images:
            image, content = await self._checked(project, upload, model, choice)
            found.append((replace(image, patient=patient), content))
            if upload.shown_name in maps:
                made[image.id] = await self._labels(project, image, maps[upload.shown_name])
        return await to_thread.run_sync(lambda: self._keep(project, found, made, author))

    async def _checked(
        self, project: Project, upload: Upload, model: Model, choice: Choice
    ) -> tuple[Image, bytes]:
        """An image whose file is yet to be written, and the content of that file."""
        try:
            decoded = await self._engine.decode([upload.content], "image", choice=choice)
            matched = await to_thread.run_sync(model.image_reader.match_channels, decoded)
            form, content = await self._engine.run(
                "encode", lambda: _as_kept(self._unpacked(upload), decoded, choice)
            )
        except CapsMedError as error:
            raise _about(upload, error) from error
        affine = None if decoded.spacing is None else tuple(map(float, decoded.affine.ravel()))
        image = Image(
            number=0,
            id=uuid.uuid4().hex,
            project=project.id,
            name=upload.shown_name,
            file="",
            format=form,
            channels=len(decoded.array),
            shape=tuple(decoded.spatial_shape),
            affine=affine,
            bytes=len(content),
            created=time.time(),
            patient_digest=patient_digest(decoded, project.id),
            warnings=matched.warnings,
        )
        return image, content

    def _unpacked(self, upload: Upload) -> bytes:
        """The file of an image that has been decoded; of one in a zip, this request holds it."""
        claim = current()
        limits = self._engine.settings.limits
        return zipped.unpacked(upload.content, limits, None if claim is None else claim.add)

    async def _labels(self, project: Project, image: Image, upload: Upload) -> KeptLabels:
        try:
            decoded = await self._engine.decode([upload.content], "labels")
            return await self._engine.run(
                "encode", lambda: kept(fitted(decoded, image, project), image)
            )
        except CapsMedError as error:
            raise _about(upload, error) from error

    def _keep(
        self,
        project: Project,
        found: Sequence[tuple[Image, bytes]],
        made: dict[str, KeptLabels],
        author: str,
    ) -> list[Image]:
        """Write the files, then their records; without these, no file stays."""
        files = self.files(project.id)
        written: list[str] = []
        images, labels = [], []
        ordinal = self._store.next_ordinal(project.id)
        try:
            for number, (image, content) in enumerate(found, start=ordinal):
                written.append(files.write(content, image.format))
                named = replace(image, file=written[-1])
                images.append((named, place_in_order(project.seed, number)))
                if one := made.get(image.id):
                    written.append(files.write(one.content, one.format))
                    labels.append(_first_version(image, one, written[-1], author))
            return self._store.add_images(images, labels)
        except BaseException:
            files.remove(*written)
            raise

    async def decoded(self, image: Image, model: Model | None = None) -> MedicalImage:
        """The image, with the channels that a model takes.

        Raises:
            CapsMedError: it does not suit the model.
            Refusal: it has been deleted (404).
        """
        fitting = None if model is None else model.image_reader.match_channels
        content = await to_thread.run_sync(self.content, image.project, image.file)
        return await self._engine.decode([content], "image", fitting)

    def content(self, project: str, file: str) -> bytes:
        """The bytes of a file, which this request then holds.

        Raises:
            Refusal: it has been deleted (404).
        """
        path = self.files(project).path(file)
        try:
            if claim := current():
                claim.add(path.stat().st_size)
            return path.read_bytes()
        except FileNotFoundError as error:
            raise Refusal(IMAGE_NOT_FOUND, "this image has been deleted") from error


def _about(upload: Upload, error: CapsMedError) -> CapsMedError:
    """The same error, which names the file; what else it tells, such as the series, is kept."""
    named = copy.copy(error)
    named.args = (f"{upload.shown_name}: {error}",)
    return named


def _paired(images: Sequence[Upload], labels: Sequence[Upload]) -> dict[str, Upload]:
    """The label maps by the name of their image."""
    alike, found = called_like(image.shown_name for image in images), dict[str, Upload]()
    for upload in labels:
        names = alike(upload.shown_name)
        if len(names) != 1 or names[0] in found:
            raise InvalidParameter(
                f"labels: {upload.shown_name} belongs to no image of this request: give it the "
                "name of its image, and send one label map per image"
            )
        found[names[0]] = upload
    return found


def _as_kept(content: bytes, decoded: MedicalImage, choice: Choice) -> tuple[str, bytes]:
    """Format and content of the file that is kept, which `data check` and others can read.

    DICOM loses its tags, and with them whose image it is; of several volumes the chosen one is
    kept.
    """
    form = codec_of_content(content).name
    if decoded.spatial_dims == 3 and form not in _OF_VOLUMES:
        return "nifti", encode_image(decoded, "nifti")
    if form == "dicom":
        exact = "png" if decoded.array.dtype == np.uint8 else "npy"
        return exact, encode_image(decoded, exact)
    if choice.volume is not None and form in _OF_SEVERAL:
        return form, encode_image(decoded, form)
    if form == "nifti" and not content.startswith(_GZIP):
        return form, gzip.compress(content, _GZIP_LEVEL, mtime=0)
    header = decoded.header
    if form == "nifti" and header is not None and not has_one_member(content, header):
        # decoded before, so that it inflates to no more than its header says
        return form, gzip.compress(gzip.decompress(content), _GZIP_LEVEL, mtime=0)
    return form, content


def _first_version(image: Image, labels: KeptLabels, file: str, author: str) -> LabelVersion:
    return LabelVersion(
        image=image.id,
        version=1,
        kind="upload",
        author=author,
        model=None,
        created=time.time(),
        parent=None,
        changed=None,
        edited=None,
        file=file,
        bytes=len(labels.content),
        sha256=labels.sha256,
        ids=labels.ids,
    )
