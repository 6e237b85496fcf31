"""Convert images of other libraries in memory to `MedicalImage`.

A library is recognized by the name of a class, so that no library is imported that the caller does
not already use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images import units
from caps_med.images.channels import COLOURS
from caps_med.images.codecs.npy import NO_GEOMETRY
from caps_med.images.image import LPS_TO_RAS, Array, Kind, MedicalImage

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header
    from PIL.Image import Image


def from_object(
    source: Any,  # noqa: ANN401 - that is what it finds out
    kind: Kind = "image",
) -> MedicalImage:
    """An image of another library as a `MedicalImage`, with its geometry.

    | source | taken as |
    |---|---|
    | NumPy array | a picture ``[H, W]`` or ``[H, W, 3]``, or a volume ``[X, Y, Z]``, see below |
    | PyTorch tensor | a picture ``[H, W]`` or ``[C, H, W]`` |
    | ``(array, affine)`` | a volume ``[(C,) X, Y, Z]``, voxels to millimetres in RAS+ |
    | MONAI `MetaTensor` | a picture ``[C, H, W]`` or a volume ``[C, X, Y, Z]`` with its affine |
    | nibabel image | a volume ``[X, Y(, Z)]`` or its channels ``[X, Y, Z, C]``; as from its file |
    | SimpleITK image | a picture or a volume |
    | Pillow image | a picture, as from its file |

    An array ``[X, Y, Z]`` alone is read like its npy file, with a warning that it has no geometry;
    a model of pictures with C channels takes ``[C, H, W]`` and ``[H, W, C]`` as pictures, see
    `caps_med.images.channels.as_picture` and, for C = 1, `caps_med.preprocessing.single_slice`.
    A picture that MONAI loaded from its file is ``[C, W, H]``: its rows and columns are swapped
    back, with a warning, see `columns_first`.

    Args:
        source: as above.
        kind: "labels" keeps the ids of a Pillow image with a palette.

    pydicom data sets are read like their files, see `caps_med.images.files`.

    Raises:
        InvalidInput: an unknown type, or a shape that is not one of these.
    """
    for name in class_names(source):
        if name == _PILLOW:
            return _from_pillow(source, kind)
        if name in _CONVERTERS:
            return _CONVERTERS[name](source)
    name = f"{type(source).__module__}.{type(source).__qualname__}".removeprefix("builtins.")
    raise InvalidInput(
        f"an object of type {name} is not an image: give a path, the content of a file, a "
        "MedicalImage, (array, affine), or an image of NumPy, PyTorch, MONAI, nibabel, SimpleITK "
        "or Pillow"
    )


def class_names(source: object) -> list[str]:
    """Library and name of an object's class and of its bases, such as ``numpy.ndarray``."""
    return [_name(base) for base in type(source).__mro__]


def is_dataset(source: object) -> bool:
    """Whether the object is a pydicom data set."""
    return "pydicom.Dataset" in class_names(source)


def is_pair(source: object) -> bool:
    """Whether a tuple begins with an array or tensor, so that an affine must follow.

    Arrays and tensors of derived classes count, as do nibabel's voxels that are still in their
    file; MONAI's tensors, which have an affine, do not.
    """
    if not isinstance(source, tuple) or not source:
        return False
    names = set(class_names(source[0]))
    return bool(names & _ARRAYS) and _META_TENSOR not in names


def _from_array(array: Array) -> MedicalImage:
    if array.ndim == 2:
        return _image(array[None])
    if array.ndim == 3 and array.shape[-1] == COLOURS:
        return _image(np.moveaxis(array, -1, 0))
    if array.ndim == 3:
        warning = f"the array has {NO_GEOMETRY}: give a volume as (array, affine)"
        return replace(_image(array[None]), format="npy", warnings=(warning,))
    raise InvalidInput(
        f"an array of shape {array.shape} is not a picture [H, W] or [H, W, 3] nor a volume "
        "[X, Y, Z]: give a volume with channels as (array, affine)"
    )


def _from_tensor(tensor: Any) -> MedicalImage:  # noqa: ANN401
    array = _numpy(tensor)
    if array.ndim == 3:
        return _image(array)
    if array.ndim == 2:
        return _image(array[None])
    raise InvalidInput(
        f"a tensor of shape {array.shape} is not a picture [H, W] or [C, H, W]: give a volume as "
        "a MetaTensor or as (array, affine), so that its geometry is known"
    )


def _from_meta_tensor(tensor: Any) -> MedicalImage:  # noqa: ANN401
    array = _numpy(tensor.as_tensor())
    loaded = np.ravel(tensor.meta.get("spatial_shape", ())).tolist()
    if loaded in (list(array.shape), list(array.shape[:-1])):
        raise InvalidInput(
            f"a MetaTensor of shape {array.shape} does not begin with its channels: load it with "
            "LoadImage(ensure_channel_first=True)"
        )
    if array.ndim == 3 and columns_first(tensor):
        return replace(_image(array.swapaxes(1, 2)), warnings=(_COLUMNS_FIRST,))
    if array.ndim == 3:
        return _image(array)
    affine = _numpy(tensor.affine)
    space = str(tensor.meta.get("space"))
    return _image(array, LPS_TO_RAS @ affine if space in _LPS else affine)


def columns_first(tensor: Any) -> bool:  # noqa: ANN401 - of MONAI, which is not imported here
    """Whether a `MetaTensor` is a picture ``[C, W, H]``, as MONAI loads one from its file.

    MONAI's PILReader swaps rows and columns unless told not to. This can be detected if a picture
    is not square and still has the size of its file.
    """
    meta = tensor.meta
    if tensor.ndim != 3 or not {"width", "height", "mode"} <= set(meta):
        return False
    rows, columns = int(meta["height"]), int(meta["width"])
    return rows == columns or tuple(tensor.shape[1:]) != (rows, columns)


def _from_pair(pair: tuple[Any, ...]) -> MedicalImage:
    if len(pair) != 2:
        raise InvalidInput(f"(array, affine) is needed, got a tuple of {len(pair)}")
    array, affine = (_numpy(part) for part in pair)
    if not np.issubdtype(affine.dtype, np.number):
        raise InvalidInput(f"the affine of (array, affine) must hold numbers, not {affine.dtype}")
    if array.ndim == 3:
        array = array[None]
    if array.ndim != 4:
        raise InvalidInput(f"the array of (array, affine) has shape {array.shape}, not [X, Y, Z]")
    return _image(array, affine)


def _from_nibabel(image: Any) -> MedicalImage:  # noqa: ANN401
    array = np.asanyarray(image.dataobj)
    if array.ndim < 2 or 0 in array.shape or sum(size > 1 for size in array.shape[3:]) > 1:
        raise InvalidInput(f"a nibabel image of shape {array.shape} is not one volume")
    shape = (*array.shape, 1)[:3]
    channels = np.moveaxis(array.reshape((*shape, -1)), -1, 0)
    header = image.header if hasattr(image.header, "get_sform") else None
    affine, warnings = _nibabel_affine(image, header, shape)
    kept = None if header is None else header.copy()
    return MedicalImage(_numbers(channels), affine, "nifti", header=kept, warnings=warnings)


def _nibabel_affine(
    image: Any,  # noqa: ANN401
    header: Nifti1Header | None,
    shape: tuple[int, ...],
) -> tuple[Array, tuple[str, ...]]:
    """The affine in millimetres, by default that of the header; and doubts about it."""
    if header is None:
        return image.header.get_best_affine() if image.affine is None else image.affine, ()
    if image.affine is None:
        from caps_med.images.codecs import nifti

        return nifti.affine_of(header, shape)
    scale = units.of_nifti(header)
    return np.diag([scale, scale, scale, 1.0]) @ image.affine, ()


def _from_simpleitk(image: Any) -> MedicalImage:  # noqa: ANN401
    import SimpleITK  # the caller has it

    image = without_time(image)
    if image.GetPixelIDTypeAsString().startswith("label"):  # of which SimpleITK ends the process
        image = SimpleITK.LabelMapToLabel(image)
    dims, array = image.GetDimension(), SimpleITK.GetArrayFromImage(image)
    channels = np.moveaxis(array, -1, 0) if array.ndim > dims else array[None]
    if dims not in (2, 3):
        raise InvalidInput(f"a SimpleITK image of {dims} dimensions is not one volume")
    affine = np.eye(dims + 1)
    affine[:-1, :-1] = np.reshape(image.GetDirection(), (dims, dims)) * image.GetSpacing()
    affine[:-1, -1] = image.GetOrigin()
    if dims == 2:
        return replace(_image(channels), plane=affine)
    return _image(channels.transpose(0, 3, 2, 1), LPS_TO_RAS @ affine)


def without_time(image: Any) -> Any:  # noqa: ANN401 - of SimpleITK, which is not imported here
    """A SimpleITK image with four axes and a single time point as that volume."""
    single = image.GetDimension() == 4 and image.GetSize()[3] == 1
    return image[:, :, :, 0] if single else image


def _from_pillow(picture: Image, kind: Kind) -> MedicalImage:
    """As from its file: transparency is blended over black, a palette of greys is grey, and 16-bit
    white is 65535.
    """
    from caps_med.images.codecs import pictures

    if picture.mode == "La":  # which Pillow converts to this alone
        picture = picture.convert("LA")
    if picture.mode not in pictures.MODES:
        picture = picture.convert("RGB")
    image = pictures.from_pillow(picture, "picture", kind, bits=8)
    white = _WHITE_16 if picture.mode.startswith("I;16") else None
    return replace(image, format="png" if image.array.dtype == np.uint8 else "npy", white=white)


def _image(array: Array, affine: Array | None = None) -> MedicalImage:
    """An array ``[C, *S]`` without a file: uint8 pictures are saved as PNG, others as npy."""
    array = np.ascontiguousarray(_numbers(array))
    if array.ndim == 3:
        return MedicalImage(array, format="png" if array.dtype == np.uint8 else "npy")
    return MedicalImage(array, np.eye(4) if affine is None else affine, format="nifti")


def _numbers(array: Array) -> Array:
    """Booleans as bytes and half floats as floats, which every format can hold."""
    if array.dtype == bool:
        return array.astype(np.uint8)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _numpy(source: Any) -> Array:  # noqa: ANN401
    """An array, or a tensor on any device.

    Raises:
        InvalidInput: a tensor of a kind that NumPy does not have, or a list of uneven rows.
    """
    try:
        if hasattr(source, "detach"):
            tensor = source.detach().cpu()
            source = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
        return np.asarray(source)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidInput(f"no array can be made of it: {error}") from error


def _name(kind: type) -> str:
    """Library and name of a class: ``numpy.ndarray``."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


_META_TENSOR = "monai.MetaTensor"
#: What stands before an affine.
_ARRAYS = {"numpy.ndarray", "torch.Tensor", "nibabel.ArrayProxy"}
_CONVERTERS: Mapping[str, Callable[[Any], MedicalImage]] = {
    "numpy.ndarray": _from_array,
    "torch.Tensor": _from_tensor,
    _META_TENSOR: _from_meta_tensor,
    "builtins.tuple": _from_pair,
    "nibabel.SpatialImage": _from_nibabel,
    "SimpleITK.Image": _from_simpleitk,
}
_COLUMNS_FIRST = (
    "the picture was loaded by MONAI, which puts columns before rows: they were swapped "
    "(LoadImage(reader=PILReader, reverse_indexing=False) keeps rows first)"
)
#: What MONAI and NRRD call coordinates that run to Left, Posterior and Superior.
_LPS = ("LPS", "left-posterior-superior")
_PILLOW = "PIL.Image"
_WHITE_16 = 2**16 - 1
