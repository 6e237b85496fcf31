"""Label maps that another program has predicted, to be scored like the answers of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeAlias

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from caps_med.inference import Model
from caps_med.wording import listed
from training.data import Dataset
from training.data.cases import Case, Cases, FileRef
from training.data.layouts.naming import (
    LABEL_WORDS,
    Entry,
    by_key,
    entries,
    stem_of,
    suffix_of,
    without,
)
from training.data.reading import label_encoding, learned, read_ids, values_known_to
from training.data.segments import with_segments
from training.evaluation.evaluator import matched_label, read_flat
from training.evaluation.object_ids import ids_are_objects

#: A file name without its suffix, and the number of the picture in a stack.
_Name: TypeAlias = tuple[str, int | None]
#: Most cases without a prediction that an error names.
_LISTED = 5


@dataclass(frozen=True)
class Predictions:
    """Label maps of all cases of a data set.

    Attributes:
        name: in tables and files.
        cases: name -> the case with its predicted label map in place of the true one.
        label_values: value in the files -> label id; empty if the values are the ids.
        dataset: what ids are is taken from it: label maps with one id per object are taken as
            foreground, say, if those of the data are.
        objects: whether each id is one object, and those of the data are, too.
    """

    name: str
    cases: Mapping[str, Case]
    label_values: Mapping[int, int]
    dataset: Dataset
    objects: bool = False

    @classmethod
    def found(cls, name: str, folder: Path, dataset: Dataset, *, objects: bool = False) -> Self:
        """Find the label maps of all cases in a folder, in any format of label maps.

        A file belongs to the case whose label map has the same name, whatever its suffix, as in
        the output of nnU-Net; or else to the case of that name, or of an image of that name, as in
        the output of ``caps-med segment`` and MONAI, perhaps with a word such as ``_seg``. Other
        files are ignored.

        Args:
            name: of the predictions.
            folder: where they are, or in folders in it.
            dataset: the cases.
            objects: whether the ids in its label maps are those of objects.

        Raises:
            InvalidInput: there is no such folder, or not exactly one label map of each case; or
                one is unreadable.
        """
        if not folder.is_dir():
            raise InvalidInput(f"--predictions {folder}: no such folder")
        files = _Files(folder)
        labels = _unique(case.label for case in dataset.cases)
        images = _unique(case.images[0] for case in dataset.cases)
        cases, missing = [], []
        for case in dataset.cases:
            found = files.of(case, labels, images)
            if found is None:
                missing.append(case)
            else:
                cases.append(replace(case, label=found, segments=()))
        if missing:
            names_of = listed([case.name for case in missing], _LISTED)
            first = missing[0].label
            like = missing[0].name + suffix_of(first.file) if first.objects else first.path.name
            raise InvalidInput(
                f"--predictions {folder}: contains no label map of {names_of}: name each file as "
                f"the label map of its case, such as {like}"
            )
        known = with_segments(
            Cases(
                name, folder, "predictions", tuple(cases), labels=dataset.labels,
                instances=dataset.instances,
            )
        )  # fmt: skip
        try:
            values = label_encoding(known)
            objects = objects and ids_are_objects(known.cases)
        except InvalidInput as error:
            raise InvalidInput(f"--predictions {folder}: {error}") from error
        return cls(name, {case.name: case for case in known.cases}, values, dataset, objects)

    def read(self, case: str, models: Sequence[Model]) -> tuple[MedicalImage, MedicalImage | None]:
        """The label map of a case ``[1, *S]`` with the ids of the models, and that of its objects.

        Args:
            case: its name.
            models: as of `training.evaluation.evaluator.read_matched`.

        Raises:
            InvalidInput: the file is unreadable, does not match the image, or contains an id that
                the models do not know.
        """
        predicted = self.cases[case]
        try:
            _, ids = read_ids(predicted, flat=read_flat(models))
            card = models[0].bundle.card
            values = values_known_to(self.label_values, card.labels)
            label = learned(predicted, ids, values, self.dataset.instances)
            label = matched_label(predicted, label, card)
            return label, ids if self.objects else None
        except InvalidInput as error:
            raise InvalidInput(f"the prediction of {self.name}: {error}") from error


class _Files:
    """The label maps in a folder, by the names that they may stand for."""

    def __init__(self, folder: Path) -> None:
        found, _ = entries(folder)
        self._exact = by_key(found, lambda entry: entry.stem)
        self._loose = by_key(found, lambda entry: without(LABEL_WORDS, entry.stem))

    def of(self, case: Case, labels: Set[_Name], images: Set[_Name]) -> FileRef | None:
        """The label map of a case.

        Args:
            case: of a data set.
            labels, images: names that one label map, or image, of the data set alone has.

        Raises:
            InvalidInput: there are several.
        """
        for known, name, index in self._places(case, labels, images):
            if chosen := _same_suffix(known.get(name, []), case):
                if len(chosen) > 1:
                    several = ", ".join(sorted(entry.path.name for entry in chosen))
                    raise InvalidInput(
                        f"--predictions: {case.name} has several label maps, {several}: keep one"
                    )
                return FileRef(chosen[0].path, index)
        return None

    def _places(
        self, case: Case, labels: Set[_Name], images: Set[_Name]
    ) -> Iterator[tuple[Mapping[str, list[Entry]], str, int | None]]:
        label, image = _name_of(case.label), _name_of(case.images[0])
        if label in labels:
            yield self._exact, *label
        yield self._exact, case.name, None
        yield self._loose, case.name, None
        if image in images:
            yield self._exact, *image
            yield self._loose, *image


def _name_of(file: FileRef) -> _Name:
    return stem_of(file.path), file.index


def _unique(files: Iterable[FileRef]) -> Set[_Name]:
    """The names that one file alone has."""
    return {name for name, count in Counter(map(_name_of, files)).items() if count == 1}


def _same_suffix(found: list[Entry], case: Case) -> list[Entry]:
    """Those in the format of the true label map, if there are any.

    nnU-Net writes probabilities as ``.npz`` beside a label map of the same name.
    """
    suffix = suffix_of(case.label.file)
    alike = [entry for entry in found if entry.path.name.lower().endswith(suffix)]
    return alike if suffix and len(found) > 1 and alike else found
