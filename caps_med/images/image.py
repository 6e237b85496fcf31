"""An image with its geometry: an array is always paired with its affine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import InvalidInput
from caps_med.images import units
from caps_med.images.dicom_origin import DicomOrigin
from caps_med.images.formats import formats_of
from caps_med.images.label_codes import LabelCode
from caps_med.images.nifti_fields import LONGEST_OF_NIFTI_1, describe_anew

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header, Nifti1Image

Array: TypeAlias = NDArray[Any]
Kind: TypeAlias = Literal["image", "labels"]

#: The affine of a stack of pictures as a volume `[1, X, Y, Z]`: columns to Left, rows to Posterior,
#: so that its axial slices are shown as the pictures are.
STACK_AFFINE = np.diag([-1.0, -1.0, 1.0, 1.0])

#: From the LPS world of DICOM and ITK to the RAS world of affines, and back.
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])

# A voxel may be this much thinner along one axis than along another before the affine counts
# as singular.
SINGULAR_RATIO = 1e-6
# Files hold affines in it.
_FLOAT32 = np.finfo(np.float32)

_write: Callable[[MedicalImage, str | PathLike[str]], None]
_preview: Callable[[MedicalImage], bytes]
_like: Callable[[MedicalImage, Any], Any]


@dataclass(frozen=True, eq=False, repr=False)
class MedicalImage:
    """Pixels or voxels, and their position in space.

    Args:
        array: `[C, *S]`. Pictures are `[C, H, W]`, volumes `[C, X, Y, Z]` in the voxel order of
            their file. C is 1 (grey), 3 (RGB), or the number of channels of the file; derived
            images have any C, such as one probability per class. Label maps have C = 1 and an
            integer dtype.
        affine: `[4, 4]` float64, voxel indices to millimetres, RAS+. The identity for pictures,
            which have no geometry.
        format: the default format for saving, a name in `caps_med.images.FORMATS`: that of its
            source, except that images from DICOM become "nifti" (a volume) or "png" (a picture),
            and label maps of a DICOM volume become DICOM SEG.
        kind: "image" (intensities) or "labels" (ids).
        header: the NIfTI header of the source, so that form codes, units and NIfTI-1 or -2
            survive a round trip.
        palette: `[N, 3]` uint8, the colour of each id of a label map.
        warnings: assumptions that a reader had to make; shown to the user with the answer.
        names: id -> name of a label map's labels, where known.
        codes: id -> code of a label, where known; otherwise derived from its name, see
            `caps_med.images.label_codes`.
        origin: the DICOM objects that a volume was read from, slice by slice; code that moves or
            omits voxels must omit it as well.
        white: the intensity that its format defines as white if samples have more than 8 bits:
            65535 for 16-bit PNG and TIFF, 4095 for 12-bit TIFF. None if the format defines none.
        plane: `[3, 3]` float64, for a picture whose file gives the position of its pixels in their
            plane: column and row to millimetres. It is written to NRRD and MetaImage; nothing else
            uses it.
        patient: the Patient ID of DICOM files, for both volumes and pictures; empty if there is
            none, or if it stands for no one ("ANONYMOUS"). Never shown or written, and kept
            only as a digest.
        series: the Series Instance UID of DICOM files, for both volumes and pictures; empty if
            there is none.

    Raises:
        InvalidInput: the array or the affine does not have this form, the affine is singular, or
            `origin` has a different number of slices.
    """

    array: Array
    affine: Array = field(default_factory=lambda: np.eye(4))
    format: str = "npy"
    kind: Kind = "image"
    header: Nifti1Header | None = None
    palette: Array | None = None
    warnings: tuple[str, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    codes: Mapping[int, LabelCode] = field(default_factory=dict)
    origin: DicomOrigin | None = field(default=None, repr=False)
    white: int | None = None
    plane: Array | None = None
    patient: str = field(default="", repr=False)
    series: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        _check_array(self.array, self.kind)
        if not self.array.dtype.isnative:  # which PyTorch and SimpleITK do not take
            native = self.array.dtype.newbyteorder("=")
            object.__setattr__(self, "array", self.array.astype(native))
        object.__setattr__(self, "affine", _checked_affine(self.affine, "affine", 4))
        if self.plane is not None:
            object.__setattr__(self, "plane", _checked_affine(self.plane, "plane", 3))
        if self.origin is not None and self.array.shape[3:] != (len(self.origin.slices),):
            raise InvalidInput("these are not the slices that their origin names")

    def __repr__(self) -> str:
        """Kind, size and geometry on one line, without values or names."""
        shape = " x ".join(str(length) for length in self.array.shape)
        spacing = "" if self.spacing is None else f", {self._spacing_text}"
        return f"<{type(self).__name__}: {self.kind} {shape} {self.array.dtype}{spacing}>"

    def _repr_png_(self) -> bytes:
        """The picture that a notebook shows, see `caps_med.images.preview`."""
        return _preview(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: ANN401
        """`array` itself, ``[C, *S]``, for ``np.asarray(image)``."""
        array = np.asarray(self.array, dtype=dtype)
        if copy is False and array is not self.array:
            raise ValueError(f"an array of {self.array.dtype} is not one of {dtype} without a copy")
        return array.copy() if copy and array is self.array else array

    def to_nibabel(self) -> Nifti1Image:
        """Convert to a nibabel image that shares the array; K channels become the fourth axis.

        If the image has the NIfTI header of its source, the affine is in the unit of that header,
        otherwise in millimetres. It is NIfTI-2 if the source was, or if an axis is too long for
        NIfTI-1.

        Raises:
            InvalidInput: the image is a picture, which has no geometry.
        """
        import nibabel as nib

        if self.spatial_dims == 2:
            raise InvalidInput("a picture has no geometry: use np.asarray(image)")
        grid = self.array[0] if len(self.array) == 1 else np.moveaxis(self.array, 0, -1)
        grid = _common_numbers(grid)
        header, affine = None, self.affine
        if self.header is not None:
            header = self.header.copy()
            header.set_data_dtype(grid.dtype)
            affine = np.diag([*(1 / units.of_nifti(header),) * 3, 1.0]) @ affine
        second = isinstance(header, nib.Nifti2Header) or max(grid.shape) >= LONGEST_OF_NIFTI_1
        kind = nib.Nifti2Image if second else nib.Nifti1Image
        made = kind(grid, affine, header, dtype=grid.dtype)
        describe_anew(made.header, labels=self.kind == "labels")
        return made

    @property
    def _spacing_text(self) -> str:
        return " x ".join(f"{step:g}" for step in self.spacing or ()) + " mm"

    @property
    def spatial_dims(self) -> int:
        """2 for a picture, 3 for a volume."""
        return self.array.ndim - 1

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        """`*S`, the sizes of the array without its channels."""
        return self.array.shape[1:]

    @property
    def made_by(self) -> str:
        """The model that produced it, as ``name@version``; empty for images that were read."""
        return ""

    @property
    def unit_range(self) -> bool:
        """Whether its intensities lie in [0, 1] by definition; see `as_written`."""
        return False

    @property
    def background(self) -> int:
        """The background id of a label map."""
        return 0

    def formats_of(self, kind: Kind) -> tuple[str, ...]:
        """The formats offered for an image of that kind on these voxels, the default first."""
        return formats_of(
            self.format,
            labels=kind == "labels",
            picture=self.spatial_dims == 2,
            slices=self.origin is not None,
        )

    def format_of(self, kind: Kind) -> str:
        """The default format of an image of that kind on these voxels."""
        return self.formats_of(kind)[0]

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """Millimetres between neighbours along each axis of a volume; None for pictures."""
        if self.spatial_dims == 2:
            return None
        return tuple(float(step) for step in np.linalg.norm(self.affine[:3, :3], axis=0))

    def with_array(
        self,
        array: Array,
        *,
        kind: Kind | None = None,
        format: str | None = None,
        palette: Array | None = None,
        warnings: tuple[str, ...] = (),
    ) -> MedicalImage:
        """Replace the array with one `[K, *S]` on the same voxels, keeping affine and header.

        Args:
            array: `[K, *S]` with this image's `*S`.
            kind: the new kind; by default this image's. Labels of a JPEG become PNG.
            format: the new format; by default that of `format_of`.
            palette: `[N, 3]` uint8 colours of the ids; by default this image's.
            warnings: added to this image's.

        Raises:
            InvalidInput: `array` has different spatial axes.
        """
        if array.shape[1:] != self.spatial_shape:
            raise InvalidInput(
                f"array has the spatial shape {array.shape[1:]}, this image {self.spatial_shape}: "
                "resample it to this image's voxels first"
            )
        kind = kind or self.kind
        return replace(
            self,
            array=array,
            kind=kind,
            format=format or self.format_of(kind),
            palette=self.palette if palette is None else palette,
            warnings=self.warnings + warnings,
            white=self.white if array.dtype == self.array.dtype else None,
        )

    def like(self, source: Any) -> Any:  # noqa: ANN401 - whatever the source is
        """Convert this image to the type of `source`, see `caps_med.images.like`.

        ``model.segment(x).like(x)`` is a nibabel image if `x` is one, and so on.
        """
        return _like(self, source)

    def save(self, path: str | PathLike[str]) -> None:
        """Write to `path`, in the format of its suffix; see `caps_med.images.write_image`."""
        _write(self, path)


def save_with(writer: Callable[[MedicalImage, str | PathLike[str]], None]) -> None:
    """Set the function that `MedicalImage.save` calls: the formats import this module."""
    global _write
    _write = writer


def shown_with(preview: Callable[[MedicalImage], bytes]) -> None:
    """Set the function that makes the PNG file with which notebooks show an image."""
    global _preview
    _preview = preview


def liked_with(convert: Callable[[MedicalImage, Any], Any]) -> None:
    """Set the function that `MedicalImage.like` calls."""
    global _like
    _like = convert


def _common_numbers(grid: Array) -> Array:
    """64-bit integers, which few programs read from NIfTI, as 32 bits if they fit; half floats,
    which NIfTI lacks, as floats.
    """
    if grid.dtype in (np.bool_, np.float16):
        return grid.astype(np.uint8 if grid.dtype == np.bool_ else np.float32)
    bounds = np.iinfo(np.int32)
    if (
        grid.dtype not in (np.int64, np.uint64)
        or grid.min() < bounds.min
        or grid.max() > bounds.max
    ):
        return grid
    return grid.astype(np.int32)


def _check_array(array: Array, kind: str) -> None:
    if kind not in get_args(Kind):
        raise InvalidInput(f"kind must be one of {get_args(Kind)}, got {kind!r}")
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise InvalidInput(f"array must be [C, H, W] or [C, X, Y, Z], got shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"array must hold real numbers, got dtype {array.dtype}")
    if kind == "labels" and (array.shape[0] != 1 or array.dtype.kind == "f"):
        raise InvalidInput(
            "a label map has one channel of integer ids, "
            f"got {array.shape[0]} channels of {array.dtype}"
        )


def _checked_affine(affine: Array, name: str, size: int) -> Array:
    affine = np.array(affine, dtype=np.float64, order="C")
    if affine.shape != (size, size):
        raise InvalidInput(f"{name} must have shape ({size}, {size}), got {affine.shape}")
    _check_affine(affine.tobytes(), name, size)
    affine.setflags(write=False)
    return affine


@lru_cache(maxsize=256)  # an image passes its affine on to each image that is made of it
def _check_affine(content: bytes, name: str, size: int) -> None:
    affine = np.frombuffer(content).reshape(size, size)
    if not (np.abs(affine) <= _FLOAT32.max).all():
        raise InvalidInput(
            f"{name} must be finite in float32, it holds NaN or infinity: repair the header"
        )
    last = [0.0] * (size - 1) + [1.0]
    if not np.array_equal(affine[-1], last):
        row = " ".join(f"{value:g}" for value in last)
        raise InvalidInput(f"{name} must end in the row {row}, got {affine[-1].tolist()}")
    scales = np.linalg.svd(affine[:-1, :-1], compute_uv=False)
    if scales[-1] <= max(SINGULAR_RATIO * scales[0], _FLOAT32.tiny):
        raise InvalidInput(f"{name} is singular: it maps different voxels to one place")
