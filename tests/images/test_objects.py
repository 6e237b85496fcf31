"""Images of other libraries in memory, against each library's own idea of where a voxel lies."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import SimpleITK
import torch
from monai.data import MetaTensor, PILReader
from monai.transforms import LoadImage
from monai.utils import SpaceKeys
from numpy.typing import NDArray
from PIL import Image

from caps_med.errors import InvalidInput, InvalidParameter, NotFinite
from caps_med.images import Kind, MedicalImage, encode_image, read_image
from caps_med.images.image import LPS_TO_RAS

RNG = np.random.default_rng(0)
VOXELS = RNG.integers(0, 1000, (4, 5, 6)).astype(np.int16)
#: Oblique, with the first axis flipped.
OBLIQUE = np.array(
    [[-1.9, 0.3, 0.1, 10.0], [0.2, 2.4, -0.4, -20.0], [0.1, 0.5, 2.9, 30.0], [0, 0, 0, 1]]
)


def world(image: MedicalImage, index: tuple[int, int, int]) -> NDArray[np.float64]:
    return (image.affine @ [*index, 1])[:3]


def simpleitk_volume() -> Any:  # noqa: ANN401
    """`VOXELS` in a rotated and flipped frame."""
    image = SimpleITK.GetImageFromArray(VOXELS.transpose(2, 1, 0))
    image.SetSpacing((0.5, 2.0, 3.0))
    image.SetOrigin((7.0, -8.0, 9.0))
    turn = np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, -1]])
    image.SetDirection(turn.ravel().tolist())
    return image


def test_nibabel_images_keep_voxels_affine_and_header() -> None:
    source = nib.Nifti1Image(VOXELS, OBLIQUE)
    source.header["descrip"] = b"kept"
    image = read_image(source)
    assert np.array_equal(image.array[0], VOXELS)
    np.testing.assert_allclose(world(image, (1, 2, 3)), (source.affine @ [1, 2, 3, 1])[:3])
    assert image.header is not None and image.header["descrip"] == b"kept"


@pytest.mark.parametrize("code", ["mm", "meter", "micron"])
def test_a_nibabel_image_is_read_as_its_file_is(tmp_path: Path, code: str) -> None:
    source = nib.Nifti1Image(VOXELS[..., None], OBLIQUE)
    source.header.set_xyzt_units(code)
    nib.save(source, tmp_path / "a.nii.gz")
    one, other = read_image(nib.load(tmp_path / "a.nii.gz")), read_image(tmp_path / "a.nii.gz")
    assert np.array_equal(one.array, other.array)
    np.testing.assert_allclose(one.affine, other.affine)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 6), (4, 5, 1, 2)])
@pytest.mark.parametrize("affine", [None, OBLIQUE])
@pytest.mark.parametrize("kind", [nib.Nifti1Image, nib.Nifti2Image])
def test_nibabel_images_without_affine_or_of_two_axes_are_read_as_their_files(
    tmp_path: Path,
    kind: type[nib.Nifti1Image],
    affine: NDArray[np.float64] | None,
    shape: tuple[int, ...],
) -> None:
    source = kind(np.resize(VOXELS, shape), affine)
    source.header.set_xyzt_units("micron")
    nib.save(source, tmp_path / "a.nii")
    file, image = read_image(tmp_path / "a.nii"), read_image(source)
    assert np.array_equal(image.array, file.array) and image.warnings == file.warnings
    np.testing.assert_allclose(image.affine, file.affine, rtol=1e-6)
    made = image.like(source)
    assert made.shape == (*shape, 1)[: max(3, len(shape))]
    np.testing.assert_allclose(read_image(made).affine, file.affine, rtol=1e-6)


def test_other_nibabel_images_without_affine_have_that_of_their_header() -> None:
    source = nib.MGHImage(VOXELS.astype(np.float32), None)
    np.testing.assert_array_equal(read_image(source).affine, source.header.get_best_affine())


def test_nifti_2_comes_back_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """NIfTI-1 does not hold an axis as long; neither image is made in between."""
    for sizes in ((40_000, 2, 1), (4, 5, 6)):
        source = nib.Nifti2Image(np.ones(sizes, np.uint8), OBLIQUE)
        image = read_image(source)
        for back in (image.like(source), image.to_nibabel()):
            assert isinstance(back, nib.Nifti2Image) and back.shape == sizes
    long = MedicalImage(np.ones((1, 2, 40_000, 1), np.uint8)).to_nibabel()
    assert isinstance(long, nib.Nifti2Image)
    assert caplog.text == ""


def test_to_nibabel_gives_the_same_image_back() -> None:
    source = nib.Nifti1Image(VOXELS, OBLIQUE)
    back = read_image(source).to_nibabel()
    assert np.array_equal(np.asanyarray(back.dataobj), VOXELS)
    np.testing.assert_allclose(back.affine, OBLIQUE)
    several = MedicalImage(np.zeros((3, 4, 5, 6), np.float32), OBLIQUE).to_nibabel()
    assert several.shape == (4, 5, 6, 3)
    with pytest.raises(InvalidInput, match="a picture has no geometry"):
        MedicalImage(np.zeros((1, 4, 5))).to_nibabel()


@pytest.mark.parametrize("code", ["mm", "meter", "micron"])
def test_to_nibabel_stays_in_the_unit_of_its_header(code: str) -> None:
    source = nib.Nifti1Image(VOXELS, OBLIQUE)
    source.header.set_xyzt_units(code)
    image = read_image(source)
    back = image.to_nibabel()
    np.testing.assert_allclose(back.affine, OBLIQUE)
    np.testing.assert_allclose(read_image(back).affine, image.affine)


@pytest.mark.parametrize("kind", ["i8", "u8"])
@pytest.mark.parametrize(("largest", "held_in"), [(2**31 - 1, "i4"), (2**40, None)])
def test_to_nibabel_keeps_large_integers(kind: str, largest: int, held_in: str | None) -> None:
    array = np.array([0, largest], kind).reshape(1, 2, 1, 1)
    back = MedicalImage(array).to_nibabel()
    assert np.array_equal(np.asanyarray(back.dataobj), array[0])
    assert back.get_data_dtype() == np.dtype(held_in or kind)


def test_half_floats_become_floats_of_other_libraries() -> None:
    image = MedicalImage(np.array([0.5, 2]).astype("f2").reshape(1, 2, 1, 1))
    assert image.to_nibabel().get_fdata().ravel().tolist() == [0.5, 2]
    source = SimpleITK.GetImageFromArray(np.zeros((1, 1, 2), np.uint8))
    assert SimpleITK.GetArrayFromImage(image.like(source)).ravel().tolist() == [0.5, 2]


def test_label_maps_of_simpleitk_are_taken() -> None:
    source = SimpleITK.Cast(simpleitk_volume() > 500, SimpleITK.sitkLabelUInt8)
    read = read_image(source, kind="labels")
    np.testing.assert_array_equal(read.array[0], VOXELS > 500)
    np.testing.assert_allclose(read.affine, read_image(simpleitk_volume()).affine)
    assert isinstance(read.like(source), SimpleITK.Image)


def test_numbers_of_another_byte_order_are_taken_as_these() -> None:
    volume = read_image(nib.Nifti1Image(VOXELS.astype(">f4"), OBLIQUE))
    assert volume.array.dtype == np.dtype("=f4")
    pair = volume.like((torch.zeros(VOXELS.shape), torch.eye(4)))
    np.testing.assert_array_equal(pair[0].numpy(), VOXELS)
    assert isinstance(volume.like(simpleitk_volume()), SimpleITK.Image)
    picture = read_image((VOXELS[0] + 1000).astype(">u2"))
    np.testing.assert_array_equal(
        read_image(encode_image(picture, "png")).array[0], VOXELS[0] + 1000
    )


def test_simpleitk_volumes_lie_where_simpleitk_says() -> None:
    source = simpleitk_volume()
    image = read_image(source)
    assert np.array_equal(image.array[0], VOXELS)
    for index in ((0, 0, 0), (3, 1, 5)):
        left, posterior, superior = source.TransformIndexToPhysicalPoint(index)
        np.testing.assert_allclose(world(image, index), (-left, -posterior, superior))


@pytest.mark.parametrize("suffix", [".mha", ".nrrd"])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_picture_stays_where_simpleitk_says(tmp_path: Path, channels: int, suffix: str) -> None:
    voxels = np.arange(20 * channels, dtype=np.uint8).reshape(4, 5, channels)
    source = SimpleITK.GetImageFromArray(voxels, isVector=True)
    source.SetSpacing((0.3, 0.45))
    source.SetOrigin((5, -7))
    source.SetDirection((0.8, -0.6, 0.6, 0.8))
    SimpleITK.WriteImage(source, str(tmp_path / f"theirs{suffix}"))
    for image in (read_image(tmp_path / f"theirs{suffix}"), read_image(source)):
        for made in (image, image.with_array(image.array[:1] % 2, kind="labels")):
            made.save(tmp_path / f"ours{suffix}")
            ours = SimpleITK.ReadImage(str(tmp_path / f"ours{suffix}"))
            for index in ((0, 0), (4, 3)):
                np.testing.assert_allclose(
                    ours.TransformIndexToPhysicalPoint(index),
                    source.TransformIndexToPhysicalPoint(index),
                )


def test_simpleitk_reads_a_saved_volume_in_the_same_place(tmp_path: Path) -> None:
    source = simpleitk_volume()
    read_image(source).save(tmp_path / "a.nii.gz")
    again = SimpleITK.ReadImage(str(tmp_path / "a.nii.gz"))
    assert np.array_equal(SimpleITK.GetArrayFromImage(again), SimpleITK.GetArrayFromImage(source))
    for index in ((0, 0, 0), (3, 1, 5)):
        np.testing.assert_allclose(
            again.TransformIndexToPhysicalPoint(index),
            source.TransformIndexToPhysicalPoint(index),
            atol=1e-4,
        )


def test_simpleitk_pictures_are_rows_and_columns() -> None:
    grey = SimpleITK.GetImageFromArray(VOXELS[0])
    assert np.array_equal(read_image(grey).array, VOXELS[:1])
    colour = RNG.integers(0, 255, (7, 8, 3)).astype(np.uint8)
    image = read_image(SimpleITK.GetImageFromArray(colour, isVector=True))
    assert np.array_equal(image.array, colour.transpose(2, 0, 1))


def test_meta_tensors_keep_their_affine() -> None:
    image = read_image(MetaTensor(VOXELS[None].astype(np.float32), affine=torch.tensor(OBLIQUE)))
    assert np.array_equal(image.array[0], VOXELS)
    np.testing.assert_allclose(image.affine, OBLIQUE)
    assert read_image(MetaTensor(torch.zeros(1, 7, 8))).spatial_shape == (7, 8)


@pytest.mark.parametrize("space", [SpaceKeys.LPS, "left-posterior-superior"])
def test_meta_tensors_of_a_reader_that_keeps_lps(space: str) -> None:
    affine = torch.tensor(LPS_TO_RAS @ OBLIQUE)
    tensor = MetaTensor(torch.tensor(VOXELS[None]), affine=affine, meta={"space": space})
    image = read_image(tensor)
    np.testing.assert_allclose(image.affine, OBLIQUE)
    again = image.like(tensor)
    assert torch.equal(again.affine, affine) and again.meta["space"] == space


def test_meta_tensors_as_monai_loads_them_need_their_channels_first(tmp_path: Path) -> None:
    nib.Nifti1Image(VOXELS, OBLIQUE).to_filename(tmp_path / "volume.nii")
    Image.new("RGB", (8, 7)).save(tmp_path / "colour.png")
    for name, first in (("volume.nii", (1, 4, 5, 6)), ("colour.png", (3, 7, 8))):
        with pytest.raises(InvalidInput, match=r"not begin with its channels: .*ensure_channel_f"):
            read_image(LoadImage(image_only=True)(tmp_path / name))
        loaded = LoadImage(image_only=True, ensure_channel_first=True)(tmp_path / name)
        assert read_image(loaded).array.shape == first


@pytest.mark.parametrize("width", [8, 7])
def test_pictures_that_monai_loads_are_those_of_their_files(tmp_path: Path, width: int) -> None:
    """Its reader puts columns first, unless it is told not to; of a square nobody can tell."""
    pixels = RNG.integers(0, 255, (7, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path := tmp_path / "colour.png")
    read = read_image(path).array
    loaded = LoadImage(ensure_channel_first=True)(path)
    image = read_image(loaded)
    assert np.array_equal(image.array, read) and "columns before rows" in image.warnings[0]
    assert torch.equal(image.like(loaded), loaded)
    if width != 7:
        rows_first = PILReader(reverse_indexing=False)
        as_it_is = LoadImage(reader=rows_first, ensure_channel_first=True)(path)
        image = read_image(as_it_is)
        assert np.array_equal(image.array, read) and not image.warnings
        assert torch.equal(image.like(as_it_is), as_it_is)


def test_arrays_with_an_affine_are_volumes() -> None:
    image = read_image((VOXELS, OBLIQUE))
    assert np.array_equal(image.array, VOXELS[None]) and np.array_equal(image.affine, OBLIQUE)
    image = read_image((torch.from_numpy(VOXELS), torch.tensor(OBLIQUE)))
    assert np.array_equal(image.array, VOXELS[None])


@pytest.mark.parametrize(
    ("source", "shape"),
    [
        (np.zeros((7, 8), np.uint8), (1, 7, 8)),
        (np.zeros((7, 8, 3), np.uint8), (3, 7, 8)),
        (np.zeros((7, 8), bool), (1, 7, 8)),
        (torch.zeros(7, 8, dtype=torch.bfloat16), (1, 7, 8)),
        (torch.zeros(3, 7, 8, requires_grad=True), (3, 7, 8)),
        (torch.zeros(2, 7, 8), (2, 7, 8)),
        (Image.new("LA", (8, 7)).convert("La"), (1, 7, 8)),
        (Image.new("L", (8, 7)), (1, 7, 8)),
        (Image.new("RGBA", (8, 7)), (3, 7, 8)),
        (Image.new("I;16", (8, 7)), (1, 7, 8)),
    ],
)
def test_pictures_of_any_library(source: object, shape: tuple[int, ...]) -> None:
    assert read_image(source).array.shape == shape


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.eye(5).to_sparse(), "no array can be made of it: .*to_dense"),
        (torch.empty(5, 5, device="meta"), "no array can be made of it: .*no data"),
        (torch.eye(5).to(torch.float8_e4m3fn), "no array can be made of it: .*Float8"),
        ((torch.zeros(4, 5, 6), [[1], [2, 3]]), "no array can be made of it: "),
        ((torch.zeros(4, 5, 6), [["x"] * 4] * 4), "the affine .* must hold numbers"),
        ("", "the path of the image is empty"),
        ("a\0.nii", "cannot read a\0.nii: embedded null byte"),
    ],
    ids=["sparse", "meta", "float8", "uneven", "text", "no path", "no name"],
)
def test_what_is_no_image_is_told(source: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image(source)


def test_an_affine_goes_with_what_is_like_an_array(tmp_path: Path) -> None:
    nib.save(nib.Nifti1Image(VOXELS.astype(np.float32), np.eye(4)), tmp_path / "a.nii.gz")
    voxels = nib.load(tmp_path / "a.nii.gz").dataobj
    for array in (voxels, torch.nn.Parameter(torch.as_tensor(np.asarray(voxels)))):
        assert np.array_equal(read_image((array, OBLIQUE)).affine, OBLIQUE)


@pytest.mark.parametrize("kind", ["image", "labels"])
def test_an_array_of_a_volume_is_read_as_its_file_is(tmp_path: Path, kind: Kind) -> None:
    np.save(tmp_path / "a.npy", VOXELS)
    file, image = (read_image(source, kind=kind) for source in (tmp_path / "a.npy", VOXELS))
    assert np.array_equal(image.array, file.array) and np.array_equal(image.affine, file.affine)
    assert (image.format, len(image.warnings)) == (file.format, len(file.warnings))
    assert "no geometry" in image.warnings[0] and "(array, affine)" in image.warnings[0]


def pillow_pictures() -> dict[str, Image.Image]:
    """By mode: half transparent ones, palettes of colours and of greys."""
    colours = Image.fromarray(RNG.integers(0, 256, (4, 5, 4)).astype(np.uint8), "RGBA")
    ids = Image.fromarray(RNG.integers(0, 3, (4, 5)).astype(np.uint8))
    palette, greys = ids.copy(), ids.copy()
    palette.putpalette([0, 0, 0, 230, 159, 0, 86, 180, 233])
    greys.putpalette([level for level in range(256) for _ in range(3)])
    others = {mode: colours.convert(mode) for mode in ("LA", "L", "RGB", "1")}
    deep = Image.fromarray(RNG.integers(0, 500, (4, 5)).astype(np.uint16))
    return {"RGBA": colours, "P": palette, "P of greys": greys, "I;16": deep, **others}


@pytest.mark.parametrize("kind", ["image", "labels"])
@pytest.mark.parametrize("mode", pillow_pictures())
def test_a_pillow_image_is_read_as_its_file_is(mode: str, kind: Kind) -> None:
    picture, file = pillow_pictures()[mode], io.BytesIO()
    picture.save(file, "PNG")
    try:
        wanted = read_image(file.getvalue(), kind=kind)
    except InvalidInput as refused:
        with pytest.raises(InvalidInput, match=str(refused).removeprefix("PNG: ")):
            read_image(picture, kind=kind)
        return
    found = read_image(picture, kind=kind)
    assert np.array_equal(found.array, wanted.array)
    assert len(found.warnings) == len(wanted.warnings)
    assert found.white == wanted.white


def test_a_label_map_in_memory_is_checked_like_a_file() -> None:
    labels = read_image((VOXELS, OBLIQUE), kind="labels")
    assert labels.kind == "labels" and labels.array.dtype == np.uint16
    with pytest.raises(InvalidInput, match="label"):
        read_image((VOXELS + 0.5, OBLIQUE), kind="labels")
    with pytest.raises(NotFinite, match="NaN"):
        read_image(np.full((4, 4), np.nan))
    with pytest.raises(InvalidParameter, match="kind='label': must be 'image' or 'labels'"):
        read_image((VOXELS, OBLIQUE), kind="label")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (VOXELS[None], r"\(1, 4, 5, 6\) is not a picture .*give .* as \(array, affine\)"),
        (torch.zeros(2, 7, 8, 9), r"\(2, 7, 8, 9\) is not a picture .*MetaTensor"),
        ((VOXELS,), r"\(array, affine\) is needed, got a tuple of 1"),
        ((VOXELS[0], OBLIQUE), r"has shape \(5, 6\), not \[X, Y, Z\]"),
        ((VOXELS, np.eye(3)), r"affine must have shape \(4, 4\), got \(3, 3\)"),
        (nib.Nifti1Image(np.zeros((4, 5, 6, 2, 2), np.int16), OBLIQUE), "is not one volume"),
        (nib.Nifti1Image(np.zeros((0, 5, 6), np.int16), OBLIQUE), r"\(0, 5, 6\) is not one volume"),
        (nib.Nifti1Image(np.zeros(7, np.int16), OBLIQUE), r"\(7,\) is not one volume"),
        (np.zeros((0, 5)), r"got shape \(1, 0, 5\)"),
        ({"image": VOXELS}, "an object of type dict is not an image: give a path"),
        (7, "an object of type int is not an image"),
    ],
)
def test_anything_else_is_refused(source: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image(source)
