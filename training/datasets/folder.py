"""A data set of one's own as training and validation slices in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, Normalization, SliceStack
from training.datasets.reading import open_cases, read_case
from training.datasets.source import Sample, Source, hold_out

#: Spacings of two volumes may differ by this share and still count as one.
SPACING_TOLERANCE = 0.01
NORMALIZATION = Normalization(lower=0.5, upper=99.5)


def load_folder(folder: Path) -> Source:
    """Labelled pictures, or the axial slices of labelled volumes, that hold a label.

    Layouts are those of `training.datasets.layouts`. Every fifth file is held out for validation
    (the last of fewer than five); of a single volume every fifth slice.

    Raises:
        InvalidInput: a folder or file is missing, unreadable, unpaired or without its counterpart's
            geometry, or the files do not belong together; the message names the file and the fix.
    """
    data = open_cases(folder)
    pairs = [read_case(case, data) for case in data.cases]
    ids = sorted({0}.union(*(np.unique(label.array).tolist() for _, label in pairs)))
    if len(ids) == 1:
        raise InvalidInput(f"{folder}: every label map is empty (all 0)")
    _check_alike([image for image, _ in pairs])
    cases = [_samples(image, label, ids) for image, label in pairs]
    training, validation = _split(cases)
    if not training or not validation:
        raise InvalidInput(f"{folder}: too few labelled slices to hold some out; add images")
    first = pairs[0][0]
    volumes = first.spatial_dims == 3
    return Source(
        name=data.name,
        training=training,
        validation=validation,
        labels={i: data.labels.get(i, f"label {i}" if i else "background") for i in ids},
        plane="axial" if volumes else None,
        spacing_mm=SliceStack.from_image(first).spacing,
        normalization=NORMALIZATION,
        description=f"{len(pairs)} labelled {'volumes' if volumes else 'pictures'} of {data.name}",
    )


def _check_alike(images: Sequence[MedicalImage]) -> None:
    first = images[0]
    for image in images[1:]:
        if image.array.shape[0] != first.array.shape[0]:
            raise InvalidInput("some images are grey and some are in colour: convert them to one")
        if image.spatial_dims != first.spatial_dims:
            raise InvalidInput("some images are pictures and some are volumes: train on one kind")
        spacing, other = SliceStack.from_image(first).spacing, SliceStack.from_image(image).spacing
        if spacing and other and not np.allclose(spacing, other, rtol=SPACING_TOLERANCE):
            raise InvalidInput(
                f"slices have spacings {spacing} and {other} mm: resample the volumes to one"
            )


def _samples(image: MedicalImage, label: MedicalImage, ids: Sequence[int]) -> list[Sample]:
    """The labelled slices of one case, all intensities on the case's own scale."""
    pixels = SliceStack.from_image(image).array
    classes = np.searchsorted(ids, SliceStack.from_image(label).array).astype(np.uint8)
    scaled = NORMALIZATION.apply(pixels)
    kept = [z for z in range(len(classes)) if classes[z].any()]
    return [{"image": scaled[z], "label": classes[z]} for z in kept]


def _split(cases: Sequence[list[Sample]]) -> tuple[list[Sample], list[Sample]]:
    """Cases never stand on both sides, unless there is only one."""
    if len(cases) == 1:
        return hold_out(cases[0])
    training, validation = hold_out(cases) if len(cases) >= 5 else (cases[:-1], cases[-1:])
    return [s for case in training for s in case], [s for case in validation for s in case]
