"""Axial slices of the MNI152 template with tissue labels, from the package nilearn (no download).

Fonov et al. 2009/2011, ICBM 2009a nonlinear symmetric, 1 mm: the average of 152 heads, and
therefore smoother than a single scan. The grey and white matter maps are probabilities.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caps_med.extras import require_extra
from caps_med.images import MedicalImage, Normalization, SliceStack
from training.data.samples import Sample, Source, hold_out

LABELS = {0: "background", 1: "cerebrospinal fluid", 2: "grey matter", 3: "white matter"}
COLORS = {0: (0, 0, 0), 1: (86, 180, 233), 2: (230, 159, 0), 3: (240, 228, 196)}
#: For a skull-stripped head: zero stays zero, the 99th percentile of the foreground becomes 1.
NORMALIZATION = Normalization(lower=None, upper=99.0, foreground_only=True)
DESCRIPTION = (
    "MNI152 (ICBM 2009a nonlinear symmetric) T1 template, 1 mm, with its grey and white matter "
    "maps, as shipped in the Python package nilearn. Copyright (C) 1993-2004 Louis Collins, "
    "McConnell Brain Imaging Centre, Montreal Neurological Institute, McGill University: may be "
    "used, copied, modified and distributed with this notice. Every fifth axial slice held out."
)


def load_mni152() -> Source:
    """Load the axial slices of the template that contain brain, every fifth held out.

    Raises:
        MissingExtra: nilearn is not installed.
    """
    image, tissue = template_volumes()
    slices = np.flatnonzero(tissue[1:].any(axis=(0, 2, 3)))
    stack = NORMALIZATION.apply(image)
    samples = [_sample(stack[z], tissue[:, z]) for z in slices]
    groups = [f"slice {z}" for z in slices]
    return Source(
        name="mni152",
        samples=samples,
        groups=groups,
        held_out=hold_out(groups),
        labels=LABELS,
        plane="axial",
        spacing_mm=(1.0, 1.0),
        slice_mm=1.0,
        normalization=NORMALIZATION,
        description=DESCRIPTION,
        colors=COLORS,
        places=[("template", int(z)) for z in slices],
    )


def _sample(image: NDArray[np.float32], tissue: NDArray[np.float32]) -> Sample:
    label = tissue.argmax(0).astype(np.uint8)
    return {"image": image[None], "label": label[None], "tissue": tissue}


class Template(NamedTuple):
    """The T1 template ``[D, H, W]`` and the probability of each label ``[4, D, H, W]``."""

    image: NDArray[np.float32]
    tissue: NDArray[np.float32]


def template_volumes() -> Template:
    """Load the template in axial display orientation, zero outside the brain mask.

    Raises:
        MissingExtra: nilearn is not installed.
    """
    require_extra("data", "--data mni152")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nilearn import datasets
    template = _slices(datasets.load_mni152_template(resolution=1))
    grey = _slices(datasets.load_mni152_gm_template(resolution=1))
    white = _slices(datasets.load_mni152_wm_template(resolution=1))
    brain = _slices(datasets.load_mni152_brain_mask(resolution=1)) > 0
    fluid = np.clip(1 - grey - white, 0, 1)
    tissue = np.stack([np.zeros_like(fluid), fluid, grey, white]) * brain
    tissue[0] = ~brain
    return Template(template * brain, tissue)


def _slices(nifti: Any) -> NDArray[np.float32]:  # noqa: ANN401 - nibabel has no types
    values = np.asarray(nifti.dataobj, dtype=np.float32)
    image = MedicalImage(array=values[None], affine=nifti.affine, format="nifti")
    return np.ascontiguousarray(SliceStack.from_image(image, "axial").array[:, 0])
