"""Label maps of a project: as they are kept, and what may become one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from api.projects.records import Image, Project
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, encode_image, label_palette, match_labels
from caps_med.images.labels import WHITES
from caps_med.images.placing import in_order_of, on_one_grid, placed_on
from caps_med.images.slices import SliceStack, slice_count


@dataclass(frozen=True)
class KeptLabels:
    """A label map as it is kept.

    Attributes:
        array: ids ``[*S]``.
        content, format: the file.
        ids: the label ids that occur.
    """

    array: NDArray[np.integer]
    content: bytes
    format: str
    ids: tuple[int, ...]

    @property
    def sha256(self) -> str:
        """The hash of the file."""
        return hashlib.sha256(self.content).hexdigest()


def format_of(image: Image) -> str:
    """The format of an image's label maps: PNG of a picture, NIfTI of a volume."""
    return "png" if image.is_picture else "nifti"


def kept(labels: MedicalImage, image: Image) -> KeptLabels:
    """A label map that fits its image, in the form in which it is kept."""
    array, affine, form = labels.array, image.geometry, format_of(image)
    given = np.eye(4) if affine is None else affine
    colours = label_palette()
    described = replace(labels, affine=given, format=form, palette=colours, origin=None)
    ids = tuple(int(label) for label in np.unique(array))
    return KeptLabels(array[0], encode_image(described, form), form, ids)


def fitted(labels: MedicalImage, image: Image, project: Project) -> MedicalImage:
    """An uploaded label map, if it lies on the image's grid and its ids are known.

    Its axes may run the other way. A segmentation that names its labels (DICOM SEG, NRRD of Slicer)
    may leave out what has none.

    Raises:
        InvalidInput: it has another size or affine.
        UnknownLabel: it holds an id that the project does not know.
    """
    if image.is_picture and labels.spatial_dims == 3 and slice_count(labels) == 1:
        picture = SliceStack.from_image(labels).array[0]  # a picture as NIfTI keeps it
        labels = replace(labels, array=picture, affine=np.eye(4), origin=None)
    affine = image.geometry
    if affine is not None:
        nothing = np.broadcast_to(np.uint8(0), (1, *image.shape))
        grid = MedicalImage(nothing, affine, kind="labels")
        labels = placed_on(labels, grid) if labels.names else in_order_of(grid, labels)
    shape = labels.spatial_shape
    if shape != image.shape:
        raise InvalidInput(
            f"the label map has the size {shape}, but its image {image.shape}: resample it to the "
            "image's voxels first"
        )
    if affine is not None and not on_one_grid(labels.affine, affine):
        raise InvalidInput(
            "the label map and its image have different affines: resample the label map; copy the "
            "image's header only if their voxels show the same places, whatever the headers say"
        )
    binary = set(project.labels) == {0, 1} and project.ignore_label not in WHITES
    return match_labels(labels, project.ids, binary=binary)


def changed_share(
    before: NDArray[np.integer], after: NDArray[np.integer], ignored: int | None = None
) -> float:
    """Share of the voxels that are labelled in both maps whose label differs; 0 if there are none.

    >>> changed_share(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2]))
    0.25
    >>> changed_share(np.array([0, 1, 1, 2]), np.array([9, 1, 2, 9]), ignored=9)
    0.5

    Args:
        ignored: id of what is not labelled.
    """
    if ignored is None:
        return float(np.mean(before != after))
    labelled = (before != ignored) & (after != ignored)
    return float(np.mean(before[labelled] != after[labelled])) if labelled.any() else 0.0
