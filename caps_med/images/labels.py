"""Label maps: valid ids, their match with a model's ids, and display colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from caps_med.errors import InvalidInput, UnknownLabel
from caps_med.images.channels import several_volumes
from caps_med.images.image import Array, MedicalImage
from caps_med.wording import listed

# Background black, then seven colours of Okabe and Ito, "Color Universal Design" (2008), then
# nine of Paul Tol's scheme "muted" (SRON/EPS/TN/09-002): distinct to the colour-blind too.
_COLOURS = bytes.fromhex(
    "e69f00 56b4e9 009e73 f0e442 0072b2 d55e00 cc79a7 "
    "332288 88ccee 44aa99 117733 999933 ddcc77 cc6677 882255 aa4499"
)
_SHOWN_IDS = 10
#: Foreground of masks saved as black and white, in 8 or in 16 bits.
WHITES = frozenset((255, 65535))
#: Label ids may differ so much from whole numbers.
ROUNDING = 1e-3
#: A label map is taken for a photograph if it has more distinct values than the first, and if the
#: share of equal neighbouring pixels is below the second.
PICTURE_VALUES, PICTURE_EQUAL = 16, 0.8


def label_palette(colours: Array | None = None) -> Array:
    """The `[256, 3]` uint8 palette of a label map: id 0 black, then 16 colours, repeated.

    Args:
        colours: `[N, 3]` uint8, a model's own first N colours, background included.
    """
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[1:] = np.resize(np.frombuffer(_COLOURS, dtype=np.uint8), (255, 3))
    if colours is not None:
        palette[: len(colours)] = colours[:256]
    return palette


def label_colors(ids: npt.ArrayLike, palette: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Label ids `[*S]` in the colours of a palette, `[*S, 3]`.

    Ids above 255 start again with the colour of 1: only the background, 0, is black.

    >>> label_colors([0, 1, 255, 256]).tolist()
    [[0, 0, 0], [230, 159, 0], [136, 34, 85], [230, 159, 0]]

    Args:
        ids: 0 and above.
        palette: `[256, 3]`; None uses `label_palette`.
    """
    shown = np.asarray(ids).astype(np.int64)
    shown = np.where(shown > 255, 1 + (shown - 1) % 255, shown)
    return np.asarray((label_palette() if palette is None else palette)[shown], np.uint8)


def smallest_unsigned(ids: Array) -> Array:
    """`ids` in the smallest unsigned dtype that holds them.

    Files with scaled numbers may give 2.0000001 for 2, which is read as 2.

    Raises:
        InvalidInput: an id is negative, or further than `ROUNDING` from a whole number.
    """
    if ids.dtype.kind == "f":
        whole = np.rint(ids)
        if not np.allclose(ids, whole, rtol=0, atol=ROUNDING):
            raise InvalidInput(
                "label ids must be whole numbers: this looks like an image, or like labels that "
                "were resampled by interpolation (take the nearest neighbour)"
            )
        ids = whole
    if ids.min() < 0:
        raise InvalidInput(f"label ids must not be negative, the smallest is {ids.min()}")
    largest = int(ids.max())  # half floats hold no bound of integers
    if largest > np.iinfo(np.uint32).max:
        raise InvalidInput(f"label ids must be below 2**32, the largest is {ids.max()}")
    return ids.astype(np.min_scalar_type(largest))


def as_labels(image: MedicalImage) -> MedicalImage:
    """A decoded image `[C, *S]` as a label map `[1, *S]`.

    Three equal channels of a picture count as one, and integral floats as integers.

    Raises:
        SeveralVolumes: a volume with channels.
        InvalidInput: the colours of a picture differ, or the values are not valid ids.
    """
    array = image.array
    if image.spatial_dims == 3 and len(array) > 1:
        raise several_volumes(image, "a label map is one volume of ids")
    if not (array == array[:1]).all():
        raise InvalidInput(
            "a colour picture is not a label map: save the ids as grey values or palette indices"
        )
    return image.with_array(smallest_unsigned(array[:1]), kind="labels")


def match_labels(
    image: MedicalImage,
    allowed_ids: Iterable[int],
    *,
    binary: bool = False,
    aliases: Mapping[int, int] | None = None,
) -> MedicalImage:
    """The label map, if the model knows all of its labels.

    Args:
        image: a label map. If both it (like a DICOM SEG) and `allowed_ids` have names, labels are
            matched by name and renumbered.
        allowed_ids: the ids that the model knows, background included, or id -> name.
        binary: the model knows only 0 and 1; a map of 0 and 255, or 65535 as in 16-bit masks, is
            then read as 0 and 1.
        aliases: further id -> the known id as which it is read.

    Raises:
        UnknownLabel: the map holds an unknown id, or both known and unknown names.
    """
    if image.names and isinstance(allowed_ids, Mapping):
        image = _by_name(image, allowed_ids)
    known = sorted(set(allowed_ids))
    if binary and len(white := set(np.unique(image.array).tolist()) - {0}) == 1 and white <= WHITES:
        image = image.with_array((image.array > 0).astype(np.uint8))
    if aliases:
        image = image.with_array(_replaced(image.array, aliases))
    unknown = np.setdiff1d(image.array, known)
    if unknown.size:
        shown = listed([str(label) for label in unknown], _SHOWN_IDS)
        fix = "renumber the map"
        if what := like_a_picture(image, len(np.unique(image.array))):
            fix = f"it {what}: give the label map of the image, not the image"
        raise UnknownLabel(
            f"the label map holds the ids {shown}; the model knows {', '.join(map(str, known))}: "
            f"{fix}"
        )
    return image


def like_a_picture(label: MedicalImage, values: int) -> str:
    """What is wrong with a label map that is really an image; empty if it is a label map.

    Args:
        values: its number of distinct values.
    """
    if values <= PICTURE_VALUES or _equal_neighbours(label) >= PICTURE_EQUAL:
        return ""
    return f"has {values} distinct values that vary like those of a photograph"


def _equal_neighbours(label: MedicalImage) -> float:
    """The share of pixels that equal the next one along the longest axis."""
    along = np.moveaxis(label.array, int(np.argmax(label.array.shape)), 0)
    return float((along[1:] == along[:-1]).mean())


def _replaced(ids: Array, aliases: Mapping[int, int]) -> Array:
    """Ids with aliases replaced by the known ids, in the smallest type."""
    found, where = np.unique(ids, return_inverse=True)
    own = np.array([aliases.get(i, i) for i in found.tolist()])
    return smallest_unsigned(own[where.reshape(ids.shape)])


def same_name(name: str) -> str:
    """A form that is the same for label names that differ in case, gaps, or grey and gray."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split()).replace(
        "grey", "gray"
    )


def _by_name(image: MedicalImage, known: Mapping[int, str]) -> MedicalImage:
    """The label map renumbered with the ids that its label names have in `known`.

    If no name is known, the ids are used, and a warning says so.

    Raises:
        UnknownLabel: some of the names are known and some are not.
    """
    found = [int(i) for i in np.unique(image.array) if i]
    if max(found, default=0) > np.iinfo(np.uint16).max:
        return image  # no such id is a model's
    ids = {same_name(name): i for i, name in known.items()}
    names = {i: image.names.get(i, f"label {i}") for i in found}
    matched = {i: ids[same_name(name)] for i, name in names.items() if same_name(name) in ids}
    unknown = [name for i, name in names.items() if i not in matched]
    listed = ", ".join(known.values())
    if unknown and matched:
        raise UnknownLabel(
            f"the label map holds {', '.join(unknown[:_SHOWN_IDS])}; the model knows {listed}: "
            "rename or remove these labels"
        )
    if unknown:
        note = (
            f"none of the labels {', '.join(unknown[:_SHOWN_IDS])} has a name that the model knows "
            f"({listed}): they were matched by their ids"
        )
        return replace(image, warnings=(*image.warnings, note))
    if all(i == j for i, j in matched.items()):
        return image
    moved = np.zeros(max(found, default=0) + 1, np.uint16)
    moved[list(matched)] = list(matched.values())
    codes = {j: image.codes[i] for i, j in matched.items() if i in image.codes}
    return replace(
        image,
        array=smallest_unsigned(moved[image.array]),
        names={j: known[j] for j in matched.values()},
        codes=codes,
        palette=None,
    )
