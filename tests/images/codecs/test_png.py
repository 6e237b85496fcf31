from __future__ import annotations

import warnings
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import MedicalImage, encode_image, label_palette, read_image
from tests.contract.formats import FormatContract, picture
from tests.images.picture_files import PNG_SIGNATURE, chunk, png, saved


class TestPng(FormatContract):
    name = "png"

    def images(self) -> list[MedicalImage]:
        return [picture("u1"), picture("u2"), picture("u1", channels=3)]


class TestDeepColours(FormatContract):
    name = "png"

    def images(self) -> list[MedicalImage]:
        return [picture("u2", channels=3).with_array(picture("u2", channels=3).array * 151)]


def test_rows_and_columns_are_where_a_person_sees_them() -> None:
    pixels = np.zeros((4, 6), np.uint8)
    pixels[1, 5] = 200
    assert read_image(saved(Image.fromarray(pixels), "PNG")).array[0, 1, 5] == 200


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (13, 17)])
@pytest.mark.parametrize("bits", [1, 8])
def test_interlaced_pictures_are_read_and_counted(shape: tuple[int, int], bits: int) -> None:
    height, width = shape
    rows = b""
    for left, top, across, down in [
        (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
        (0, 1, 1, 2),
    ]:  # fmt: skip
        columns = len(range(left, width, across))
        for _ in range(top, height, down) if columns else ():
            rows += b"\0" + b"\xff" * -(-columns * bits // 8)
    assert (read_image(png(width, height, rows, bits=bits, interlaced=1)).array == 255).all()
    with pytest.raises(InvalidInput, match="bytes of pixels instead of"):
        read_image(png(width, height, rows[:-1], bits=bits, interlaced=1))


def test_16_bits_are_kept() -> None:
    image = MedicalImage(np.array([[[0, 1, 256, 65535]]], np.uint16))
    assert read_image(encode_image(image, "png")).array.tolist() == [[[0, 1, 256, 65535]]]


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 5), (13, 17)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_interlaced_pictures_of_16_bits_are_read_without_a_word(
    shape: tuple[int, int], channels: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """libpng prints on the stream of errors when it is asked for all passes at once."""
    pixels = np.random.default_rng(0).integers(0, 2**16, (*shape, channels), dtype=np.uint16)
    pixels[..., 3:] = 65535
    rows = b""
    for left, top, across, down in [
        (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
        (0, 1, 1, 2),
    ]:  # fmt: skip
        for row in pixels[top::down, left::across] if left < shape[1] else ():
            rows += b"\0" + row.astype(">u2").tobytes()
    colour = {1: 0, 3: 2, 4: 6}[channels]
    read = read_image(png(*shape[::-1], rows, bits=16, colour=colour, interlaced=1))
    np.testing.assert_array_equal(read.array, np.moveaxis(pixels, -1, 0)[:3])
    assert read.warnings == () and capfd.readouterr().err == ""


def grey_and_alpha(samples: list[list[tuple[int, int]]]) -> bytes:
    """A PNG of 16-bit grey and alpha."""
    rows = b"".join(b"\0" + np.array(row, ">u2").tobytes() for row in samples)
    return png(len(samples[0]), len(samples), rows, bits=16, colour=4)


def test_16_bits_are_kept_beside_alpha() -> None:
    opaque = [[(0, 65535), (1, 65535), (256, 65535)], [(300, 65535), (4095, 65535), (9, 65535)]]
    wanted = [[0, 1, 256], [300, 4095, 9]]
    for kind in ("image", "labels"):
        read = read_image(grey_and_alpha(opaque), kind=kind)
        assert read.array.tolist() == [wanted] and read.warnings == ()
    half = [[(300, 65535), (4094, 32768), (4094, 0)]]
    read = read_image(grey_and_alpha(half))
    assert read.array.tolist() == [[[300, 2047, 0]]]
    assert read.warnings == ("PNG: transparency was laid over black",)
    with pytest.raises(InvalidInput, match="a label map cannot be transparent"):
        read_image(grey_and_alpha(half), kind="labels")


def test_16_bits_beside_alpha_are_filtered_and_turned() -> None:
    """Filters reach back by one pixel of four bytes, and orientation moves whole pixels."""
    rows = np.array([[(300, 65535), (5, 65535)], [(301, 65535), (70, 65535)]], ">u2")
    raw = rows.view(np.uint8).reshape(2, 8)
    left = np.concatenate([np.zeros(4, np.uint8), raw[0, :4]])
    filtered = b"\1" + (raw[0] - left).tobytes() + b"\2" + (raw[1] - raw[0]).tobytes()
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
    for extra, wanted in ((b"", [[300, 5], [301, 70]]), (turned, [[301, 300], [70, 5]])):
        data = png(2, 2, filtered, bits=16, colour=4, extra=extra)
        assert read_image(data).array.tolist() == [wanted]


def test_a_transparent_grey_of_16_bits_is_black() -> None:
    row = b"\0" + np.array([300, 301], ">u2").tobytes()
    for clear, wanted in ((300, [0, 301]), (9, [300, 301])):
        extra = chunk(b"tRNS", clear.to_bytes(2, "big"))
        read = read_image(png(2, 1, row, bits=16, extra=extra))
        assert read.array.tolist() == [[wanted]] and len(read.warnings) == (clear == 300)
        assert read.array.dtype == np.uint16


def colours_of_16_bits(pixels: list[list[int]], extra: bytes = b"") -> bytes:
    """A PNG of one row of RGB or RGBA pixels."""
    row = b"\0" + np.array(pixels, ">u2").tobytes()
    colour = {3: 2, 4: 6}[len(pixels[0])]
    return png(len(pixels), 1, row, bits=16, colour=colour, extra=extra)


def test_colours_of_16_bits_are_kept() -> None:
    read = read_image(colours_of_16_bits([[1, 2, 65535], [300, 4095, 256]]))
    assert read.array.tolist() == [[[1, 300]], [[2, 4095]], [[65535, 256]]]
    assert read.array.dtype == np.uint16 and read.warnings == ()
    with Image.open(BytesIO(encode_image(read, "png"))) as shown:
        assert shown.mode == "RGB" and shown.getpixel((0, 0)) == (0, 0, 255)


def test_transparent_colours_of_16_bits_are_laid_over_black() -> None:
    half = [[300, 4094, 9, 65535], [300, 4094, 9, 32768]]
    clear = chunk(b"tRNS", np.array([7, 8, 9], ">u2").tobytes())
    for data, wanted in (
        (colours_of_16_bits(half), [[[300, 150]], [[4094, 2047]], [[9, 5]]]),
        (colours_of_16_bits([[7, 8, 9], [7, 8, 10]], clear), [[[0, 7]], [[0, 8]], [[0, 10]]]),
    ):
        read = read_image(data)
        assert read.array.tolist() == wanted
        assert read.warnings == ("PNG: transparency was laid over black",)
        with pytest.raises(InvalidInput, match="a label map cannot be transparent"):
            read_image(data, kind="labels")


@pytest.mark.parametrize("orientation", range(10))
def test_pictures_of_16_bits_are_turned_as_those_of_8(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    eight = np.random.default_rng(0).integers(0, 256, (3, 4, 5), np.uint8)
    shallow = saved(Image.fromarray(np.moveaxis(eight, 0, -1)), "PNG", exif=exif)
    tags = chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
    deep = encode_image(MedicalImage(eight.astype(np.uint16)), "png")
    deep = deep[:33] + tags + deep[33:]  # behind IHDR
    np.testing.assert_array_equal(read_image(deep).array, read_image(shallow).array)


@pytest.mark.parametrize("alpha", [[], [65535]])
def test_ids_in_equal_colours_of_16_bits_are_read(alpha: list[int]) -> None:
    ids = read_image(colours_of_16_bits([[300, 300, 300, *alpha]]), kind="labels")
    assert ids.array.tolist() == [[[300]]]
    with pytest.raises(InvalidInput, match="a colour picture is not a label map"):
        read_image(colours_of_16_bits([[300, 300, 301, *alpha]]), kind="labels")


class TestLabels:
    def test_palette_indices_are_the_ids_and_colours_are_seen(self) -> None:
        ids = np.array([[[0, 1, 2, 255]]], np.uint8)
        data = encode_image(MedicalImage(ids, kind="labels"), "png")
        with Image.open(BytesIO(data)) as shown:
            assert shown.mode == "P"
            assert np.asarray(shown).tolist() == ids[0].tolist()
            colours = np.asarray(shown.convert("RGB"))[0]
        np.testing.assert_array_equal(colours, label_palette()[ids[0, 0]])
        assert len({tuple(colour) for colour in colours[:3]}) == 3

    def test_the_source_palette_is_kept(self) -> None:
        source = Image.fromarray(np.array([[0, 1, 2]], np.uint8))
        source.putpalette([0, 0, 0, 10, 20, 30, 40, 50, 60])
        read = read_image(saved(source, "PNG"), kind="labels")
        assert read.array.tolist() == [[[0, 1, 2]]]
        with Image.open(BytesIO(encode_image(read, "png"))) as again:
            assert np.asarray(again.convert("RGB"))[0, 1:].tolist() == [[10, 20, 30], [40, 50, 60]]

    def test_ids_above_255_become_16_bit_grey(self) -> None:
        labels = MedicalImage(np.array([[[0, 300]]]), kind="labels")
        assert read_image(encode_image(labels, "png"), kind="labels").array.tolist() == [[[0, 300]]]

    def test_ids_above_65535_are_refused(self) -> None:
        labels = MedicalImage(np.array([[[0, 70_000]]]), kind="labels")
        with pytest.raises(InvalidInput, match="ids up to 65535, got 70000"):
            encode_image(labels, "png")

    @pytest.mark.parametrize(("bits", "row"), [(1, 0b01000000), (2, 0b00011011), (4, 0x1F)])
    def test_grey_ids_of_few_bits_are_not_spread(self, bits: int, row: int) -> None:
        data = png(8 // bits if bits > 1 else 2, 1, bytes([0, row]), bits=bits)
        expected = {1: [0, 1], 2: [0, 1, 2, 3], 4: [1, 15]}[bits]
        assert read_image(data, kind="labels").array[0, 0].tolist() == expected
        assert read_image(data).array.max() == 255

    def test_transparent_grey_is_refused_and_opaque_is_read(self) -> None:
        pixels = np.full((2, 2, 2), 255, np.uint8)
        pixels[..., 0] = 3
        assert read_image(saved(Image.fromarray(pixels), "PNG"), kind="labels").array.max() == 3
        pixels[0, 0, 1] = 7
        with pytest.raises(InvalidInput, match="a label map cannot be transparent"):
            read_image(saved(Image.fromarray(pixels), "PNG"), kind="labels")


class TestColours:
    def test_opaque_alpha_is_dropped(self) -> None:
        read = read_image(saved(Image.new("RGBA", (3, 2), (10, 20, 30, 255)), "PNG"))
        assert read.array[:, 0, 0].tolist() == [10, 20, 30] and read.warnings == ()

    def test_transparency_is_laid_over_black_and_told(self) -> None:
        read = read_image(saved(Image.new("RGBA", (3, 2), (100, 200, 50, 128)), "PNG"))
        np.testing.assert_allclose(read.array[:, 0, 0], [50, 100, 25], atol=1)
        assert read.warnings == ("PNG: transparency was laid over black",)

    def test_a_palette_of_colours_is_rgb_and_of_greys_is_grey(self) -> None:
        for colours, channels in [([0, 0, 0, 9, 8, 7], 3), ([0, 0, 0, 9, 9, 9], 1)]:
            source = Image.fromarray(np.array([[0, 1]], np.uint8))
            source.putpalette(colours)
            read = read_image(saved(source, "PNG")).array
            assert len(read) == channels
            assert read[:, 0, 1].tolist() == colours[3 : 3 + channels]

    def test_orientation_tags_are_obeyed(self) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        data = saved(Image.fromarray(np.array([[1, 2, 3]], np.uint8)), "PNG", exif=exif)
        assert read_image(data).array.tolist() == [[[1], [2], [3]]]


class TestWriting:
    def test_floats_in_0_to_1_are_scaled(self) -> None:
        image = MedicalImage(np.array([[[0.0, 0.5, 1.0]]], np.float32))
        assert read_image(encode_image(image, "png")).array.tolist() == [[[0, 128, 255]]]

    @pytest.mark.parametrize("value", [-0.5, 1.5, np.nan])
    def test_other_floats_are_refused(self, value: float) -> None:
        with pytest.raises(InvalidInput, match=r"png holds 0..1 of float64, got .*: normalize"):
            encode_image(MedicalImage(np.full((1, 2, 2), value)), "png")

    def test_integers_that_would_wrap_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match=r"png holds 0..255 of int16, got -3 to -3"):
            encode_image(MedicalImage(np.full((1, 2, 2), -3, np.int16)), "png")

    def test_volumes_and_classes_are_refused(self) -> None:
        with pytest.raises(UnsupportedFormat, match="as png, not even one of a single slice"):
            encode_image(MedicalImage(np.zeros((1, 2, 2, 2))), "png")
        with pytest.raises(UnsupportedFormat, match="4 channels cannot be written as png"):
            encode_image(MedicalImage(np.zeros((4, 2, 2))), "png")


class TestHostile:
    def test_20000_squared_is_refused_from_its_header(self) -> None:
        with pytest.raises(InputTooLarge, match="20000 x 20000 are 400000000 voxels"):
            read_image(png(20_000, 20_000, bytes(1000)))

    def test_12000_squared_is_refused_too(self) -> None:
        with pytest.raises(InputTooLarge, match="12000 x 12000"):
            read_image(png(12_000, 12_000, bytes(1000)))

    def test_a_wrong_checksum(self) -> None:
        data = bytearray(encode_image(picture("u1"), "png"))
        data[50] ^= 1
        with pytest.raises(InvalidInput, match="wrong checksum of chunk b'IDAT'"):
            read_image(bytes(data))

    def test_bytes_after_the_end(self) -> None:
        with pytest.raises(InvalidInput, match="1 bytes after its end"):
            read_image(encode_image(picture("u1"), "png") + b"x")

    def test_too_few_pixels_behind_right_checksums(self) -> None:
        with pytest.raises(InvalidInput, match="101 bytes of pixels instead of 10100"):
            read_image(png(100, 100, bytes(101)))

    def test_broken_pixels_behind_right_checksums(self) -> None:
        data = png(2, 2, bytes(6))
        broken = chunk(b"IDAT", b"not zlib")
        with pytest.raises(InvalidInput, match="the pixels are broken"):
            read_image(data[: data.index(b"IDAT") - 4] + broken + chunk(b"IEND"))

    def test_pixels_in_two_pieces(self) -> None:
        rows = zlib.compress(bytes(6))
        whole = png(2, 2, bytes(6), extra=chunk(b"IDAT", rows[:4]) + chunk(b"teSt"))
        with pytest.raises(InvalidInput, match="must be contiguous"):
            read_image(whole)

    def test_a_text_bomb(self) -> None:
        bomb = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(8 * 2**20)))
        with pytest.raises(InvalidInput, match="cut or broken"):
            read_image(png(1, 1, b"\0\0", extra=bomb))

    def test_an_animation(self) -> None:
        frames = [Image.new("L", (3, 3), grey) for grey in (0, 255)]
        with pytest.raises(UnsupportedFormat, match="animations are not read"):
            read_image(saved(frames[0], "PNG", save_all=True, append_images=frames[1:]))

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (png(0, 4, b"\0"), "invalid picture: 4 x 0 pixels"),
            (png(1, 1, b"\0\0", bits=3), "3 bits"),
            (png(1, 1, b"\0\0", colour=5), "colour type 5"),
            (PNG_SIGNATURE + chunk(b"IHDR", b"1234") + chunk(b"IEND"), "IHDR must have 13 bytes"),
            (PNG_SIGNATURE + chunk(b"IEND"), "must begin with its only IHDR"),
            (png(1, 1, b"\0\0", extra=chunk(b"teSt") * 2**16), "at most 65536 chunks"),
        ],
    )
    def test_impossible_chunks(self, data: bytes, message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            read_image(data)

    def test_pillows_own_bound_counts_as_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputTooLarge, match="too large to decode"):
                read_image(encode_image(picture("u1"), "png"))

    def test_text_is_not_written_back(self) -> None:
        text = PngImagePlugin.PngInfo()
        text.add_text("Patient", "Jane Doe")
        data = saved(Image.new("L", (3, 3)), "PNG", pnginfo=text)
        assert b"Jane Doe" in data
        assert b"Jane Doe" not in encode_image(read_image(data), "png")
