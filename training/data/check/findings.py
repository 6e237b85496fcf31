"""Findings of the data check: stable codes, each with a severity and a meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from caps_med.images import MedicalImage, is_grey
from caps_med.images.channels import is_colour
from caps_med.images.labels import WHITES
from caps_med.wording import counted, size_text
from training.data.cases import IGNORE, Cases
from training.data.check.card import ClassShare, DataCard, display_geometry

Severity = Literal["error", "warning"]

#: What to do with an image that is there twice.
KEEP_ONE = (
    "keep one: files with the same content are held out together, but count twice, and those that "
    "were saved differently may be in both training and validation"
)

#: Code -> severity and meaning.
CODES: Mapping[str, tuple[Severity, str]] = {
    "layout": ("error", "the layout of the files is not supported"),
    "no_cases": ("error", "no labelled image can be read"),
    "unpaired": ("error", "a file without a counterpart, or in an unknown format"),
    "unreadable": ("error", "a truncated or corrupt file, or an unsupported variant"),
    "not_finite": ("error", "NaN or infinity in an image or label map"),
    "size_mismatch": ("error", "image and label map, or two channels, differ in size"),
    "affine_mismatch": ("error", "image and label map, or two channels, have different affines"),
    "label_values": (
        "error",
        "a label map in colour or as JPEG, or with fractions, negative values, ids beyond 65535 or "
        "the greys of smoothed masks",
    ),
    "segments": ("warning", "a DICOM SEG whose segments overlap or are fractional"),
    "overlap": ("warning", "masks of several objects of an image overlap"),
    "label_picture": ("error", "a label map whose values vary like those of a photograph"),
    "mixed_labels": (
        "error",
        "a label map with ids in a data set where most are masks of 0 and 255",
    ),
    "instances": ("error", "every object has its own id, as in instance label maps"),
    "all_empty": ("error", "all label maps are empty (all 0)"),
    "no_background": ("warning", "label maps without 0, which is the background"),
    "one_labelled": ("error", "several cases, of which only one has labels: none can be held out"),
    "unlabelled_part": ("error", "a part of the data, to train or to validate on, without labels"),
    "mixed_channels": ("error", "images with different numbers of channels"),
    "channel_names": ("error", "the number of channel names differs from the number of channels"),
    "mixed_dimensions": ("error", "pictures and volumes in the same data set"),
    "mixed_spacing": ("warning", "volumes with different voxel spacings"),
    "contradiction": ("error", "the same image with two different label maps"),
    "empty_label": ("warning", "an empty label map (all 0)"),
    "constant_image": ("warning", "an image with the same value everywhere"),
    "duplicate": ("warning", "the same image in two cases"),
    "rare_class": ("warning", "a class in only one case or with very few voxels"),
    "unlearned_class": (
        "warning",
        "a class that only held-out cases contain, and that is therefore not learned",
    ),
    "absent_label": (
        "warning",
        "a named label, or the id of unlabelled voxels, that no label map contains",
    ),
    "many_classes": ("warning", "very many labels, as in instance label maps"),
    "grey_in_colour": ("warning", "grey images saved in colour, among images with real colours"),
    "mixed_masks": ("warning", "some masks use 1, others 255"),
    "ignored_value": (
        "warning",
        "the label 255 among others, or one called ignore, which often means 'not labelled'",
    ),
    "sides": ("warning", "labels that differ only in the side on which they lie"),
    "too_few": (
        "warning",
        "only one case: a part of it is held out, which says little about other images",
    ),
    "one_class": ("error", "images for classification that all have the same class"),
    "unusable": ("error", "a list entry without an image or a known class"),
    "class_conflict": ("warning", "the same image in two classes"),
    "shared_image": ("warning", "the same image for two patients, or in two parts of the data"),
    "shared_patient": ("warning", "a patient in two parts of the data"),
    "folder_groups": (
        "warning",
        "folders without a number in their names, each of which is taken for one patient",
    ),
    "empty_class": ("warning", "a class without images"),
    "imbalance": ("warning", "classes of very different sizes"),
    "similar_classes": ("warning", "two classes whose names differ only in case or spaces"),
    "volume": ("warning", "volumes, from which classification takes one slice"),
}
#: A class with a smaller share of all voxels is rare.
RARE = 1e-4
#: More unnamed labels than this are probably instances, not classes.
MANY = 40
#: Greys of at least this share of white may be what compression has left of it.
ALMOST = 15 / 16
#: Relative difference up to which voxel spacings count as equal.
SPACING_TOLERANCE = 0.01
_COLOUR = "in colour"


class Finding(BaseModel):
    """One problem in the data.

    Attributes:
        severity: "error" where training would be wrong, else "warning".
        code: one of `CODES`.
        file: path relative to the data set, with the picture's index in a stack; empty if the
            whole data set is concerned.
        what: the problem, in words.
        fix: how to fix it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Severity
    code: str
    file: str
    what: str
    fix: str

    def __str__(self) -> str:
        """The finding without its fix, in one line."""
        where = f"{self.file} " if self.file else ""
        return f"{self.severity}: {self.code}: {where}{self.what}"


def finding(code: str, file: str, what: str, fix: str) -> Finding:
    """A finding with the severity of its code."""
    return Finding(severity=CODES[code][0], code=code, file=file, what=what, fix=fix)


class Consistency:
    """Checks properties that all cases should share."""

    _FIXES: Mapping[str, str] = {
        "mixed_channels": "convert all images to the same number of channels",
        "mixed_dimensions": "keep either the pictures or the volumes",
    }

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, list[str]]] = {code: {} for code in self._FIXES}
        self._grey_in_colour: list[str] = []
        self._spacings: list[tuple[tuple[float, ...], list[str]]] = []

    def add(self, file: str, image: MedicalImage) -> None:
        """Record the properties of one image."""
        if is_colour(image) and is_grey(image):
            self._grey_in_colour.append(file)
        else:
            self._note("mixed_channels", _channels(image), file)
        self._note("mixed_dimensions", f"{image.spatial_dims}-D", file)
        _, spacing = display_geometry(image)
        if spacing is not None:
            alike = next((files for seen, files in self._spacings if _close(spacing, seen)), None)
            if alike is None:
                self._spacings.append((spacing, alike := []))
            alike.append(file)

    def findings(self) -> Iterator[Finding]:
        """One finding for each value except the most common."""
        colours = self._kinds["mixed_channels"].get(_COLOUR, [])
        if colours and self._grey_in_colour:
            count = _this_and_more(self._grey_in_colour)
            what = f"grey, but saved in colour ({count}), while {len(colours)} are {_COLOUR}"
            fix = "keep it if the colours do not matter, otherwise remove it"
            yield finding("grey_in_colour", self._grey_in_colour[0], what, fix)
        for code, kinds in self._kinds.items():
            ranked = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
            for kind, files in ranked[1:]:
                most, others = ranked[0]
                what = f"{kind} ({_this_and_more(files)}), while {len(others)} are {most}"
                yield finding(code, files[0], what, self._FIXES[code])
        yield from self._mixed_spacing()

    def _mixed_spacing(self) -> Iterator[Finding]:
        """One finding for all of them: every volume of a hospital may have a spacing of its own."""
        ranked = sorted(self._spacings, key=lambda kind: -len(kind[1]))
        if len(ranked) < 2:
            return
        (usual, most), (other, files), *further = ranked
        more = f", and {counted(len(further), 'further spacing')} in other volumes" * bool(further)
        count = f"{size_text(other, 'mm')} ({_this_and_more(files)})"
        verb = "is" if len(most) == 1 else "are"
        what = f"{count}{more}, while {len(most)} {verb} {size_text(usual, 'mm')}"
        fix = (
            "slices are resampled to the median spacing, whole volumes (--dims 3d) in all "
            "directions; if slices are learned with their neighbours (2.5d) and their distances "
            "differ much, set a distance: --set preparation.slice_mm=3"
        )
        yield finding("mixed_spacing", files[0], what, fix)

    def _note(self, code: str, kind: str, file: str) -> None:
        self._kinds[code].setdefault(kind, []).append(file)


def _this_and_more(files: Sequence[str]) -> str:
    return "only this one" if len(files) == 1 else f"this and {len(files) - 1} more"


def _channels(image: MedicalImage) -> str:
    count = len(image.array)
    return "grey" if count == 1 else _COLOUR if is_colour(image) else counted(count, "channel")


def card_findings(
    card: DataCard,
    cases: Cases,
    holders: Mapping[int, str],
    known: Collection[str],
    unlearned: Collection[int],
) -> Iterator[Finding]:
    """Findings from the statistics of the whole data set.

    Args:
        card: its statistics.
        cases: its cases.
        holders: label -> the label map that holds it, of labels in a single one.
        known: label maps whose labels another finding reports.
        unlearned: labels in held-out cases alone.
    """
    labels = [share for share in card.classes if share.label > 0]
    yield from _set_findings(card, cases, labels)
    if (len(labels) > MANY and not cases.labels) or _are_blurred_masks(labels, cases):
        yield _many_labels(labels, cases)
        return
    for share in labels:
        holder = holders.get(share.label, "")
        if holder not in known and not (known and share.label in WHITES):
            yield from _class_findings(share, card, cases, holder, share.label in unlearned)


def _set_findings(card: DataCard, cases: Cases, labels: Sequence[ClassShare]) -> Iterator[Finding]:
    """What concerns the data set as a whole."""
    if not labels:
        fix = "save labels as ids 1, 2, ... or as masks of 0 and 255"
        empty = "all 0" if cases.ignored is None else f"all 0 or {cases.ignored}"
        yield finding("all_empty", "", f"every label map is empty ({empty})", fix)
    elif all(share.label for share in card.classes):
        first = labels[0].label
        fix = f"if {first} is the background, save it as 0, and the other labels from 1 up"
        yield finding("no_background", "", "no label map contains 0, the background", fix)
    if cases.chosen_channels and card.channels and len(card.channels) != len(cases.channels):
        names = counted(len(cases.channels), "name")
        have = counted(len(card.channels), "channel")
        what = f"{names} of channels ({', '.join(cases.channels)}), but the images have {have}"
        yield finding("channel_names", "", what, "name each channel once")
    if card.cases == 1:
        fix = "add at least one more for validation"
        yield finding("too_few", "", "there is only one labelled image", fix)
    held = {share.label for share in labels}
    absent = [f"{i} ({name})" for i, name in cases.labels.items() if i and i not in held]
    if cases.ignored is not None and not card.unlabelled:
        absent.append(f"{cases.ignored} (unlabelled)")
    if labels and absent:
        what = f"{', '.join(absent)}: in no label map"
        there = ", ".join(str(share.label) for share in labels[:MANY])
        yield finding(
            "absent_label",
            "",
            what,
            f"correct the id if it is mistyped; the label maps contain {there}",
        )


def _many_labels(labels: Sequence[ClassShare], cases: Cases) -> Finding:
    what = f"{len(labels)} different labels, up to {labels[-1].label}"
    if cases.instances is None and _are_smooth_masks(labels):
        fix = (
            "save masks of 0 and 255 (values from 128 up as 255); if each value is a class, "
            "choose --instances classes"
        )
        return finding("label_values", "", f"{what}: masks with smoothed edges", fix)
    fix = "if they are instances, save masks of 0 and 1; if they are classes, ignore this"
    return finding("many_classes", "", what, fix)


def _class_findings(
    share: ClassShare, card: DataCard, cases: Cases, holder: str, unlearned: bool
) -> Iterator[Finding]:
    """Of one label; see `card_findings`."""
    several = sum(other.label > 0 for other in card.classes) > 1
    name = cases.labels.get(share.label, f"label {share.label}")
    white = share.label in WHITES and several and share.label not in cases.labels
    if white or name.casefold() == IGNORE:
        what = f"{name} would be learned as a separate class"
        fix = f"if it means 'not labelled', --ignore-label {share.label} leaves it out"
        if not white:
            what += " by a generator; segmentation leaves it out"
            fix = "for a generator, label these images completely, or leave them out"
        yield finding("ignored_value", "", what, fix)
    if unlearned:
        what = f"{name}: only in held-out cases ({share.cases}), so it is not learned"
        fix = "label it in other cases, or divide the cases differently"
        yield finding("unlearned_class", holder, what, fix)
    elif share.share < RARE or (share.cases == 1 < card.cases):
        seen = f"{counted(share.voxels, 'voxel')} ({share.share:.2g} of all)"
        fix = "label more of it, or merge it with another class"
        yield finding(
            "rare_class", holder, f"{name}: {seen} in {counted(share.cases, 'case')}", fix
        )


def _are_smooth_masks(labels: Sequence[ClassShare]) -> bool:
    """Whether a large part of what is labelled is white: masks that were resized, or drawn with
    soft edges, have greys along their edges.
    """
    return labels[-1].label in WHITES and 4 * labels[-1].voxels > sum(s.voxels for s in labels)


def _are_blurred_masks(labels: Sequence[ClassShare], cases: Cases) -> bool:
    """Whether few greys are left of smooth masks, such as those that JPEG leaves: almost white."""
    if cases.instances is not None or not labels or not _are_smooth_masks(labels):
        return False
    white = labels[-1]
    return any(
        share.label not in cases.labels and 4 * share.voxels < white.voxels
        for share in labels[:-1]
        if share.label >= ALMOST * white.label
    )


def _close(spacing: tuple[float, ...], other: tuple[float, ...]) -> bool:
    pairs = zip(spacing, other, strict=True)
    return all(abs(a - b) <= SPACING_TOLERANCE * max(a, b) for a, b in pairs)
