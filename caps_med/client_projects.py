"""The projects of a service, for `caps_med.client`.

with Client("http://127.0.0.1:8000") as client:
    project = client.projects.create("axons", "axon-segmentation")["id"]
    client.projects.add(project, ["a.png", "b.png"])
    image = client.projects.next(project, author="anna")
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from caps_med.arguments import as_list
from caps_med.client_paths import route

if TYPE_CHECKING:
    import httpx

    from caps_med.batch.cases import Case
    from caps_med.batch.places import Place
    from caps_med.client import Content
    from caps_med.images import Kind

#: Images that are listed, or versions of label maps, in one answer.
_PAGE = 200
#: Files that a service takes at once by default, and bytes, with room for what else is sent.
_FILES, _BYTES = 16, 100 * 2**20
#: A file in a form: what it is, its name and its content.
Part = tuple[str, tuple[str, bytes]]


class Labels(NamedTuple):
    """A label map, and its version, which `Projects.save_labels` requires."""

    content: bytes
    version: int


class PartlyAdded(Exception):
    """`Projects.add` added some images before a request failed; they remain.

    Its cause is that failure, such as a `caps_med.client.ServiceError`. The images of that request
    were not added, unless only its answer was lost, and those after them were not sent.

    Attributes:
        added: the documents of the added images, which are the first of the given ones.
    """

    def __init__(self, added: list[dict[str, Any]], of: int, error: Exception) -> None:
        super().__init__(f"{len(added)} of {of} images were added, then: {error}")
        self.added = added


class Projects:
    """Data sets on the service that are annotated with the help of a model, which learns.

    All methods raise `caps_med.client.ServiceError` if the service refuses a request.

    Args:
        send: sends a request, see `httpx.Client.request`.
    """

    def __init__(self, send: Callable[..., httpx.Response]) -> None:
        self._send = send

    def create(
        self,
        name: str,
        model: str,
        labels: Mapping[int, str] | None = None,
        seed: int = 0,
        held_out: float = 0.2,
        ignore_label: int | None = None,
    ) -> dict[str, Any]:
        """Create a project.

        Args:
            model: the segmentation model to start with.
            labels: other names for its labels.
            seed: seed of the held-out part and of the random order.
            held_out: fraction of the corrected images that is never used for training.
            ignore_label: id of unlabelled parts in label maps, if images are only partly
                labelled.

        Raises:
            ValueError: the name of a label contains a comma.
        """
        form = {"name": name, "model": model, "seed": str(seed), "held_out": str(held_out)}
        if ignore_label is not None:
            form["ignore_label"] = str(ignore_label)
        if labels:
            for label, called in labels.items():
                if "," in called:
                    raise ValueError(f"labels: {label} is called {called}: use a name without ','")
            form["labels"] = ",".join(f"{label}={name}" for label, name in labels.items())
        return self._document("POST", route("projects"), data=form)

    def all(self) -> Iterator[dict[str, Any]]:
        """The projects of this key, the newest first."""
        return self._pages(route("projects"), "projects")

    def get(self, project: str) -> dict[str, Any]:
        """One project: its model, images by state, the training job if it is learning."""
        return self._document("GET", route("projects", project))

    def delete(self, project: str) -> None:
        """Delete a project with its images; published models stay."""
        self._send("DELETE", route("projects", project))

    def add(
        self,
        project: str,
        images: str | Path | Sequence[str | Path],
        labels: str | Path | Sequence[str | Path] = (),
        author: str | None = None,
        patient: str | None = None,
    ) -> list[dict[str, Any]]:
        """Add images, a few per request; the service adds all images of a request or none.

        Args:
            images: their paths, or a single one; the file names are sent to the service. The files
                of a DICOM series are one image, named like their folder. For a folder, all images
                in it and its subfolders are added. A header such as x.mhd is sent with its voxels.
            labels: label maps for some of them, named like their images; ``a.seg.nrrd`` belongs to
                ``a.nrrd``, and ``a.png`` to nnU-Net's ``a_0000.png``. For a folder, all label maps
                are added, as with images.
            author: of the label maps.
            patient: the patient to whom all images belong, as any text, such as a pseudonym. Images
                of one patient, even from several calls, are held out together.

        Returns:
            The documents of the images, in order.

        Raises:
            ValueError: the name of a label map matches no image, or several. No image is
                added.
            PartlyAdded: a later request failed, for whatever reason.
        """
        named = list(_named([Path(path) for path in as_list(images)]))
        label_maps = _named([Path(path) for path in as_list(labels)], "labels")
        maps = _paired([name for name, _ in named], label_maps)
        url = route("projects", project, "images")
        added: list[dict[str, Any]] = []
        try:
            for parts in _requests(named, maps):
                answer = self._document(
                    "POST",
                    url,
                    files=parts,
                    data=_given(patient=patient),
                    params=_given(author=author),
                )
                added += answer["images"]
        except Exception as error:
            if not added:
                raise
            raise PartlyAdded(added, len(named), error) from error
        return added

    def images(self, project: str, state: str | None = None) -> Iterator[dict[str, Any]]:
        """The images, or those with one state: unlabelled, predicted, corrected."""
        return self._pages(route("projects", project, "images"), "images", state=state)

    def image(self, project: str, image: str) -> bytes:
        """The file of an image."""
        return self._send("GET", route("projects", project, "images", image)).content

    def delete_image(self, project: str, image: str) -> None:
        """Delete an image with its label maps."""
        self._send("DELETE", route("projects", project, "images", image))

    def next(
        self,
        project: str,
        strategy: str = "uncertainty",
        author: str | None = None,
        skip: str | Sequence[str] | None = None,
    ) -> dict[str, Any] | None:
        """The image to correct next, reserved for some minutes; None if there is none left.

        Args:
            strategy: uncertainty, diversity or random.
            author: who will correct it.
            skip: an image, or several, not to be returned.
        """
        asked = _given(strategy=strategy, author=author, skip=skip)
        answer = self._send("GET", route("projects", project, "next"), params=asked)
        if answer.status_code == 204:
            return None
        found: dict[str, Any] = answer.json()["image"]
        return found

    def predict(self, project: str, image: str) -> dict[str, Any]:
        """Predict the label map of an image; returns the document of this version."""
        return self._document("POST", route("projects", project, "images", image, "predict"))

    def labels(
        self, project: str, image: str, version: int | None = None, format: str | None = None
    ) -> Labels:
        """The label map of an image, the current or an earlier version."""
        url = route("projects", project, "images", image, "labels")
        answer = self._send("GET", url, params=_given(version=version, format=format))
        tag = answer.headers["ETag"].removeprefix("W/")  # of a proxy that compresses answers
        return Labels(answer.content, int(tag.strip('"')))

    def save_labels(
        self,
        project: str,
        image: str,
        labels: Content,
        version: int | None,
        author: str | None = None,
    ) -> dict[str, Any]:
        """Save a corrected label map; 412 `precondition_failed` if another one was saved meanwhile.

        Args:
            labels: the file, on the voxels of the image.
            version: the version that was corrected; None if there was none.
            author: who corrected it; by default the key's name.
        """
        condition = {"If-None-Match": "*"} if version is None else {"If-Match": f'"{version}"'}
        return self._document(
            "PUT",
            route("projects", project, "images", image, "labels"),
            content=labels if isinstance(labels, bytes) else Path(labels).read_bytes(),
            headers=condition,
            params=_given(author=author),
        )

    def versions(self, project: str, image: str) -> Iterator[dict[str, Any]]:
        """The versions of an image's label map, the oldest first."""
        return self._pages(
            route("projects", project, "images", image, "labels", "versions"), "versions"
        )

    def learn(self, project: str, **options: float | None) -> dict[str, Any]:
        """Start a round of learning; `Client.wait` waits for its `job`.

        Args:
            options: epochs, steps, batch_size, crop, learning_rate; None is the default.
        """
        return self._document("POST", route("projects", project, "learn"), data=texts(options))

    def rounds(self, project: str) -> list[dict[str, Any]]:
        """The rounds with their scores, the oldest first."""
        found: list[dict[str, Any]] = self._document("GET", route("projects", project, "rounds"))[
            "rounds"
        ]
        return found

    def export(self, project: str, layout: str = "nnunet") -> bytes:
        """The corrected images and label maps as a zip.

        Args:
            layout: nnunet, or pairs (images/ and labels/).
        """
        answer = self._send("GET", route("projects", project, "export"), params={"layout": layout})
        return answer.content

    def _pages(self, url: str, kind: str, **asked: str | None) -> Iterator[dict[str, Any]]:
        """All documents of a list, page by page."""
        after: str | None = None
        while True:
            page = self._document("GET", url, params=_given(limit=_PAGE, after=after, **asked))
            yield from page[kind]
            if (after := page["next"]) is None:
                return

    def _document(self, method: str, url: str, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        found: dict[str, Any] = self._send(method, url, **request).json()
        return found


def _named(paths: Sequence[Path], kind: Kind = "image") -> Iterator[tuple[str, Sequence[Place]]]:
    """Name and files of each image or label map."""
    from caps_med.batch import find_cases
    from caps_med.batch.places import absolute
    from caps_med.batch.series import is_dicom

    given = [absolute(path) for path in paths]
    dicom = [path for path in given if path.is_file() and is_dicom(path)]
    cases = find_cases(dicom, kind=kind).cases if len(dicom) > 1 else ()
    series = {file: case for case in cases if len(case.files) > 1 for file in case.files}
    for path in given:
        if path.is_dir():
            for case in find_cases([path], kind=kind).cases:
                yield _called(case), case.files
        elif path not in series:
            yield path.name, [path]
        elif path == series[path].files[0]:
            yield _called(series[path]), series[path].files


def _paired(
    names: Sequence[str], labels: Iterable[tuple[str, Sequence[Place]]]
) -> dict[str, tuple[str, Sequence[Place]]]:
    """Name and file of the label map of each image that has one, by the image's name."""
    from caps_med.batch.cases import called_like

    images = called_like(names)
    found: dict[str, tuple[str, Sequence[Place]]] = {}
    for label, files in labels:
        alike = images(label)
        if len(alike) != 1:
            whose = "several images are" if alike else "no image is"
            raise ValueError(f"labels: {whose} called like {label}")
        (name,) = alike
        if name in found:
            raise ValueError(f"labels: {label} and {found[name][0]} belong to one image")
        found[name] = label, files
    return found


def _requests(
    named: Sequence[tuple[str, Sequence[Place]]], maps: Mapping[str, tuple[str, Sequence[Place]]]
) -> Iterator[list[Part]]:
    """The parts of each request, read only when needed; at least one request."""
    parts: list[Part] = []
    for name, files in named:
        more: list[Part] = [("images", (name, _content(files)))]
        if name in maps:
            label, its_files = maps[name]
            more.append(("labels", (label, _content(its_files))))
        together = [*parts, *more]
        size = sum(len(content) for _, (_, content) in together)
        if parts and (len(together) > _FILES or size > _BYTES):
            yield parts
            together = more
        parts = together
    yield parts


def _called(case: Case) -> str:
    """The name of a case as the name of a single file."""
    return case.name.replace("/", "-") + (case.suffix or ".dcm")


def _content(files: Sequence[Place]) -> bytes:
    """The files of one image as one file: a zip for several, or a header with its voxels."""
    from caps_med.images import names_beside

    beside = [file.with_name(other) for file in files for other in names_beside(file.name)]
    there = {file.name.lower(): file for file in reversed(beside) if file.is_file()}  # as on macOS
    files = [*files, *there.values()]
    if len(files) == 1:
        return files[0].read_bytes()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in files:
            archive.writestr(file.name, file.read_bytes())
    return content.getvalue()


def texts(form: Mapping[str, str | float | None]) -> dict[str, str]:
    """The fields of a form, without those that are None."""
    return {name: str(value) for name, value in _given(**form).items()}


def _given(**parameters: str | float | Sequence[str] | None) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}
