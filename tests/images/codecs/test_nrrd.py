from __future__ import annotations

import gzip
import itertools
import time
from pathlib import Path
from typing import Any

import nrrd
import numpy as np
import pytest

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import MedicalImage, SliceStack, encode_image, read_image
from tests.contract.formats import FormatContract, picture

OBLIQUE = np.array(
    [[-1.1, 0.2, 0.3, 40], [0.25, 0.9, -0.4, -12.5], [0.1, 0.35, 2.8, 7], [0, 0, 0, 1]]
)
VOXELS = np.arange(60, dtype=np.int16).reshape(3, 4, 5) - 20


def by_hand(*lines: str, voxels: bytes = bytes(4), **changed: Any) -> bytes:  # noqa: ANN401
    fields = {"type": "uchar", "dimension": "2", "sizes": "2 2", "encoding": "raw"} | changed
    listed = [f"{name.replace('_', ' ')}: {value}" for name, value in fields.items() if value]
    return "\n".join(["NRRD0004", *listed, *lines]).encode() + b"\n\n" + voxels


class TestNrrd(FormatContract):
    name = "nrrd"

    def images(self) -> list[MedicalImage]:
        dtypes = ["i2", "u1", "i1", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
        flips = [np.diag([*signs, 1.0]) for signs in itertools.product((1.0, -1.0), repeat=3)]
        volumes = [MedicalImage(VOXELS[None].astype(d), OBLIQUE, "nrrd") for d in dtypes]
        flipped = [MedicalImage(VOXELS[None], OBLIQUE @ flip, "nrrd") for flip in flips]
        pictures = [picture("u1", channels, format="nrrd") for channels in (1, 3, 4)]
        several = MedicalImage(np.stack([VOXELS, VOXELS + 1]), OBLIQUE, "nrrd")
        return [*volumes, *flipped, *pictures, several]


class TestRawNrrd(FormatContract):
    name = "nrrd"

    def images(self) -> list[MedicalImage]:
        return [picture("u1", format="nrrd")]

    def encoded(self) -> bytes:
        return by_hand(sizes="17 13", voxels=picture("u1").array.tobytes())


@pytest.mark.parametrize("space", ["right-anterior-superior", "left-posterior-superior", "LAS"])
@pytest.mark.parametrize("encoding", ["raw", "gzip"])
@pytest.mark.parametrize("endian", ["<", ">"])
def test_what_pynrrd_writes(tmp_path: Path, space: str, encoding: str, endian: str) -> None:
    signs = {"r": (1, 1, 1), "l": (-1, -1, 1), "L": (-1, 1, 1)}[space[0]]
    ours = np.diag([*signs, 1.0]) @ OBLIQUE
    header: dict[str, Any] = {
        "space": space,
        "space directions": ours[:3, :3].T,
        "space origin": ours[:3, 3],
        "encoding": encoding,
    }
    voxels = VOXELS.astype(VOXELS.dtype.newbyteorder(endian))  # type: ignore[arg-type]
    nrrd.write(str(tmp_path / "x.nrrd"), voxels, header | {"patient": "Doe"})
    read = read_image(tmp_path / "x.nrrd")
    np.testing.assert_array_equal(read.array[0], VOXELS)
    np.testing.assert_allclose(read.affine, OBLIQUE)
    assert read.warnings == ()


def test_what_pynrrd_reads(tmp_path: Path) -> None:
    MedicalImage(VOXELS[None], OBLIQUE).save(tmp_path / "x.nrrd")
    voxels, header = nrrd.read(str(tmp_path / "x.nrrd"))
    np.testing.assert_array_equal(voxels, VOXELS)
    assert header["space"] == "left-posterior-superior"
    lps = np.diag([-1.0, -1, 1, 1]) @ OBLIQUE
    np.testing.assert_allclose(header["space directions"], lps[:3, :3].T)
    np.testing.assert_allclose(header["space origin"], lps[:3, 3])
    MedicalImage(np.stack([VOXELS] * 4), OBLIQUE).save(tmp_path / "classes.nrrd")
    classes, header = nrrd.read(str(tmp_path / "classes.nrrd"))
    assert classes.shape == (4, 3, 4, 5)
    assert header["kinds"] == ["list", "domain", "domain", "domain"]


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("kind", ["list", "vector", "time", None])
def test_channels_lie_along_the_axis_that_the_header_names(axis: int, kind: str | None) -> None:
    """Of programs that keep them first, such as ITK, or last, such as sequences of 3D Slicer."""
    channels = np.stack([VOXELS, VOXELS + 100])
    lps = np.diag([-1.0, -1, 1, 1]) @ OBLIQUE
    vectors = [f"({','.join(map(str, column))})" for column in lps[:3, :3].T]
    vectors.insert(axis, "none")
    kinds = ["domain"] * 3
    kinds.insert(axis, kind or "")
    stored = np.moveaxis(channels, 0, axis)
    data = by_hand(
        dimension="4", sizes=" ".join(map(str, stored.shape)), type="short", endian="little",
        space="left-posterior-superior", space_directions=" ".join(vectors),
        space_origin=f"({','.join(map(str, lps[:3, 3]))})", kinds=" ".join(kinds) if kind else "",
        voxels=stored.tobytes(order="F"),
    )  # fmt: skip
    read = read_image(data)
    np.testing.assert_array_equal(read.array, channels)
    np.testing.assert_allclose(read.affine, OBLIQUE)
    np.testing.assert_array_equal(read_image(data, index=1).array, channels[1:])
    spaced = by_hand(
        "units: " + " ".join('""' if at == axis else '"cm"' for at in range(4)),
        dimension="4", sizes=" ".join(map(str, stored.shape)), type="short", endian="little",
        spacings=" ".join("nan" if at == axis else "2" for at in range(4)),
        kinds=" ".join(kinds) if kind else "", voxels=stored.tobytes(order="F"),
    )  # fmt: skip
    if kind:
        assert read_image(spaced).spacing == (20, 20, 20)
    else:
        with pytest.raises(UnsupportedFormat, match="with channels along one axis"):
            read_image(spaced)


@pytest.mark.parametrize(
    ("space", "sign"), [("left-posterior-superior-time", -1), ("LPST", -1), ("RAST", 1)]
)
def test_a_space_with_time(space: str, sign: int) -> None:
    data = by_hand(
        dimension="4", sizes="1 2 2 1", space=space, space_origin="(1,2,3,9)",
        space_directions="(2,0,0,0) (0,3,0,0) (0,0,4,0) (0,0,0,5)",
    )  # fmt: skip
    read = read_image(data)
    np.testing.assert_array_equal(
        read.affine,
        np.diag([sign, sign, 1, 1]) @ [[2, 0, 0, 1], [0, 3, 0, 2], [0, 0, 4, 3], [0, 0, 0, 1]],
    )
    assert read.array.shape == (1, 1, 2, 2)


def test_one_time_point_without_a_space_is_a_volume() -> None:
    read = read_image(by_hand(dimension="4", sizes="1 2 2 1", spacings="2 3 4 1"))
    assert read.array.shape == (1, 1, 2, 2) and read.spacing == (2, 3, 4)


def test_hundreds_of_segments_are_read_again() -> None:
    """As many as a parcellation of the cortex has."""
    names = {number: f"area {number} of the left hemisphere" for number in range(1, 361)}
    ids = np.arange(10 * 6 * 7, dtype=np.uint16).reshape(1, 10, 6, 7) % 361
    content = encode_image(MedicalImage(ids, OBLIQUE, kind="labels", names=names), "nrrd")
    assert read_image(content, kind="labels").names == names


def test_segments_in_several_layers_are_refused() -> None:
    data = by_hand(
        "Segment0_LabelValue:=1", "Segment0_Name:=liver", dimension="4", sizes="2 1 1 2",
        kinds="list domain domain domain",
    )  # fmt: skip
    with pytest.raises(UnsupportedFormat, match="segments that overlap, in several layers"):
        read_image(data, kind="labels")
    assert read_image(data).array.shape == (2, 1, 1, 2)


def test_what_simpleitk_writes_of_several_channels(tmp_path: Path) -> None:
    sitk = pytest.importorskip("SimpleITK")
    for channels in (2, 3):
        voxels = np.random.default_rng(0).integers(0, 99, (5, 4, 3, channels)).astype(np.int16)
        sitk.WriteImage(sitk.GetImageFromArray(voxels, isVector=True), str(tmp_path / "x.nrrd"))
        read = read_image(tmp_path / "x.nrrd")
        np.testing.assert_array_equal(read.array, voxels.transpose(3, 2, 1, 0))
        read.save(tmp_path / "ours.nrrd")
        ours = sitk.ReadImage(str(tmp_path / "ours.nrrd"))
        np.testing.assert_array_equal(sitk.GetArrayFromImage(ours), voxels)


def test_a_label_map_names_its_segments(tmp_path: Path) -> None:
    ids = (VOXELS[None] % 3).astype(np.uint8)
    names = {0: "background", 2: "grey\nmatter", 1: "white matter"}
    palette = np.array([[0, 0, 0], [255, 0, 0], [0, 51, 0]], np.uint8)
    labels = MedicalImage(ids, OBLIQUE, kind="labels", names=names, palette=palette)
    labels.save(tmp_path / "x.seg.nrrd")
    voxels, header = nrrd.read(str(tmp_path / "x.seg.nrrd"))
    np.testing.assert_array_equal(voxels, ids[0])
    assert header["Segment0_Name"] == "white matter"
    assert (header["Segment0_LabelValue"], header["Segment0_Color"]) == ("1", "1 0 0")
    assert header["Segment1_Name"] == "grey matter"
    assert (header["Segment1_LabelValue"], header["Segment1_Color"]) == ("2", "0 0.2 0")
    assert header["Segment1_Extent"] == "0 2 0 3 0 4"
    assert "Segment2_Name" not in header  # the background
    read = read_image(tmp_path / "x.seg.nrrd", kind="labels")
    np.testing.assert_array_equal(read.array, ids)
    assert read.names == {1: "white matter", 2: "grey matter"}
    assert read_image(tmp_path / "x.seg.nrrd").names == {}  # not of intensities


def test_a_picture_is_the_same_way_up_as_a_slice() -> None:
    volume = MedicalImage(picture("u1").array.swapaxes(1, 2)[..., None], np.diag([-1.0, -1, 1, 1]))
    flat = read_image(by_hand(sizes="17 13", voxels=picture("u1").array.tobytes()))
    np.testing.assert_array_equal(flat.array, SliceStack.from_image(volume).array[0])


def test_another_files_bytes_never_become_voxels(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"ABCD")
    for field in ("data file", "datafile"):
        detached = by_hand(f"{field}: {secret}", voxels=b"")
        with pytest.raises(InvalidInput, match="lie in another file"):
            read_image(detached.rstrip() + b"\n")  # as ITK ends it
        (tmp_path / "x.nhdr").write_bytes(detached)
        with pytest.raises(InvalidInput, match="lie in another file") as caught:
            read_image(tmp_path / "x.nhdr")
        assert str(secret) not in str(caught.value)


def test_a_bomb() -> None:
    data = by_hand(sizes="20000 20000", encoding="gzip", voxels=gzip.compress(bytes(10**6)))
    with pytest.raises(InputTooLarge, match="20000 x 20000"):
        read_image(data)
    small = by_hand(encoding="gzip", voxels=gzip.compress(bytes(10**6)))
    with pytest.raises(InvalidInput, match="more voxels than the 4 bytes"):
        read_image(small)


def test_without_a_space_left_and_right_are_a_guess() -> None:
    data = by_hand(dimension="3", sizes="1 2 2", spacings="1 2 3")
    read = read_image(data)
    assert read.spacing == (1.0, 2.0, 3.0)
    assert "a guess" in read.warnings[0]
    data = by_hand(dimension="3", sizes="1 2 2", space_directions="(2,0,0) (0,1,0) (0,0,1)")
    assert "no space is named" in read_image(data).warnings[0]


ORIENTED = (
    "space: RAS", "space directions: (2,0,0) (0,3,0) (0,0,4)", "space origin: (5,6,7)",
)  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "plane"),
    [
        (("spacings: 2 3",), (2, 3, 0, 0)),
        (("spacings: 2 3", 'units: "um" "mm"'), (0.002, 3, 0, 0)),
        (("space dimension: 2", "space directions: (2,0) (0,3)", "space origin: (5,6)"),
         (2, 3, 5, 6)),
        (("spacings: nan nan",), None),
        (("space: LPS", "space directions: (2,0,0) (0,3,0)", "space origin: (5,6,7)"), None),
    ],
)  # fmt: skip
def test_where_the_pixels_of_a_picture_lie(
    lines: tuple[str, ...], plane: tuple[float, ...] | None
) -> None:
    found = read_image(by_hand(*lines)).plane
    if plane is None:
        assert found is None
    else:
        assert found is not None
        assert (found[0, 0], found[1, 1], found[0, 2], found[1, 2]) == plane


def test_rows_of_blanks_take_no_time() -> None:
    """It rose with the square of their number."""
    hostile = by_hand("space directions: 1" + " " * 300_000 + "x")
    began = time.process_time()
    with pytest.raises(InvalidInput, match="a field of the header is broken"):
        read_image(hostile)
    assert time.process_time() - began < 20


def test_volumes_without_voxel_sizes_are_told() -> None:
    """As pynrrd writes an array without a header."""
    plain: dict[str, Any] = {"dimension": "3", "sizes": "2 2 1"}
    warnings = read_image(by_hand(**plain)).warnings
    assert (
        warnings[1]
        == "NRRD: the header has no voxel size; 1 mm is assumed, for volumes in mm3, too"
    )
    assert len(read_image(by_hand("spacings: 1 1 1", **plain)).warnings) == 1


@pytest.mark.parametrize(
    ("lengths", "field"), [(ORIENTED, "space units"), (("spacings: 2 3 4",), "units")]
)
def test_lengths_are_in_the_units_that_the_header_names(
    lengths: tuple[str, ...], field: str
) -> None:
    def of(units: str) -> MedicalImage:
        line = f"{field}: {units}"
        return read_image(by_hand(*lengths, line, dimension="3", sizes="1 2 2"))

    found = of('"um" "mm" "cm"')
    np.testing.assert_allclose(found.affine.diagonal()[:3], (0.002, 3, 40))
    if lengths == ORIENTED:
        np.testing.assert_allclose(found.affine[:3, 3], (0.005, 6, 70))
        assert not found.warnings
    unknown = of('"ell" "mm" "mm"')
    np.testing.assert_allclose(unknown.affine.diagonal()[:3], (2, 3, 4))
    assert "not known" in unknown.warnings[-1]
    with pytest.raises(InvalidInput, match="units must be given for three axes"):
        of('"mm" "mm"')


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"sizes": "2 -2"}, InvalidInput, "sizes must be whole numbers"),
        ({"sizes": "2 2.5"}, InvalidInput, "sizes must be whole numbers"),
        ({"sizes": "2 9999999999"}, InvalidInput, "sizes must be whole numbers"),
        ({"dimension": "x"}, InvalidInput, "a field of the header is broken"),
        (
            {"dimension": "3", "sizes": "1 2 2", "spacings": "1 2"},
            InvalidInput, "spacings must be given for three axes",
        ),
        ({"sizes": "2 0"}, InvalidInput, "sizes must be as many as dimension"),
        ({"dimension": "3"}, InvalidInput, "sizes must be as many as dimension"),
        ({"type": "block"}, UnsupportedFormat, "integer or float of up to 64 bits"),
        ({"type": "short"}, InvalidInput, "endian is missing"),
        ({"type": "short", "endian": "middle"}, InvalidInput, "little or big"),
        ({"encoding": "bzip2"}, UnsupportedFormat, "raw or gzip"),
        ({"encoding": "ascii", "type": "short"}, UnsupportedFormat, "raw or gzip"),
        ({"byte_skip": "-1"}, UnsupportedFormat, "byte skip"),
        ({"line_skip": "1"}, UnsupportedFormat, "line skip"),
        ({"sizes": "2 3"}, InvalidInput, "describes 6 bytes, the file has 4"),
        ({"sizes": None}, InvalidInput, "the field sizes is missing"),
        ({"dimension": "4", "sizes": "1 2 1 2"}, UnsupportedFormat, "one volume is read"),
        (
            {"dimension": "3", "sizes": "1 2 2", "kinds": "RGBA-color domain domain"},
            UnsupportedFormat, "with channels along one axis that kinds names",
        ),
        (
            {"dimension": "3", "sizes": "1 2 2", "kinds": "list list domain"},
            UnsupportedFormat, "one volume is read",
        ),
        (
            {"dimension": "3", "sizes": "1 2 2", "kinds": "RGB-color domain domain"},
            InvalidInput, "three colours must have the size 3, got 1",
        ),
        ({"kinds": "domain"}, InvalidInput, "kinds must be as many as dimension"),
        (
            {"dimension": "3", "sizes": "1 2 2", "space_directions": "(1,0,0) (0,1,0)"},
            InvalidInput, "space directions must be given for three axes",
        ),
        (
            {"dimension": "3", "sizes": "1 2 2", "space_directions": "(1,0,0) (0,1,0) (0,nan,1)"},
            InvalidInput, "finite",
        ),
        (
            {"dimension": "3", "sizes": "1 2 2", "space_directions": "(1,0,0) (0,1,0) (0,x,1)"},
            InvalidInput, "a field of the header is broken",
        ),
        (
            {
                "dimension": "3", "sizes": "1 2 2", "space": "scanner-xyz",
                "space_directions": "(1,0,0) (0,1,0) (0,0,1)",
            },
            UnsupportedFormat, "RAS, LAS or LPS",
        ),
    ],
)  # fmt: skip
def test_headers_that_cannot_be(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_image(by_hand(**fields))


def test_nothing_may_be_skipped() -> None:
    voxels = bytes(range(4))
    read = read_image(by_hand("line skip: 0", "byteskip: 0 ", voxels=voxels))
    np.testing.assert_array_equal(read.array, read_image(by_hand(voxels=voxels)).array)


@pytest.mark.parametrize(
    ("line", "message"), [("nonsense", "is not a field"), ("type: short", "broken or given twice")]
)
def test_lines_that_are_no_field_or_given_twice(line: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image(by_hand(line))


def test_key_value_pairs_and_unused_fields_are_passed_over() -> None:
    pairs = ("type:=Doe^Jane", "# a comment", 'labels: "x', "Content: Doe^Jane")
    assert read_image(by_hand(*pairs)).array.tolist() == [[[0, 0], [0, 0]]]


def test_only_a_line_feed_ends_a_line() -> None:
    """In a text of another program, or the name of a label, may be anything else."""
    assert read_image(by_hand("note:=a\u2028b\x0cc", "content: \x85d")).array.shape == (1, 2, 2)
    names = {1: "left\u2028lung", 2: "right\x85lung"}
    labels = MedicalImage(VOXELS[None] % 3, OBLIQUE, kind="labels", names=names)
    assert read_image(encode_image(labels, "nrrd"), kind="labels").names == names


def test_vectors_may_have_blanks() -> None:
    lines = (
        "space: RAS",
        "space directions: ( 2, 0.5 ,0) (0, 3, 0)  (0,0 , 4 )",
        "space origin: (5, 6,7)",
    )
    read = read_image(by_hand(*lines, dimension="3", sizes="1 2 2"))
    np.testing.assert_array_equal(
        read.affine, [[2, 0, 0, 5], [0.5, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]]
    )


def test_a_header_without_end() -> None:
    with pytest.raises(InvalidInput, match="no empty line"):
        read_image(b"NRRD0004\n" + b"# comment\n" * 10_000)


def test_a_picture_of_classes_is_written_with_a_list_axis(tmp_path: Path) -> None:
    encoded = encode_image(MedicalImage(np.random.default_rng(0).random((4, 5, 6))), "nrrd")
    (tmp_path / "x.nrrd").write_bytes(encoded)
    assert nrrd.read(str(tmp_path / "x.nrrd"))[0].shape == (4, 6, 5)
