"""Labelled images are prepared on disk, so that memory does not grow with the data.

Every case is read once, preprocessed as at inference, and written as plain arrays, from which
samples are read when they are drawn. The system's file cache keeps what is drawn often.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import model_validator

from caps_med.disk import writing
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, SliceStack, is_grey, with_channels
from caps_med.images.channels import is_colour
from caps_med.preprocessing import Preprocessing, with_neighbours
from caps_med.wording import counted
from training.atomic import refilled, write_text
from training.data.cases import Case, given_folds
from training.data.dataset import Dataset
from training.data.reading import unlabelled
from training.data.samples import (
    HELD_OUT,
    UNLABELLED,
    Sample,
    Source,
    hold_out,
    validation_part,
)
from training.progress import PREPARING, tracked

#: Says how the cases were prepared, once all are.
_MANIFEST = "manifest.json"
#: Names of the channels of colour pictures, in nnU-Net's descriptions.
_COLOURS = (("r", "g", "b"), ("red", "green", "blue"))


#: A sample's classes, background included, are numbers of 8 bits.
MAX_CLASSES = 256
#: In place of a label id in prepared label maps: what is not labelled.
_NO_ID = 2**16 - 1


class Preparation(Preprocessing):
    """How a folder's images become samples.

    Attributes:
        spacing_mm: None takes the first volume's.
        spatial_dims: 2 for slices, 3 for whole volumes.
    """

    spatial_dims: Literal[2, 3] = 2

    @model_validator(mode="after")
    def _volumes_have_no_neighbours(self) -> Self:
        if self.spatial_dims == 3 and self.neighbours:
            raise ValueError(
                f"neighbours={self.neighbours}: slices have neighbours, whole volumes "
                "(spatial_dims=3, --dims 3d) have none"
            )
        return self


class _Entry(NamedTuple):
    """A sample's case (file and name), slice (None: a volume), columns (None: all), and whether it
    is a picture or volume without labels.
    """

    case: str
    name: str
    slice: int | None
    columns: tuple[int, int] | None = None
    empty: bool = False


def load_source(
    dataset: Dataset,
    store: Path,
    preparation: Preparation | None = None,
) -> Source:
    """Pictures, the labelled slices of volumes, or volumes, as a `Source`.

    The validation part of the data is held out. Where they have none, every fifth group of cases is
    (the last of fewer than five), and every fifth of pictures and whole volumes whose label map is
    empty; of a single volume every fifth slice, of a single picture the right fifth.

    Args:
        dataset: files, or a registered data set, which has a preparation of its own and needs no
            store.
        store: folder of the prepared arrays; reused if they were prepared from the same files in
            the same way.
        preparation: how to prepare them.

    Raises:
        InvalidInput: a file is missing, unreadable, unpaired or without its counterpart's
            geometry, or the files do not belong together; the message names the file and the fix.
        InvalidParameter: there is a preparation for a registered data set.
    """
    if dataset.load is not None:
        if preparation is not None:
            raise InvalidParameter(
                f"preparation: {dataset.name} has its own; leave out all preparation values, also "
                "in a recipe file"
            )
        return dataset.load()
    dataset.require_complete()
    preparation = preparation or Preparation()
    made_of = {
        "preparation": preparation.model_dump(mode="json"),
        "files": dataset.fingerprint(),
        "label_values": [list(pair) for pair in dataset.label_values.items()],
        **({"instances": dataset.instances} if dataset.instances else {}),
        **({} if dataset.ignored is None else {"ignored": dataset.ignored}),
    }
    manifest = _manifest(store)
    if manifest is None or manifest["made_of"] != made_of:
        manifest = _write(dataset, store, preparation, made_of)
    dataset = _grouped_as_prepared(dataset, manifest["cases"])
    partly = manifest.get("partly_labelled", False)
    ids = _checked(manifest["ids"], dataset, MAX_CLASSES - partly)
    entries, groups = _entries(manifest["cases"], preparation)
    empty = _without_labels(entries, groups)
    if len(set(groups) - set(empty)) < 2:
        kind = "slices" if preparation.spatial_dims == 2 else "volumes"
        raise InvalidInput(f"{dataset.root}: too few labelled {kind} to hold some out; add images")
    volumes = manifest["volumes"]
    samples = StoredSamples(store, entries, ids, preparation.neighbours, partly)
    return Source(
        name=dataset.name,
        samples=samples,
        groups=groups,
        held_out=_held_out(dataset, groups, empty),
        labels={i: dataset.labels.get(i, f"label {i}" if i else "background") for i in ids},
        plane=preparation.plane if volumes else None,
        spacing_mm=tuple(manifest["spacing_mm"]) if manifest["spacing_mm"] else None,
        slice_mm=preparation.slice_mm or manifest.get("slice_mm"),
        resample_slices=preparation.slice_mm is not None,
        normalization=preparation.normalization,
        description=(
            f"{counted(len(dataset.cases), 'labelled volume' if volumes else 'labelled picture')} "
            f"of {dataset.name}"
        ),
        spatial_dims=preparation.spatial_dims,
        neighbours=preparation.neighbours,
        channel_names=_channel_names(dataset, samples.image_channels),
        instances=dataset.instances,
        places=[(entry.case, entry.slice) for entry in entries if entry.slice is not None],
        unlabelled=frozenset(empty),
        partly_labelled=partly,
        given_folds=_folds(dataset, groups),
    )


def _grouped_as_prepared(dataset: Dataset, prepared: Sequence[dict[str, Any]]) -> Dataset:
    """The data with the groups that they had when they were prepared: a run keeps its split."""
    groups = {case["name"]: case["group"] for case in prepared}
    cases = (replace(case, group=groups.get(case.name, case.group)) for case in dataset.cases)
    return replace(dataset, cases=tuple(cases))


def _without_labels(entries: Sequence[_Entry], groups: Sequence[str]) -> list[str]:
    """The groups that are pictures or volumes without labels alone."""
    labelled = {group for entry, group in zip(entries, groups, strict=True) if not entry.empty}
    return [group for group in dict.fromkeys(groups) if group not in labelled]


def _held_out(dataset: Dataset, groups: Sequence[str], empty: Sequence[str]) -> frozenset[str]:
    """The groups of the data's validation part, unless nothing or nothing else is in it.

    Args:
        empty: those without labels. They are held out apart, so that there are labels to score.
    """
    if given := validation_part(dataset, groups):
        return given
    labelled = [group for group in groups if group not in set(empty)]
    return hold_out(labelled) | frozenset(empty[HELD_OUT // 2 :: HELD_OUT])


def _folds(dataset: Dataset, groups: Sequence[str]) -> tuple[frozenset[str], ...]:
    """See `Source.given_folds`; none of groups that are no cases, such as slices."""
    folds = given_folds((case.grouped, case.folds) for case in dataset.cases)
    return folds if any(fold & set(groups) for fold in folds) else ()


class StoredSamples(Sequence[Sample]):
    """Samples that are read from the prepared arrays one at a time."""

    def __init__(
        self,
        store: Path,
        entries: Sequence[_Entry],
        ids: Sequence[int],
        neighbours: int,
        partly_labelled: bool = False,
    ) -> None:
        self.store, self.entries, self.ids, self.neighbours = store, entries, ids, neighbours
        self.partly_labelled = partly_labelled

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - no slices, which Sequence allows
        entry = self.entries[index]
        # opened for each sample: an open mapping counts as this process's memory
        image = np.load(self.store / f"{entry.case}.image.npy", mmap_mode="r")
        label = np.load(self.store / f"{entry.case}.label.npy", mmap_mode="r")
        if entry.slice is None:
            found, marked = np.moveaxis(image, 0, 1), np.moveaxis(label, 0, 1)
        else:
            found = with_neighbours(image, entry.slice, self.neighbours)
            marked = label[entry.slice]
        start, stop = entry.columns or (0, found.shape[-1])
        marked = marked[..., start:stop]
        classes = np.searchsorted(self.ids, marked).astype(np.uint8)
        if self.partly_labelled:
            classes[marked == _NO_ID] = UNLABELLED
        return {"image": np.array(found[..., start:stop]), "label": classes}

    @property
    def image_channels(self) -> int:
        """Channels of an image, without those of neighbouring slices."""
        file = self.store / f"{self.entries[0].case}.image.npy"
        return int(np.load(file, mmap_mode="r").shape[1])

    def name(self, index: int) -> str:
        """The sample's case and slice."""
        entry = self.entries[index]
        return entry.name if entry.slice is None else f"{entry.name}, slice {entry.slice}"


def _write(
    dataset: Dataset,
    store: Path,
    preparation: Preparation,
    made_of: dict[str, Any],
) -> dict[str, Any]:
    """Prepare every case; the manifest is written last, so that it marks a complete store."""
    with refilled(store, store / _MANIFEST):
        return _filled(dataset, store, preparation, made_of)


def _filled(
    dataset: Dataset, store: Path, preparation: Preparation, made_of: dict[str, Any]
) -> dict[str, Any]:
    ids, found, first = {0}, [], None
    distances, partly = [], False
    for number, case in enumerate(tracked(dataset.cases, PREPARING)):
        image, label, incomplete = _read(dataset, case)
        partly |= incomplete
        if is_colour(image) and is_grey(image) and dataset.grey:
            image = with_channels(image, 1)
        if first is None:
            first = image
            preparation = _with_spacing(preparation, first)
        _check_alike(first, image)
        try:
            prepared = preparation.image(image)
            pixels = prepared.slices.numpy()
            marked = preparation.labels(label).slices.numpy().astype(np.uint16)
        except InvalidInput as error:
            raise InvalidInput(f"{case.images[0]}: {error}") from error
        if prepared.stack.slice_mm is not None:
            distances.append(prepared.stack.slice_mm)
        ids.update(np.unique(label.array).tolist())  # resampling may lose those of few voxels
        if incomplete and (marked == _NO_ID).all():
            continue  # nothing of it can be learned
        shown = marked * (marked != _NO_ID) if incomplete else marked
        labelled = [z for z in range(len(shown)) if shown[z].any()]
        stem = f"{number:05}"
        for kind, array in (("image", pixels), ("label", marked)):
            with writing(file := store / f"{stem}.{kind}.npy"):
                np.save(file, array)
        empty = not labelled and image.spatial_dims == 2
        found.append({"stem": stem, "name": case.name, "group": case.grouped,
                      "labelled": [0] if empty else labelled, "empty": empty,
                      "columns": pixels.shape[-1]})  # fmt: skip
    if first is None:
        raise InvalidInput(f"{dataset.root}: no labelled images")
    manifest = {
        "made_of": made_of,
        "ids": sorted(ids - {_NO_ID} if partly else ids),
        "partly_labelled": partly,
        "cases": found,
        "volumes": first.spatial_dims == 3,
        "spacing_mm": preparation.spacing_mm,
        "slice_mm": statistics.median(distances) if distances else None,
    }
    write_text(store / _MANIFEST, json.dumps(manifest))
    return _manifest(store) or manifest


def _read(dataset: Dataset, case: Case) -> tuple[MedicalImage, MedicalImage, bool]:
    """Image and label map of a case, with `_NO_ID` for what is not labelled; whether there is any.

    Raises:
        InvalidInput: see `load_source`; or a label has that id.
    """
    image, label, ids = dataset.read_with_ids(case)
    if dataset.ignored is not None and (label.array == _NO_ID).any():
        raise InvalidInput(f"{case.label}: holds the label id {_NO_ID}: use a smaller one")
    nothing = unlabelled(ids, dataset.ignored)
    if not nothing.any():
        return image, label, False
    marked = label.array.astype(np.uint16)
    marked[nothing] = _NO_ID
    return image, label.with_array(marked), True


def _checked(ids: list[int], dataset: Dataset, most: int) -> list[int]:
    if ids == [0]:
        raise InvalidInput(f"{dataset.root}: every label map is empty (all 0)")
    if len(ids) > most:
        raise InvalidInput(
            f"{dataset.root}: {len(ids) - 1} different labels, but at most {most - 1} can be "
            "learned: save instances as masks of 0 and 1, or merge labels"
        )
    return ids


def _channel_names(dataset: Dataset, channels: int) -> tuple[str, ...]:
    """The names that the data give their channels, if there are as many and no colours."""
    colours = tuple(name.casefold() for name in dataset.channels) in _COLOURS
    return () if colours or len(dataset.channels) != channels else dataset.channels


def _manifest(store: Path) -> dict[str, Any] | None:
    file = store / _MANIFEST
    if not file.is_file():
        return None
    manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return manifest


def _with_spacing(preparation: Preparation, first: MedicalImage) -> Preparation:
    """The requested spacing, else the first volume's; None for pictures."""
    spacing = SliceStack.from_image(first, preparation.plane).spacing
    if spacing is not None:
        spacing = preparation.spacing_mm or spacing
    return preparation.model_copy(update={"spacing_mm": spacing})


def _check_alike(first: MedicalImage, image: MedicalImage) -> None:
    if image.array.shape[0] != first.array.shape[0]:
        raise InvalidInput(
            "some images are grey and some are in colour: convert all of them to one kind"
        )
    if image.spatial_dims != first.spatial_dims:
        raise InvalidInput("some images are pictures and some are volumes: train on one kind only")


def _entries(
    cases: Sequence[dict[str, Any]], preparation: Preparation
) -> tuple[list[_Entry], list[str]]:
    """The place and group of every sample; pictures and volumes without labels come last.

    Cases of a single group are on their own. Folders that older versions have prepared have no
    pictures without labels.
    """
    kind = "group" if len({c["group"] for c in cases}) > 1 else "name"
    if preparation.spatial_dims == 3:
        ordered = sorted(cases, key=lambda c: not c["labelled"])
        volumes = [_Entry(c["stem"], c["name"], None, empty=not c["labelled"]) for c in ordered]
        return volumes, [c[kind] for c in ordered]
    ordered = sorted(cases, key=lambda c: c.get("empty", False))
    places = [(c, z) for c in ordered for z in c["labelled"]]
    slices = [_Entry(c["stem"], c["name"], z, empty=c.get("empty", False)) for c, z in places]
    if kind == "group" or len({entry.case for entry in slices if not entry.empty}) > 1:
        return slices, [c[kind] for c, _ in places]
    if sum(not entry.empty for entry in slices) == 1:  # one picture
        (case, z), edge = places[0], places[0][0]["columns"]
        cut = edge - max(1, edge // HELD_OUT)
        halves = (0, cut), (cut, edge)
        entries = [_Entry(case["stem"], case["name"], z, part) for part in halves]
        return entries, ["left", "right"]
    return slices, [f"{entry.case} {entry.slice}" for entry in slices]
