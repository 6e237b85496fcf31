"""Checks the files of a data set in one pass: findings and data card.

Nothing is written, and no input makes the check fail: an unreadable file is a finding.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caps_med.images import MedicalImage, SliceStack
from caps_med.images.labels import WHITES, like_a_picture
from caps_med.wording import counted, listed
from training.data.cases import Case, Cases, FileRef
from training.data.check.card import CardBuilder, DataCard
from training.data.check.findings import KEEP_ONE, Consistency, Finding, card_findings, finding
from training.data.check.instances import InstanceSurvey
from training.data.check.sides import SideSurvey, sides_findings
from training.data.groups import folder_groups
from training.data.reading import BrokenCase, encoding_of, read_case, unlabelled
from training.data.samples import hold_out, validation_part
from training.data.unsupported import what_and_fix
from training.pictures.sheet import Thumbnail, case_sheet, thumbnail
from training.progress import CHECKING, tracked

#: What to do with a label map that is an image in truth.
SAVE_IDS = "save label ids: 0, 1, 2, ..."
_CHUNK = 2**22
#: Code of a finding -> what a label map is made of where the finding is told of it.
_PARTS_OF_MAPS = {"segments": "segments", "overlap": "masks"}
#: Most folders that a finding lists.
_LISTED = 6
#: Cases shown on the contact sheet, evenly spaced.
SHOWN = 12


@dataclass(frozen=True)
class Content:
    """Card and contact sheet of a data set or a subset.

    Attributes:
        card: the data card of the readable cases; None if there are none.
        sheet: an RGB picture of some cases with labels overlaid; None without readable cases.
    """

    card: DataCard | None
    sheet: MedicalImage | None


@dataclass(frozen=True)
class Report:
    """The result of one pass over a data set.

    Attributes:
        findings: all findings, errors first.
        label_values: value in the label files -> label id, if they differ; see `encoding_of`.
        sides: pairs of labels that are left and right of each other, see
            `training.data.check.sides`.
        contents: one for each requested set of cases.
    """

    findings: tuple[Finding, ...]
    label_values: Mapping[int, int]
    sides: tuple[tuple[int, int], ...]
    contents: tuple[Content, ...]


def check(cases: Cases, subsets: Sequence[Cases] = ()) -> Report:
    """Check a data set, reading every file once and keeping one case in memory at a time.

    Args:
        cases: the whole data set.
        subsets: subsets that need their own card.

    Returns:
        A report whose `contents` belong to the whole, then to each subset.
    """
    survey = _Survey(cases, subsets)
    with quiet_libraries():
        for case in tracked(cases.cases, CHECKING):
            survey.add(case)
    return survey.report()


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence library warnings about corrupt files, which the findings report."""
    nibabel = logging.getLogger("nibabel.global")
    before, nibabel.disabled = nibabel.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        nibabel.disabled = before


class _Collector:
    """Collects statistics and thumbnails of one set of cases."""

    def __init__(self, cases: Cases) -> None:
        self.names = {case.name for case in cases.cases}
        steps = np.linspace(0, len(cases.cases) - 1, min(SHOWN, len(cases.cases)))
        self._shown = {cases.cases[i].name for i in np.rint(steps).astype(int)}
        self._card = CardBuilder()
        self._tiles: list[Thumbnail] = []

    def add(
        self, case: Case, image: MedicalImage, counts: Mapping[int, int], label: MedicalImage
    ) -> None:
        """Add one case; `counts` is the number of voxels of each value in its label map."""
        self._card.add(case.grouped, image, counts, label)
        if case.name in self._shown:
            self._tiles.append(thumbnail(case.name, image, label))

    def content(self, label_values: Mapping[int, int]) -> Content:
        """The card and the contact sheet."""
        sheet = case_sheet(self._tiles, label_values) if self._tiles else None
        return Content(self._card.card(label_values), sheet)


class _Survey:
    """State of the pass over the data set."""

    def __init__(self, cases: Cases, subsets: Sequence[Cases]) -> None:
        self._cases = cases
        self._collectors = [_Collector(each) for each in (cases, *subsets)]
        self._consistency = Consistency()
        self._findings: list[Finding] = [
            finding("unpaired", _name(one.path, cases), one.what, one.fix) for one in cases.unpaired
        ]
        if cases.error:
            what, fix = what_and_fix(cases.error)
            fix = fix or "correct the description of the data set"
            self._findings.append(finding("layout", "", what, fix))
        self._findings += _divided(cases)
        self._findings += _by_folder(cases)
        self._values: set[frozenset[int]] = set()
        #: Group -> values in its label maps.
        self._held: dict[str, set[int]] = {}
        self._instances = InstanceSurvey()
        self._sides = SideSurvey()
        #: Label value -> the first label maps that hold it, two at most.
        self._holders: dict[int, list[str]] = {}
        #: Digest of an image -> its case, its file and the digest of its label map.
        self._seen: dict[bytes, tuple[str, str, bytes]] = {}

    def add(self, case: Case) -> None:
        """Read and check one case, keeping only statistics and a thumbnail."""
        try:
            image, label, ids = read_case(
                case, instances=self._cases.instances, ignored=self._cases.ignored
            )
        except BrokenCase as error:
            self._add(error.finding, error.file, error.what, error.fix)
        except MemoryError:
            what = "takes more memory to read than is allowed"
            self._add(
                "unreadable", case.images[0], what, "crop or downsample it, or allow more memory"
            )
        except Exception as error:  # a library's failure on one file must not end the pass
            what = f"cannot be read: {type(error).__name__}"
            self._add("unreadable", case.images[0], what, "save it again or remove it")
        else:
            missing = int(np.count_nonzero(unlabelled(ids, self._cases.ignored)))
            self._count(case, image, label, missing)

    def _count(self, case: Case, image: MedicalImage, label: MedicalImage, missing: int) -> None:
        counted = _counted(label)
        if missing:  # they look like background
            counted[0] -= missing
            counted = {value: count for value, count in counted.items() if count}
        if what := like_a_picture(label, len(counted)):
            self._add("label_picture", case.label, what, SAVE_IDS)
            return
        code = "segments" if case.segments else "overlap" if case.label.objects else ""
        for note in label.warnings if code else ():  # of other files they say something else
            fix = f"correct the {_PARTS_OF_MAPS[code]} if this is not intended"
            self._add(code, case.label, note.removeprefix("DICOM SEG: "), fix)
        self._values.add(frozenset(counted))
        self._note_labels(self._file(case.label), label, counted)
        for collector in self._collectors:
            if case.name in collector.names:
                collector.add(case, image, counted, label)
        self._consistency.add(self._file(case.images[0]), image)
        if not counted:
            fix = "label some of it; until then, it is left out"
            self._add("empty_label", case.label, "is not labelled anywhere", fix)
        elif not counted.keys() - {0}:
            fix = "label it, or keep it as a case without foreground"
            if image.spatial_dims == 3:
                fix += "; only --dims 3d learns from it: in 2-D, slices without labels are left out"
            self._add("empty_label", case.label, "contains no labels", fix)
        self._held.setdefault(case.grouped, set()).update(counted)
        if image.array.min() == image.array.max():
            what = f"has the constant value {image.array.flat[0]:g}"
            self._add("constant_image", case.images[0], what, "remove it")
        self._compare(case, image, label)

    def _note_labels(self, file: str, label: MedicalImage, counted: Mapping[int, int]) -> None:
        for value in counted:
            holders = self._holders.setdefault(value, [])
            if len(holders) < 2:
                holders.append(file)
        if self._cases.instances is None:
            self._instances.add(file, label, counted)
        if self._cases.instances in (None, "classes"):
            stack = SliceStack.from_image(label, copy=False)
            labels = {value: value for value in counted}
            self._sides.add(stack.array[:, 0], stack.lengths, labels)

    def _compare(self, case: Case, image: MedicalImage, label: MedicalImage) -> None:
        """Report an image that another case contains as well."""
        file, labels = self._file(case.images[0]), image_digest(label)
        known, first, its_labels = self._seen.setdefault(
            image_digest(image), (case.name, file, labels)
        )
        if known == case.name:
            return
        same = "is listed again" if first == file else f"is the same image as {first}"
        if its_labels == labels:
            self._add("duplicate", case.images[0], same, KEEP_ONE)
        else:
            what = f"{same} with different labels"
            self._add("contradiction", case.images[0], what, "keep the correct label map")

    def report(self) -> Report:
        """The findings and cards, with label values decided over all cases."""
        encoding = encoding_of(self._values, self._cases.labels)
        contents = tuple(collector.content(encoding) for collector in self._collectors)
        card = contents[0].card
        findings = [*self._findings, *self._consistency.findings()]
        findings += self._instances.findings(self._cases.labels)
        sides: tuple[tuple[int, int], ...] = ()
        if card is not None and not self._instances.all_instances(self._cases.labels):
            unlearned = self._unlearned(encoding)
            findings += card_findings(
                card, self._cases, self._single_holders(encoding), self._instances.odd, unlearned
            )
            sides = self._sides.pairs()
            findings += sides_findings(sides, self._cases.labels, self._cases.codes.values())
        labelled = self._labelled()
        if card is not None and len(labelled) == 1 < card.groups:
            (group,) = labelled
            what = f"of {card.groups} independent cases, only {group} has labels"
            fix = "label at least one more, to be held out, or leave out the cases without labels"
            findings.append(finding("one_labelled", "", what, fix))
        elif labelled:
            findings += self._unlabelled_part()
        if card is None and not self._cases.error:
            fix = "repair the files above" if findings else "add images with label maps"
            if self._cases.has_test:
                fix += "; those of the test part are left out"
            findings.append(finding("no_cases", "", "no labelled image can be read", fix))
        if 1 in encoding and (white := max(encoding)) in WHITES:
            what = (
                f"some masks use 0 and 1, others 0 and {white}: 1 and {white} are read as the same "
                "label"
            )
            findings.append(
                finding("mixed_masks", "", what, "if they mean different labels, renumber them")
            )
        findings.sort(key=lambda found: found.severity != "error")
        return Report(tuple(findings), encoding, sides, contents)

    def _labelled(self) -> list[str]:
        """The groups with labels."""
        return [group for group, values in self._held.items() if values - {0}]

    def _unlearned(self, encoding: Mapping[int, int]) -> set[int]:
        """The labels that held-out cases alone have."""
        held_out = validation_part(self._cases, self._held) or hold_out(self._labelled())
        learned, others = set[int](), set[int]()
        for group, values in self._held.items():
            labels = others if group in held_out else learned
            labels.update(encoding.get(value, value) for value in values)
        return others - learned

    def _unlabelled_part(self) -> Iterator[Finding]:
        """A finding if no case to train on, or none to validate on, has labels."""
        held_out = validation_part(self._cases, self._held)
        sides = {group in held_out for group in self._labelled()}
        if held_out and len(sides) == 1:
            part = "to train on" if True in sides else "of the validation part"
            what = f"no case {part} has labels"
            fix = "label some of them, or divide the cases differently"
            yield finding("unlabelled_part", "", what, fix)

    def _single_holders(self, encoding: Mapping[int, int]) -> dict[int, str]:
        """Label -> the label map that holds it, of labels in a single one."""
        return {
            encoding.get(value, value): files[0]
            for value, files in self._holders.items()
            if len(files) == 1
        }

    def _add(self, code: str, file: FileRef, what: str, fix: str) -> None:
        self._findings.append(finding(code, self._file(file), what, fix))

    def _file(self, reference: FileRef) -> str:
        name = _name(reference.path, self._cases)
        return name if reference.index is None else f"{name}[{reference.index}]"


def _divided(cases: Cases) -> Iterator[Finding]:
    """A finding for each group that is in the validation part and elsewhere."""
    parts: dict[str, set[str]] = {}
    for case in cases.cases:
        parts.setdefault(case.grouped, set()).add(case.part or "no part")
    meant = "all of it is held out"
    if not validation_part(cases, parts):
        meant = "every patient is in validation, so the parts are ignored"
    for group, found in parts.items():
        if "validation" in found and len(found) > 1:
            what = f"{group} is in {' and '.join(sorted(found))}: {meant}"
            yield finding("shared_patient", "", what, "keep each patient in one part")


def _by_folder(cases: Cases) -> Iterator[Finding]:
    """A finding if folders that are groups have no numbers, as those of patients have."""
    folders = folder_groups((case.name, case.group) for case in cases.cases)
    if not folders or any(character.isdigit() for character in "".join(folders)):
        return
    each = [f"{name} ({counted(number, 'case')})" for name, number in folders.items()]
    what = f"a folder is one group, which is held out as a whole: {listed(each, _LISTED)}"
    fix = (
        "if each folder has images of many patients, put them into one folder, or give a list with "
        "the columns image, label and group"
    )
    yield finding("folder_groups", "", what, fix)


def _name(path: Path, cases: Cases) -> str:
    """The path relative to the data set, if inside it."""
    root = cases.root if cases.root.is_dir() else cases.root.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _counted(label: MedicalImage) -> dict[int, int]:
    """Value -> number of voxels."""
    flat = label.array.ravel()
    if flat.dtype.itemsize > 2:
        values, counts = np.unique(flat, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))
    total = np.zeros(np.iinfo(flat.dtype).max + 1, np.int64)
    for start in range(0, flat.size, _CHUNK):
        total += np.bincount(flat[start : start + _CHUNK], minlength=len(total))
    return {int(value): int(total[value]) for value in np.flatnonzero(total)}


def image_digest(image: MedicalImage) -> bytes:
    """Hash of size and values, whatever the dtype."""
    values = np.ascontiguousarray(image.array, dtype=np.float32)
    return hashlib.sha256(str(values.shape).encode() + values.tobytes()).digest()


def by_code(findings: Sequence[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Findings grouped by code, in order of first appearance."""
    for code in dict.fromkeys(found.code for found in findings):
        yield code, [found for found in findings if found.code == code]
