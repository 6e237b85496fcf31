"""What can be wrong with a data set: stable codes, each with its severity and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from caps_med.images import MedicalImage
from training.data.cases import Cases
from training.data.check.card import DataCard, display_geometry

Severity = Literal["error", "warning"]

#: Code -> whether training would be wrong, and what the code means.
CODES: Mapping[str, tuple[Severity, str]] = {
    "layout": ("error", "the arrangement of the files is not understood"),
    "no_cases": ("error", "there is no readable labelled image"),
    "unpaired": ("error", "a file without its counterpart, or of an unknown format"),
    "unreadable": ("error", "a file that is cut, broken or of a variant that is not read"),
    "not_finite": ("error", "NaN or infinity among the values"),
    "size_mismatch": ("error", "image and label map, or two channels, differ in size"),
    "affine_mismatch": ("error", "image and label map, or two channels, lie at different places"),
    "label_values": ("error", "a label map of colours, fractions or negative values, or as JPEG"),
    "label_picture": ("error", "a label map whose values vary like those of a photograph"),
    "all_empty": ("error", "no label map holds anything but 0"),
    "mixed_channels": ("error", "images of different numbers of channels"),
    "mixed_dimensions": ("error", "pictures and volumes in one data set"),
    "mixed_spacing": ("error", "volumes whose voxels differ in size"),
    "contradiction": ("error", "one image with two different label maps"),
    "empty_label": ("warning", "a label map without any label"),
    "constant_image": ("warning", "an image of one value everywhere"),
    "duplicate": ("warning", "one image in two cases"),
    "rare_class": ("warning", "a class in one case alone, or of very few voxels"),
    "many_classes": ("warning", "very many labels, as in maps of instances"),
    "mixed_masks": ("warning", "some masks hold 1, others 255"),
    "ignored_value": ("warning", "the label 255 beside others, which often means: not labelled"),
    "too_few": ("warning", "a single case: none can be held out"),
}
#: A class below this share of all voxels is rare.
RARE = 1e-4
#: More labels than these, without names, are rather instances than classes.
MANY = 40
#: Spacings of volumes may differ by this share and still count as one.
SPACING_TOLERANCE = 0.01
_IGNORED = 255


class Finding(BaseModel):
    """One thing that is wrong.

    Attributes:
        severity: "error" where training would be wrong, else "warning".
        code: one of `CODES`.
        file: relative to the data set; with the picture's number in a stack. Empty for what
            concerns all.
        what: is wrong, in words.
        fix: what to do about it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Severity
    code: str
    file: str
    what: str
    fix: str

    def __str__(self) -> str:
        """The finding without its fix, in one line."""
        return f"{self.severity}: {self.code}: {self.file or 'the data set'} {self.what}"


def finding(code: str, file: str, what: str, fix: str) -> Finding:
    """A finding with its code's severity."""
    return Finding(severity=CODES[code][0], code=code, file=file, what=what, fix=fix)


class Likeness:
    """What should be the same in all cases."""

    _FIXES: Mapping[str, str] = {
        "mixed_channels": "convert all to one",
        "mixed_dimensions": "train on one kind: take the others out",
        "mixed_spacing": "resample all volumes to one spacing",
    }

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, list[str]]] = {code: {} for code in self._FIXES}
        self._spacings: list[tuple[float, ...]] = []

    def add(self, file: str, image: MedicalImage) -> None:
        """Note what one image is like."""
        channels = {1: "grey", 3: "in colour"}.get(len(image.array), f"{len(image.array)} channels")
        self._note("mixed_channels", channels, file)
        self._note("mixed_dimensions", f"{image.spatial_dims}-D", file)
        _, spacing = display_geometry(image)
        if spacing is not None:
            alike = next((seen for seen in self._spacings if _close(spacing, seen)), None)
            if alike is None:
                self._spacings.append(alike := spacing)
            self._note("mixed_spacing", " x ".join(f"{s:g}" for s in alike) + " mm", file)

    def findings(self) -> Iterator[Finding]:
        """One finding for each kind but the most usual."""
        for code, kinds in self._kinds.items():
            ranked = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
            for kind, files in ranked[1:]:
                count = "this one alone" if len(files) == 1 else f"this and {len(files) - 1} more"
                what = f"{kind} ({count}), while {len(ranked[0][1])} are {ranked[0][0]}"
                yield finding(code, files[0], what, self._FIXES[code])

    def _note(self, code: str, kind: str, file: str) -> None:
        self._kinds[code].setdefault(kind, []).append(file)


def of_card(card: DataCard, cases: Cases) -> Iterator[Finding]:
    """What the numbers of the whole data set tell."""
    labels = [share for share in card.classes if share.label > 0]
    if not labels:
        fix = "save the labels as ids 1, 2, ... or as masks of 0 and 255"
        yield finding("all_empty", "", "every label map is empty (all 0)", fix)
    if card.cases == 1:
        fix = "add images: a second one to validate on"
        yield finding("too_few", "", "is a single labelled image", fix)
    if len(labels) > MANY and not cases.labels:
        what = f"{len(labels)} different labels, up to {labels[-1].label}"
        fix = "if they number instances, save masks of 0 and 1; if they are classes, go on"
        yield finding("many_classes", "", what, fix)
        return
    for share in labels:
        name = cases.labels.get(share.label, f"label {share.label}")
        if share.label == _IGNORED and len(labels) > 1 and share.label not in cases.labels:
            what = f"{name} would be learned as a class of its own"
            fix = "if it means 'not labelled', replace it by 0"
            yield finding("ignored_value", "", what, fix)
        if share.share < RARE or (share.cases == 1 < card.cases):
            what = f"{name}: {share.voxels} voxels ({share.share:.2g} of all) in {share.cases} "
            fix = "label more of it, or merge it with another class"
            yield finding("rare_class", "", what + "case" + "s" * (share.cases > 1), fix)


def _close(spacing: tuple[float, ...], other: tuple[float, ...]) -> bool:
    pairs = zip(spacing, other, strict=True)
    return all(abs(a - b) <= SPACING_TOLERANCE * max(a, b) for a, b in pairs)
