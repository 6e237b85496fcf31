"""Sample images.

``t1.nii.gz`` and ``tissue.nii.gz`` are one axial slice of the MNI152 template (ICBM 2009a
nonlinear symmetric, 1 mm), which the built-in models never saw, and its tissue labels.
``colin27.png`` and ``colin27.nii.gz`` are an axial slice (1 mm) and the whole (2 x 2 x 4 mm) of
another head, Colin27. ``axons.png`` and ``axons-labels.png`` are simulated. ``digit.png`` and
``clothing.png`` are test images of MNIST's training images as divided here and of Fashion-MNIST.
``head-labels.nii.gz`` is an axial slice (1 mm) of a head's label map with FreeSurfer's ids.
See ``NOTICE.md`` beside this file, and ``benchmarks/make_samples.py`` for how they were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from caps_med.images import Kind

_FOLDER = Path(__file__).parent
T1 = _FOLDER / "t1.nii.gz"
TISSUE = _FOLDER / "tissue.nii.gz"
COLIN27_SLICE = _FOLDER / "colin27.png"
COLIN27 = _FOLDER / "colin27.nii.gz"
AXONS = _FOLDER / "axons.png"
AXON_LABELS = _FOLDER / "axons-labels.png"
DIGIT = _FOLDER / "digit.png"
CLOTHING = _FOLDER / "clothing.png"
HEAD_LABELS = _FOLDER / "head-labels.nii.gz"


@dataclass(frozen=True)
class Sample:
    """A file, the kind of its values, and its description for users.

    Attributes:
        model: the built-in model that it suits.
        image_of: for labels, the name of the image.
    """

    path: Path
    kind: Kind
    title: str
    description: str
    model: str
    image_of: str | None = None


#: All of them, by name.
SAMPLES: Mapping[str, Sample] = {
    "t1": Sample(
        T1,
        "image",
        "T1 slice",
        "MNI152 template, NIfTI, 1 mm; held out from training",
        "brain-t1-tissue",
    ),
    "colin27-slice": Sample(
        COLIN27_SLICE, "image", "Another head", "Colin27, a PNG without geometry", "brain-t1-tissue"
    ),
    "colin27": Sample(
        COLIN27,
        "image",
        "T1 volume",
        "Colin27 as a whole, NIfTI, 2 x 2 x 4 mm",
        "brain-t1-tissue",
    ),
    "axons": Sample(
        AXONS, "image", "Axons", "Two-photon microscopy, simulated, PNG", "axon-segmentation"
    ),
    "digit": Sample(DIGIT, "image", "Handwritten digit", "MNIST, PNG, 28 x 28 pixels", "digits"),
    "clothing": Sample(
        CLOTHING, "image", "Clothing", "Fashion-MNIST, PNG, 28 x 28 pixels", "fashion"
    ),
    "brain-slice": Sample(
        COLIN27_SLICE, "image", "Slice of a head", "Colin27, PNG, axial", "brain-slices"
    ),
    "tissue": Sample(
        TISSUE,
        "labels",
        "Tissue labels",
        "Of the T1 slice, by the template",
        "brain-t1-synthesis",
        "t1",
    ),
    "axon-labels": Sample(
        AXON_LABELS, "labels", "Axon labels", "Of the simulated axons", "axon-synthesis", "axons"
    ),
    "head-labels": Sample(
        HEAD_LABELS,
        "labels",
        "Labels of a head",
        "FreeSurfer's ids, one axial slice, NIfTI, 1 mm",
        "brain-synthesis",
    ),
}
