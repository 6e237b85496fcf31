"""Checks classified images in one pass: findings and statistics.

Nothing is written, and no input makes the check fail: an unreadable file is a finding.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from caps_med.errors import CapsMedError, NotFinite
from caps_med.images import MedicalImage
from caps_med.preprocessing import picture_of, single_slice_plane
from training.data.cases import FileRef
from training.data.check.card import Extent, display_geometry, extent_of
from training.data.check.check import quiet_libraries
from training.data.check.findings import KEEP_ONE, Finding, finding
from training.data.classified.images import ClassifiedImage, ClassifiedImages
from training.data.classified.reading import read
from training.data.classified.sheet import ClassSheet
from training.data.unsupported import what_and_fix
from training.progress import CHECKING, tracked

#: The largest class has over this many times the images of the smallest.
IMBALANCE = 10
#: A class with fewer images than this is named.
FEW = 5


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassCount(_Model):
    """Images of one class: all of them, and by part of the data set as published."""

    name: str
    images: int
    share: float
    parts: dict[str, int]


class ClassCard(_Model):
    """Statistics of classified images.

    Attributes:
        images: readable ones.
        patients: groups of images that belong together; 0 if none are known.
        parts: images in each published part.
        exclusive: whether each image belongs to exactly one class.
        sizes: (row, column) in pixels; of volumes (slice, row, column) of axial slices.
        channels: number of channels -> images.
        minimum, maximum: intensities.
        eight_bits: whether all intensities are whole numbers of 8 bits.
        imbalance: images of the largest class over those of the smallest that has any.
    """

    images: int
    patients: int
    parts: dict[str, int]
    exclusive: bool
    sizes: Extent
    channels: dict[int, int]
    minimum: float
    maximum: float
    eight_bits: bool
    imbalance: float
    classes: tuple[ClassCount, ...]


@dataclass(frozen=True)
class ClassReport:
    """The result of the pass: findings, errors first; card and sheet of the readable images."""

    findings: tuple[Finding, ...]
    card: ClassCard | None
    sheet: MedicalImage | None


def check(dataset: ClassifiedImages) -> ClassReport:
    """Read every image once, keeping one in memory at a time."""
    survey = _Survey(dataset)
    with quiet_libraries():
        for image in tracked(dataset.images, CHECKING):
            survey.add(image)
    return survey.report()


class _Survey:
    """State of the pass."""

    def __init__(self, dataset: ClassifiedImages) -> None:
        self.dataset = dataset
        self.findings: list[Finding] = []
        self.counts: list[Counter[str]] = [Counter() for _ in dataset.classes]
        self.sizes: Counter[tuple[float, ...]] = Counter()
        self.channels: Counter[int] = Counter()
        self.parts: Counter[str] = Counter()
        self.groups: dict[str, set[str]] = {}
        self.low, self.high, self.eight_bits, self.volumes = np.inf, -np.inf, True, 0
        self.seen: dict[bytes, ClassifiedImage] = {}
        self.sheet = ClassSheet(dataset)

    def add(self, image: ClassifiedImage) -> None:
        """Read and check one image."""
        try:
            content = read(image.image)
        except NotFinite as error:
            self._note("not_finite", image.image, "contains NaN or infinity", str(error))
        except CapsMedError as error:
            self._note("unreadable", image.image, "cannot be read", str(error))
        except MemoryError:
            what = "takes more memory to read than is allowed"
            self._note(
                "unreadable", image.image, what, "crop or downsample it, or allow more memory"
            )
        except Exception as error:  # a library's failure on one file must not end the pass
            what = f"cannot be read: {type(error).__name__}"
            self._note("unreadable", image.image, what, "save it again or remove it")
        else:
            self._count(image, content)

    def _count(self, image: ClassifiedImage, content: MedicalImage) -> None:
        array = content.array
        for index in image.classes:
            self.counts[index][image.part or ""] += 1
        self.sizes[display_geometry(picture_of(content))[0]] += 1
        self.channels[len(array)] += 1
        self.parts[image.part or ""] += 1
        if image.group:
            self.groups.setdefault(image.group, set()).add(image.part or "")
        low, high = float(array.min()), float(array.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.eight_bits &= array.dtype == np.uint8
        self.volumes += content.spatial_dims == 3 and single_slice_plane(content) is None
        if low == high:
            what = f"has the constant value {low:g}"
            self._note("constant_image", image.image, what, "remove it")
        self.sheet.add(image, content)
        self._compare(
            image, hashlib.sha256(f"{array.shape} {array.dtype}".encode() + array.tobytes())
        )

    def _compare(self, image: ClassifiedImage, digest: hashlib._Hash) -> None:
        """Report an image that is there already."""
        first = self.seen.setdefault(digest.digest(), image)
        if first is image:
            return
        names = self.dataset.classes
        listed_again = first.image == image.image
        same = "is listed again" if listed_again else f"is the same image as {first.name}"
        if first.classes != image.classes:
            mine, its = ("/".join(names[k] for k in i.classes) or "none" for i in (image, first))
            what = f"{same}, but of class {mine}, not {its}"
            self._note("class_conflict", image.image, what, "keep the one with the right class")
        elif first.part != image.part or first.group != image.group:
            parted = first.part != image.part
            what = f"{same} {'in another part' if parted else 'of another patient'}"
            fix = "keep one: scores would be too high" if parted else KEEP_ONE
            self._note("shared_image", image.image, what, fix)
        else:
            self._note("duplicate", image.image, same, KEEP_ONE)

    def report(self) -> ClassReport:
        """Findings and statistics."""
        card = self._card() if self.sizes else None
        findings = [*self._of_files(), *self.findings, *self._of_classes()]
        if card is None and not self.dataset.error:
            fix = "repair the files above" if findings else "add images"
            findings.append(finding("no_cases", "", "no classified image can be read", fix))
        findings.sort(key=lambda found: found.severity != "error")
        return ClassReport(tuple(findings), card, self.sheet.picture())

    def _of_files(self) -> Iterator[Finding]:
        if self.dataset.error:
            what, fix = what_and_fix(self.dataset.error)
            yield finding("layout", "", what, fix or "correct the files")
        for one in self.dataset.unusable:
            yield finding("unusable", self._file(FileRef(one.path)), one.what, one.fix)

    def _of_classes(self) -> Iterator[Finding]:
        names, totals = self.dataset.classes, [counts.total() for counts in self.counts]
        if self.sizes and sum(total > 0 for total in totals) < 2:
            yield finding("one_class", "", "all images belong to one class", "add another class")
        for name, total in zip(names, totals, strict=True):
            if not total:
                fix = "add images, or remove the class"
                yield finding("empty_class", "", f"the class {name} has no images", fix)
            elif total < FEW:
                what = f"the class {name} has only {total} image{'s' * (total > 1)}"
                yield finding("rare_class", "", what, "add images, or merge it with another class")
        largest, smallest = max(totals, default=0), min((t for t in totals if t), default=1)
        if largest > IMBALANCE * smallest:
            what = f"the largest class has {largest} images, the smallest {smallest}"
            yield finding("imbalance", "", what, "classes are weighted; look at balanced accuracy")
        yield from self._of_names(names)
        if self.volumes:
            what = f"{self.volumes} of {self.sizes.total()} images are volumes"
            yield finding(
                "volume", "", what, "their middle slices are used; to choose others, save slices"
            )
        if len(self.channels) > 1 and set(self.channels) != {1, 3}:
            what = f"images with {', '.join(map(str, sorted(self.channels)))} channels"
            yield finding("mixed_channels", "", what, "convert them to the same number of channels")
        for group, parts in self.groups.items():
            if len(parts) > 1:
                what = f"the patient {group} is in {' and '.join(sorted(parts))}"
                yield finding("shared_patient", "", what, "keep each patient in one part")

    def _of_names(self, names: tuple[str, ...]) -> Iterator[Finding]:
        folded: dict[str, list[str]] = {}
        for name in names:
            folded.setdefault("".join(name.casefold().split()), []).append(name)
        for alike in folded.values():
            if len(alike) > 1:
                what = f"the classes {' and '.join(map(repr, alike))} differ only in case or spaces"
                yield finding(
                    "similar_classes",
                    "",
                    what,
                    "if they are the same class, write them the same way",
                )

    def _card(self) -> ClassCard:
        totals = [counts.total() for counts in self.counts]
        present = [total for total in totals if total]
        images = self.sizes.total()
        return ClassCard(
            images=images,
            patients=len(self.groups),
            parts={part or "all": count for part, count in sorted(self.parts.items())},
            exclusive=self.dataset.exclusive,
            sizes=extent_of(self.sizes),
            channels=dict(sorted(self.channels.items())),
            minimum=self.low,
            maximum=self.high,
            eight_bits=self.eight_bits,
            imbalance=round(max(present) / min(present), 3) if present else 1,
            classes=tuple(
                ClassCount(
                    name=name,
                    images=counts.total(),
                    share=round(counts.total() / images, 9),
                    parts={part or "all": count for part, count in sorted(counts.items())},
                )
                for name, counts in zip(self.dataset.classes, self.counts, strict=True)
            ),
        )

    def _note(self, code: str, file: FileRef, what: str, fix: str) -> None:
        self.findings.append(finding(code, self._file(file), what, fix))

    def _file(self, reference: FileRef) -> str:
        """The reference, its path relative to the data set if inside it."""
        path, root = reference.path, self.dataset.root
        root = root if root.is_dir() else root.parent
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        return f"{shown}{str(reference).removeprefix(path.name)}"
