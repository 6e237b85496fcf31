"""Label maps of a project's images: predicted by its model, corrected by people."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

from api.budget import current
from api.engine import Engine, Segment
from api.problems import (
    ALREADY_CORRECTED,
    IMAGE_NOT_FOUND,
    LABELS_NOT_FOUND,
    PRECONDITION_FAILED,
    Refusal,
)
from api.projects.images import ProjectImages
from api.projects.label_maps import KeptLabels, changed_share, fitted, format_of, kept
from api.projects.records import Image, Kind, LabelVersion, Project
from api.projects.store import ProjectStore
from caps_med.images import MedicalImage, read_image
from caps_med.inference import Segmentation
from caps_med.inference.passes import check_wanted


class Annotations:
    """Predicts, takes corrections, and gives label maps.

    Args:
        images: of the projects.
    """

    def __init__(self, store: ProjectStore, engine: Engine, images: ProjectImages) -> None:
        self._store, self._engine, self._images = store, engine, images

    async def predict(self, project: Project, image: Image) -> tuple[LabelVersion, bool]:
        """The label map by the project's present model, and whether it is a new version.

        Raises:
            Refusal: a person made the present label map (409).
        """
        before = await self._predicted(image)
        if before is not None and before.model == project.model:
            return before, False
        model = await self._engine.load(project.model)
        decoded = await self._images.decoded(image, model)
        answer = await self._engine.predict(model, Segment(decoded))
        found = await self._keep_prediction(project, image, answer, before)
        if found is not None:
            return found, True
        present = await self._predicted(image)
        if present is None or present.model != project.model:
            raise await to_thread.run_sync(self._late, image)
        return present, False  # of another request at the same time

    async def _predicted(self, image: Image) -> LabelVersion | None:
        """The present label map, which a model made, if there is one.

        Raises:
            Refusal: a person made it (409).
        """
        present = await to_thread.run_sync(self._store.label, image.id)
        if present is not None and present.kind != "prediction":
            detail = f"version {present.version} was made by a person: correct that version"
            raise Refusal(ALREADY_CORRECTED, detail)
        return present

    async def keep_prediction(self, project: Project, image: Image, answer: Segmentation) -> None:
        """Keep an answer of the project's present model, unless that is kept already, a person made
        the present label map, or the image has been deleted meanwhile.
        """
        before = await to_thread.run_sync(self._store.label, image.id)
        if before is None or (before.kind == "prediction" and before.model != project.model):
            try:
                await self._keep_prediction(project, image, answer, before)
            except Refusal as refusal:
                if refusal.code != IMAGE_NOT_FOUND:
                    raise

    async def _keep_prediction(
        self, project: Project, image: Image, answer: Segmentation, before: LabelVersion | None
    ) -> LabelVersion | None:
        def keep() -> LabelVersion | None:
            labels = kept(answer, image)
            return self._add(project, image, labels, "prediction", before, None, answer.warnings)

        return await self._engine.run("encode", keep)

    async def correct(
        self, project: Project, image: Image, content: bytes, author: str, parent: int | None
    ) -> LabelVersion:
        """A new version, made by a person.

        Args:
            content: a file with the label map.
            parent: the version that was corrected; None if there is none yet.

        Raises:
            Refusal: `parent` is not the present version (412), or the image has been deleted (404).
            CapsMedError: the label map cannot be decoded, or does not fit the image.
        """
        before = await to_thread.run_sync(self._store.label, image.id)
        if (before.version if before else None) != parent:
            raise await to_thread.run_sync(self._late, image)  # before it is decoded
        decoded = await self._engine.decode([content], "labels")
        return await self.take(project, image, decoded, author, parent)

    async def take(
        self,
        project: Project,
        image: Image,
        decoded: MedicalImage,
        author: str,
        parent: int | None,
    ) -> LabelVersion:
        """As `correct`, of a label map that is decoded already."""
        before = await to_thread.run_sync(self._store.label, image.id)
        if (before.version if before else None) != parent:
            raise await to_thread.run_sync(self._late, image)

        def keep() -> LabelVersion | None:
            labels = kept(fitted(decoded, image, project), image)
            found = self._add(project, image, labels, "correction", before, author)
            if found is not None:
                self._store.end_lease(image.id, author)
            return found

        found = await self._engine.run("encode", keep)
        if found is None:
            raise await to_thread.run_sync(self._late, image)
        return found

    def _late(self, image: Image) -> Refusal:
        """Why a version could not be added: another one, or the image has been deleted."""
        return self._deleted(image) or stale(self._store.label(image.id))

    def _deleted(self, image: Image) -> Refusal | None:
        """That the image has been deleted, if it has."""
        if self._store.image(image.project, image.id) is not None:
            return None
        return Refusal(IMAGE_NOT_FOUND, "this image has been deleted")

    def _add(
        self,
        project: Project,
        image: Image,
        labels: KeptLabels,
        kind: Kind,
        before: LabelVersion | None,
        author: str | None,
        warnings: Sequence[str] = (),
    ) -> LabelVersion | None:
        """A new version; None if another one has come after `before`."""
        files = self._images.files(project.id)
        changed, edited = self._differences(project, image, labels, before)
        file = files.write(labels.content, labels.format)
        label = LabelVersion(
            image=image.id,
            version=before.version + 1 if before else 1,
            kind=kind,
            author=author,
            model=project.model if kind == "prediction" else None,
            created=time.time(),
            parent=before.version if before else None,
            changed=changed,
            edited=None if kind == "prediction" else edited,
            file=file,
            bytes=len(labels.content),
            sha256=labels.sha256,
            ids=labels.ids,
            warnings=tuple(warnings),
        )
        try:
            if kind == "prediction":
                check_wanted()  # of a caller that has left, it would be in the way of a correction
            added = self._store.add_label(image, label)
        except BaseException:
            files.remove(file)
            raise
        if not added:
            files.remove(file)
        return label if added else None

    def _differences(
        self, project: Project, image: Image, labels: KeptLabels, before: LabelVersion | None
    ) -> tuple[float | None, float | None]:
        """Shares of voxels that differ from the version before, and from the last prediction."""

        def since(version: LabelVersion) -> float:
            earlier = self.read(image, version).array[0]
            return changed_share(earlier, labels.array, project.ignore_label)

        if before is None:
            return None, None
        changed, predicted = since(before), self._store.last_prediction(image.id)
        if predicted is None:
            return changed, None
        return changed, changed if predicted.version == before.version else since(predicted)

    def label(self, image: Image, version: int | None = None) -> LabelVersion:
        """A version of the label map; None for the present one.

        Raises:
            Refusal: there is none, or the image has been deleted (404).
        """
        found = self._store.label(image.id, version)
        if found is None:
            if deleted := self._deleted(image):
                raise deleted
            which = "no label map yet" if version is None else f"no version {version}"
            raise Refusal(LABELS_NOT_FOUND, f"this image has {which}")
        return found

    def path(self, image: Image, label: LabelVersion) -> Path:
        """The file of a version."""
        return self._images.files(image.project).path(label.file)

    def read(self, image: Image, label: LabelVersion) -> MedicalImage:
        """A version as an image; its file is one of ours."""
        if claim := current():
            claim.add(2 * math.prod(image.shape))
        content = self._images.content(image.project, label.file)
        labels = read_image(content, kind="labels", limits=self._engine.settings.limits)
        return labels.with_array(labels.array, format=format_of(image))


def stale(present: LabelVersion | None) -> Refusal:
    """That a correction is not one of the present label map."""
    version = present.version if present else 0
    author = present.author if present else None
    detail = (
        f"the current version is {version}: get it, and apply your correction to it"
        if present
        else "this image has no label map yet: send If-None-Match: *"
    )
    return Refusal(PRECONDITION_FAILED, detail, version=version, author=author)
