"""From an image to a network's input, and back: the same code for training and serving.

An image is cut into the slices of one plane, its intensities are normalized, its slices are
resampled to the network's spacing (for 3-D networks also across the slices), and each may be
joined by its neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator

from caps_med.errors import InvalidInput
from caps_med.images import (
    Limits,
    MedicalImage,
    Normalization,
    Plane,
    SliceStack,
    chosen_slice,
    slice_count,
    to_uint8,
    with_channels,
)
from caps_med.images.channels import is_plain_volume

if TYPE_CHECKING:
    from torch import Tensor

#: Spacings that differ by less than this share count as equal.
SPACING_TOLERANCE = 0.01
#: Pixels over this many times the network's show nothing that it knows: the header must be wrong.
LARGEST_ENLARGEMENT = 10
#: Slices that are interpolated at once between those of a network's answer.
RESTORED_SLICES = 16
#: Slices that resampling leaves fewer pixels along both edges show nothing, either.
SMALLEST = 8

Millimetres = Annotated[FiniteFloat, Field(gt=0)]


class Preprocessing(BaseModel):
    """How an image becomes the input of a network.

    Attributes:
        normalization: of the intensities, over the image or volume as a whole.
        plane: the plane in which volumes are cut into slices.
        spacing_mm: (row, column) spacing to which the slices of volumes are resampled; None for a
            network of pictures.
        slice_mm: slice distance to which volumes are resampled, for a 3-D network; None keeps the
            existing slices.
        neighbours: slices on each side that become channels of a slice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    normalization: Normalization = Normalization()
    plane: Plane = "axial"
    spacing_mm: tuple[Millimetres, Millimetres] | None = None
    slice_mm: Millimetres | None = None
    neighbours: Annotated[int, Field(ge=0, le=8)] = 0

    def __str__(self) -> str:
        """A description in one line, for the provenance of an answer."""
        lengths = (*(self.spacing_mm or ()), *([self.slice_mm] if self.slice_mm else []))
        spacing = "x".join(f"{mm:g}" for mm in lengths)
        return (
            f"intensity {self.normalization}; plane {self.plane}; "
            f"{spacing + ' mm' if spacing else 'any'}"
        )

    def image(self, image: MedicalImage, limits: Limits | None = None) -> PreparedSlices:
        """The slices of an image, normalized, at the network's spacing; without neighbours.

        Args:
            image: `[C, *S]`.
            limits: bounds on the size at the network's spacing; None for no bounds.

        Raises:
            InvalidInput: the voxels are over `LARGEST_ENLARGEMENT` times as large as the network's.
            InputTooLarge: at the network's spacing the image is over `limits`.
        """
        import torch

        stack = self._stack(image)
        normalization = self.normalization.for_white(image.white)
        normalized = np.ascontiguousarray(normalization.apply(stack.array, channel_axis=1))
        return PreparedSlices(
            stack, resampled(torch.from_numpy(normalized), self._size(stack, limits))
        )

    def network_input(self, image: MedicalImage, limits: Limits | None = None) -> PreparedSlices:
        """Like `image`, each slice with its neighbours: `[D, (2 neighbours + 1) C, *size]`."""
        prepared = self.image(image, limits)
        if not self.neighbours:
            return prepared
        import torch

        slices, beside = prepared.slices, self.neighbours
        ends = [end.expand(beside, -1, -1, -1) for end in (slices[:1], slices[-1:])]
        continued = torch.cat([ends[0], slices, ends[1]])
        joined = continued.unfold(0, 2 * beside + 1, 1).movedim(-1, 1)  # [D, N, C, rows, columns]
        return replace(prepared, slices=joined.flatten(1, 2))  # a view of `continued`

    def labels(self, labels: MedicalImage, limits: Limits | None = None) -> PreparedSlices:
        """The slices of a label map at the network's spacing, with its ids as floats.

        Args and raises: as for `image`.
        """
        import torch

        stack = self._stack(labels)
        ids = torch.from_numpy(stack.array.astype(np.float32, order="C"))
        return PreparedSlices(stack, resampled(ids, self._size(stack, limits), labels=True))

    def grid(self, image: MedicalImage) -> tuple[int, int, int]:
        """(slices, rows, columns) at the network's spacing, without computing the image.

        Raises:
            InvalidInput: as for `image`.
        """
        stack = self._stack(image)
        depth, _, rows, columns = stack.array.shape
        return self._resampled((depth, rows, columns), stack.lengths)

    def slice_index(self, image: MedicalImage, number: int | None) -> int:
        """The network's slice at the position of the image's slice `number`; None for the middle.

        Raises:
            InvalidParameter: there is no such slice. InvalidInput: as for `image`.
        """
        depth = len(self._stack(image).array)
        return chosen_slice(depth, number) * self.grid(image)[0] // depth

    def _stack(self, image: MedicalImage) -> SliceStack:
        """The slices; for a network of pictures, a volume of one slice is a picture."""
        single = None if self.spacing_mm else single_slice(image)
        return single or SliceStack.from_image(image, self.plane, copy=False)

    def _size(self, stack: SliceStack, limits: Limits | None) -> tuple[int, int, int]:
        """Slices, rows and columns at the network's spacing, if within `limits`."""
        depth, _, rows, columns = stack.array.shape
        size = self._resampled((depth, rows, columns), stack.lengths)
        if limits is not None and size != (depth, rows, columns):
            limits.check_array(size)
        return size

    def _resampled(
        self, size: tuple[int, int, int], lengths: tuple[float, float, float] | None
    ) -> tuple[int, int, int]:
        """Slices, rows, columns of a volume with voxels of `lengths`, at the network's spacing."""
        if lengths is None or self.spacing_mm is None:
            return size
        between, *plane = lengths
        wanted = (self.slice_mm or between, *self.spacing_mm)
        scale = [have / want for have, want in zip(lengths, wanted, strict=True)]
        if max(scale) > LARGEST_ENLARGEMENT:
            known = wanted if self.slice_mm else self.spacing_mm
            raise InvalidInput(
                f"the {'voxels' if self.slice_mm else 'pixels'} are "
                f"{_mm(lengths if self.slice_mm else plane)}, over {LARGEST_ENLARGEMENT} times the "
                f"{_mm(known)} of the training data: check the spacing in the file's header"
            )
        depth, rows, columns = size
        if not _alike(scale[:1]):
            depth = max(1, round(depth * scale[0]))
        if not _alike(scale[1:]):
            rows, columns = (max(1, round(n * s)) for n, s in zip(size[1:], scale[1:], strict=True))
        if max(rows, columns) < SMALLEST and min(scale[1:]) < 1 / LARGEST_ENLARGEMENT:
            raise InvalidInput(
                f"the pixels are {_mm(plane)}, so that a slice has {rows} x {columns} at the "
                f"{_mm(self.spacing_mm)} of the training data: check the spacing in the file's "
                "header"
            )
        return depth, rows, columns


def _alike(scale: Sequence[float]) -> bool:
    return all(abs(s - 1) < SPACING_TOLERANCE for s in scale)


#: How many times as long as what cropping leaves a picture is before it is enlarged, at most.
_LONGEST = 16

#: How a picture of another shape becomes the network's: see `PicturePreprocessing`.
Fit = Literal["pad", "crop", "stretch"]
Edge = Annotated[int, Field(ge=1, le=1024)]


class PicturePreprocessing(BaseModel):
    """How a picture, or one slice of a volume, becomes the input of a classification network.

    Attributes:
        size: rows and columns of the network's input.
        channels: 1 (grey), 3 (RGB), or the number of channels of other images.
        fit: how pictures with other proportions are fitted. ``"pad"`` scales the longer edge to
            `size` and adds zeros on both sides, ``"crop"`` scales the shorter one and cuts both
            sides, ``"stretch"`` scales each edge separately.
        normalization: of the intensities, over the image or volume as a whole.
        plane: the plane in which volumes are cut into slices.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: tuple[Edge, Edge] = (28, 28)
    channels: Annotated[int, Field(ge=1, le=64)] = 1
    fit: Fit = "pad"
    normalization: Normalization = Normalization()
    plane: Plane = "axial"

    @field_validator("normalization")
    @classmethod
    def _has_levels(cls, normalization: Normalization) -> Normalization:
        if normalization.ranks:
            raise ValueError("ranks are only for segmentation: choose percentiles or a window")
        return normalization

    def __str__(self) -> str:
        """A description in one line, for the provenance of an answer."""
        rows, columns = self.size
        kind = {1: "grey", 3: "RGB"}.get(self.channels, f"{self.channels} channels")
        return f"intensity {self.normalization}; {kind} {rows}x{columns} pixels, {self.fit}"

    def __call__(self, image: MedicalImage, slice: int | None = None) -> NDArray[np.uint8]:
        """The picture as stored for training: `[channels, *size]`, with 255 for 1.

        Args:
            image: a picture or volume; grey and colour are converted into one another.
            slice: slice of a volume, counted along `plane`; None for the middle one.

        Raises:
            InvalidInput: the number of channels does not match.
            InvalidParameter: there is no such slice.
        """
        image = with_channels(image, self.channels)
        stack = single_slice(image) or SliceStack.from_image(image, self.plane)
        picture = np.ascontiguousarray(stack.array[chosen_slice(len(stack.array), slice)])
        normalization = self.normalization.for_white(image.white)
        eight_bits = picture.dtype == np.uint8 and normalization.window == (0.0, 255.0)
        if picture.shape[1:] == self.size and eight_bits:
            return picture
        import torch

        scaled = torch.from_numpy(_on_scale_of(image.array, picture, normalization))[None]
        return to_uint8(_fitted(scaled, self.size, self.fit)[0].numpy())


def _on_scale_of(
    whole: NDArray[Any], picture: NDArray[Any], normalization: Normalization
) -> NDArray[np.float32]:
    """One slice `[C, H, W]` on the scale of its whole image `[C, *S]`, in [0, 1]."""
    if normalization.per_channel:
        shared = normalization.model_copy(update={"per_channel": False})
        pairs = zip(whole, picture, strict=True)
        return np.stack([_on_scale_of(one, part, shared) for one, part in pairs])
    levels = normalization.levels(whole)
    if not levels[1] > levels[0]:
        return np.zeros(picture.shape, np.float32)
    scaled = Normalization(window=levels).apply(picture)
    if normalization.foreground_only:
        scaled[picture <= 0] = 0
    return scaled


def unit_pictures(pictures: Tensor) -> Tensor:
    """Stored pictures (uint8) as input of a network: float32 in [0, 1]."""
    return pictures.float() / 255


def _fitted(picture: Tensor, size: tuple[int, int], fit: Fit) -> Tensor:
    """`[1, C, H, W]` at `size`."""
    if fit == "stretch":
        return resize(picture, size)
    ratios = [want / have for want, have in zip(size, picture.shape[2:], strict=True)]
    ratio = min(ratios) if fit == "pad" else max(ratios)
    if fit == "crop":
        picture = _middle(picture, [math.ceil(_LONGEST * edge / ratio) for edge in size])
    rows, columns = (max(1, round(edge * ratio)) for edge in picture.shape[2:])
    resized = resize(picture, (rows, columns))
    missing_rows, missing_columns = size[0] - rows, size[1] - columns
    top, left = missing_rows // 2, missing_columns // 2
    from torch.nn.functional import pad

    # negative padding cuts
    return pad(resized, (left, missing_columns - left, top, missing_rows - top))


def _middle(picture: Tensor, size: Sequence[int]) -> Tensor:
    """The middle of `[1, C, H, W]`, of about `size` pixels where it has more.

    The other pixels of a picture such as 1 x 65535 are not shown, but would take a gigabyte.
    """
    for axis, most in enumerate(size, start=2):
        cut = max(0, picture.shape[axis] - most) // 2
        picture = picture.narrow(axis, cut, picture.shape[axis] - 2 * cut)
    return picture


@dataclass(frozen=True, eq=False)
class PreparedSlices:
    """The slices of one image as input of a network, and the way back to its voxels.

    Attributes:
        stack: the original slices, `[D, C, H, W]`.
        slices: `[D, C, rows, columns]` at the network's spacing; for a 3-D network there may be
            more or fewer than in `stack`.
    """

    stack: SliceStack
    slices: Tensor

    def restore(self, maps: Tensor) -> NDArray[np.float32]:
        """Resample maps `[D, K, rows, columns]` to the image's own voxels, `[K, *S]`."""
        return self.restore_parts([maps])

    def restore_parts(self, parts: Iterable[Tensor]) -> NDArray[np.float32]:
        """`restore` for maps that come in parts `[d, K, rows, columns]`, in order.

        A part is requested once the previous one is in place, so maps are not in memory twice.
        """
        maps = self.restored(parts)
        first = next(maps)
        restored, slices = self.stack.blank(first[1].shape[1], np.float32)
        for place, part in itertools.chain([first], maps):
            slices[place] = part.numpy()
        return restored

    def restored(self, parts: Iterable[Tensor]) -> Iterator[tuple[slice, Tensor]]:
        """Parts `[d, K, rows, columns]` at the size of the slices, and their position in the stack.

        A part is only computed when requested.
        """
        height, width = self.stack.array.shape[2:]
        done = 0
        for part in self._between_slices(parts):
            yield slice(done, done + len(part)), resize(part, (height, width))
            done += len(part)

    def _between_slices(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        """The same for the slices of `stack`: interpolated if the network's slices differ."""
        depth, have = len(self.stack.array), len(self.slices)
        if depth == have:
            yield from parts
            return
        import torch

        whole = torch.cat(list(parts))  # a network of volumes answers at once
        weights = along_slices(torch.eye(have)[:, None, None], depth)[:, 0, 0]  # [depth, have]
        for some in weights.split(RESTORED_SLICES):
            near = some.any(0).nonzero().flatten()
            place = slice(int(near[0]), int(near[-1]) + 1)
            yield torch.tensordot(some[:, place], whole[place], 1)


def with_neighbours(
    slices: NDArray[np.generic], index: int, neighbours: int
) -> NDArray[np.generic]:
    """Channels of a slice and of those around it, `[(2 neighbours + 1) C, H, W]`, in order.

    Args:
        slices: `[D, C, H, W]`; at either end the outermost slice is repeated.
        index: index of the slice in the middle.
        neighbours: number of slices on each side.
    """
    around = np.clip(np.arange(index - neighbours, index + neighbours + 1), 0, len(slices) - 1)
    return np.concatenate([slices[z] for z in around])


def single_slice_plane(image: MedicalImage) -> Plane | None:
    """The plane in which a volume is a single slice; None for pictures and thicker volumes."""
    if image.spatial_dims == 2 or 1 not in image.spatial_shape:
        return None
    planes: tuple[Plane, ...] = get_args(Plane)
    return next(plane for plane in planes if slice_count(image, plane) == 1)


def single_slice(image: MedicalImage) -> SliceStack | None:
    """A volume of a single slice as that slice; None for pictures and thicker volumes.

    The slice is in display orientation. An array without a geometry, `[H, W, 1]` or `[1, H, W]`, is
    the picture that it holds and is not rotated.
    """
    plane = single_slice_plane(image)
    if plane is None:
        return None
    if is_plain_volume(image):
        image, plane = replace(image, affine=_upright(image.spatial_shape)), "axial"
    return SliceStack.from_image(image, plane, copy=False)


def picture_of(image: MedicalImage) -> MedicalImage:
    """A volume of a single slice as a picture in display orientation; anything else unchanged."""
    stack = single_slice(image)
    if stack is None:
        return image
    array = np.ascontiguousarray(stack.array[0])
    return replace(image, array=array, affine=np.eye(4), header=None, origin=None)


def _upright(shape: Sequence[int]) -> NDArray[np.float64]:
    """The affine with which the axial slice of a single-slice array is the unrotated picture."""
    across = shape.index(1)
    rows, columns = (axis for axis in range(3) if axis != across)
    affine = np.eye(4)
    affine[:3, [across, rows, columns]] = ((0, 0, -1), (0, -1, 0), (1, 0, 0))  # S, P, L
    return affine


def resampled(slices: Tensor, size: tuple[int, int, int], labels: bool = False) -> Tensor:
    """Slices `[D, C, H, W]` resampled to other slices, rows and columns: see `resize`."""
    return along_slices(resize(slices, size[1:], labels), size[0], labels)


def along_slices(slices: Tensor, count: int, labels: bool = False) -> Tensor:
    """Slices `[D, ...]` resampled to `count` slices: see `resize`."""
    if len(slices) == count:
        return slices
    lines = slices.flatten(1)
    found = resize(lines[None, None], (count, lines.shape[1]), labels)
    return found.view(count, *slices.shape[1:])


def resize(maps: Tensor, size: tuple[int, int], labels: bool = False) -> Tensor:
    """Resize `[N, C, H, W]`: bilinear with antialiasing, or nearest for labels."""
    if tuple(maps.shape[2:]) == size:
        return maps
    from torch.nn.functional import interpolate

    if labels:
        return interpolate(maps, size, mode="nearest-exact")
    return interpolate(maps, size, mode="bilinear", antialias=True)


def _mm(lengths: Sequence[float]) -> str:
    return " x ".join(f"{length:g}" for length in lengths) + " mm"
