"""Return an answer in the type of its input image: nibabel in, nibabel out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images.codecs.codec import with_common_dtype
from caps_med.images.files import encode_image
from caps_med.images.image import Array, MedicalImage, liked_with
from caps_med.images.objects import (
    class_names,
    columns_first,
    is_dataset,
    is_pair,
    without_time,
)


def like(image: MedicalImage, source: Any) -> Any:  # noqa: ANN401 - whatever the source is
    """Convert `image` to the type of `source`, whose grid it shares.

    | source | result |
    |---|---|
    | NumPy array | ``[H, W]`` or ``[H, W, K]``; for a volume ``[X, Y, Z]`` or ``[K, X, Y, Z]`` |
    | PyTorch tensor | ``[K, H, W]``, or ``[H, W]`` like the source, on its device |
    | ``(array, affine)`` | the same, the array ``[X, Y, Z]`` or ``[K, X, Y, Z]`` |
    | MONAI `MetaTensor` | ``[K, *S]`` with the source's affine, on its device |
    | nibabel image | NIfTI, with the source's header if that was NIfTI |
    | SimpleITK image | with the source's origin, spacing and direction |
    | Pillow image | a picture; for labels, one with ids |
    | bytes | the content of a file of `image.format` |
    | pydicom data set, or a list of them | for labels, a list with a DICOM SEG |
    | path, open file, list of paths, `MedicalImage` | `image` itself, which `save` writes |

    Raises:
        InvalidInput: an unknown type, or `image` does not lie on the grid of `source`.
        UnsupportedFormat: `image.format` cannot hold it, just as DICOM cannot hold probabilities.
    """
    if isinstance(source, bytes):
        return encode_image(image, image.format)
    if is_dataset(source) or (isinstance(source, list | tuple) and any(map(is_dataset, source))):
        return [_dataset(image)]
    if is_pair(source):
        return _pair(image, source)
    for name in class_names(source):
        if name in _MAKERS:
            return _MAKERS[name](image, source)
    named = hasattr(source, "__fspath__") or hasattr(source, "read")
    if named or isinstance(source, str | list | tuple | MedicalImage):
        return image
    raise InvalidInput(f"there is no image like a {type(source).__qualname__}: see read_image")


def _array(image: MedicalImage, source: Any) -> Array:  # noqa: ANN401
    if image.spatial_dims == source.ndim == 3:
        return _voxels(image, source)
    array = _flat(image)
    return array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)


def _tensor(image: MedicalImage, source: Any) -> Any:  # noqa: ANN401
    import torch  # the caller has it

    tensor = torch.from_numpy(_numbers(_flat(image))).to(source.device)
    return tensor[0] if source.ndim == 2 and len(tensor) == 1 else tensor


def _meta_tensor(image: MedicalImage, source: Any) -> Any:  # noqa: ANN401
    import torch
    from monai.data import MetaTensor

    swapped = columns_first(source)
    _same_grid(image, tuple(source.shape[1:])[:: -1 if swapped else 1])
    array = image.array.swapaxes(1, 2) if swapped else image.array
    tensor = torch.from_numpy(_numbers(array)).to(source.device)
    return MetaTensor(tensor, affine=source.affine, meta=dict(source.meta))


def _pair(image: MedicalImage, source: tuple[Any, Any]) -> tuple[Any, Any]:
    array, affine = source
    voxels = _voxels(image, array)
    if isinstance(array, np.ndarray):
        return voxels, affine
    import torch

    return torch.from_numpy(_numbers(voxels)).to(array.device), affine


def _voxels(image: MedicalImage, source: Any) -> Array:  # noqa: ANN401
    """``[X, Y, Z]``, or ``[K, X, Y, Z]`` for several channels, on the grid of an array."""
    _same_grid(image, tuple(source.shape[-3:]))
    return image.array[0] if len(image.array) == 1 else image.array


def _nibabel(image: MedicalImage, source: Any) -> Any:  # noqa: ANN401
    import nibabel as nib

    _same_grid(image, (*source.shape, 1)[:3])
    found = image.to_nibabel()
    return nib.Nifti2Image.from_image(found) if isinstance(source, nib.Nifti2Image) else found


def _simpleitk(image: MedicalImage, source: Any) -> Any:  # noqa: ANN401
    import SimpleITK

    source = without_time(source)
    _same_grid(image, source.GetSize() if image.spatial_dims == 3 else source.GetSize()[::-1])
    several = len(image.array) > 1
    array = image.array.transpose(0, 3, 2, 1) if image.spatial_dims == 3 else image.array
    voxels = with_common_dtype(np.moveaxis(array, 0, -1) if several else array[0])
    made = SimpleITK.GetImageFromArray(np.ascontiguousarray(voxels), isVector=several)
    made.CopyInformation(source)
    return made


def _pillow(image: MedicalImage, source: Any) -> Any:  # noqa: ANN401
    import io

    from PIL import Image

    return Image.open(io.BytesIO(encode_image(image, "png")))


def _dataset(image: MedicalImage) -> Any:  # noqa: ANN401
    import io

    from pydicom import dcmread

    return dcmread(io.BytesIO(encode_image(image, "dicom")))


def _flat(image: MedicalImage) -> Array:
    """``[K, H, W]`` of a picture."""
    if image.spatial_dims != 2:
        raise InvalidInput("a volume is not a picture: give its source, or use np.asarray(image)")
    return image.array


def _same_grid(image: MedicalImage, shape: tuple[int, ...]) -> None:
    if image.spatial_shape != tuple(shape):
        raise InvalidInput(
            f"the image has the size {image.spatial_shape}, but its source has {tuple(shape)}: "
            "give the image that the answer belongs to"
        )


def _numbers(array: Array) -> Array:
    """The numbers in a dtype that PyTorch has, in C order."""
    wider = {np.dtype(np.uint16): np.int32, np.dtype(np.uint32): np.int64}
    return np.ascontiguousarray(array.astype(wider.get(array.dtype, array.dtype), copy=False))


_MAKERS: Mapping[str, Callable[[MedicalImage, Any], Any]] = {
    "numpy.ndarray": _array,
    "monai.MetaTensor": _meta_tensor,
    "torch.Tensor": _tensor,
    "nibabel.SpatialImage": _nibabel,
    "SimpleITK.Image": _simpleitk,
    "PIL.Image": _pillow,
}

liked_with(like)
