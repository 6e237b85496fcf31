"""Decoding in processes that may die: what goes in comes out, and what they do harms nobody."""

from __future__ import annotations

import io
import os
import signal
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import numpy as np
import psutil
import pytest
import tifffile
from fastapi.testclient import TestClient
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
)

from api.app import create_app
from api.decoding import decoder, wire
from api.decoding.decoder import Decoder, DecoderDied, DecodeTimeout
from api.decoding.pool import DecodePool
from api.processes import module_command
from api.settings import Settings
from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import DEFAULT_LIMITS, Kind, Limits, MedicalImage, encode_image, read_image
from tests.api.lasting import LastingDecoders
from tests.api.mutations import good_files
from tests.api.running import run_async
from tests.images.codecs.test_dicom_syntaxes import PICTURE, SYNTAXES, compressed
from tests.images.dicom_files import IDENTITY, dataset, encoded, slice_file, zipped_series
from tests.images.picture_files import PNG_SIGNATURE, chunk, saved

MEMORY = 512 * 2**20


@pytest.fixture(scope="module")
def pool() -> Iterator[DecodePool]:
    made = DecodePool(1, MEMORY, 30, DEFAULT_LIMITS, 8)
    yield made
    made.close()


def decoded(pool: DecodePool, content: bytes, kind: Kind = "image") -> MedicalImage:
    return run_async(pool.decode(content, kind))


def segments() -> bytes:
    """A DICOM SEG with a name, and a code with a side."""
    image = read_image(slice_file(**IDENTITY))
    labels = image.with_array((image.array > 22).astype(np.uint8), kind="labels")
    return encode_image(replace(labels, names={1: "left hippocampus"}), "dicom")


def test_an_image_arrives_as_it_was_read(
    pool: DecodePool, volume: bytes, picture: bytes, labels: bytes
) -> None:
    kinds: list[tuple[bytes, Kind]] = [
        (volume, "image"), (picture, "image"), (labels, "labels"), (slice_file(), "image"),
        (slice_file(**IDENTITY), "image"), (zipped_series(), "image"), (segments(), "labels"),
    ]  # fmt: skip
    for content, kind in kinds:
        found, wanted = decoded(pool, content, kind), read_image(content, kind=kind)
        np.testing.assert_array_equal(found.array, wanted.array)
        assert found.array.dtype == wanted.array.dtype and found.array.flags.writeable
        np.testing.assert_array_equal(found.affine, wanted.affine)
        assert (found.format, found.kind, found.warnings, found.origin) == (
            wanted.format, wanted.kind, wanted.warnings, wanted.origin,
        )  # fmt: skip
        assert (found.names, found.codes) == (wanted.names, wanted.codes)
        assert (found.patient, found.series) == (wanted.patient, wanted.series)
        assert (found.palette is None) == (wanted.palette is None)
        assert encode_image(found, found.format) == encode_image(wanted, wanted.format)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"GIF89a" + bytes(100), UnsupportedFormat),
        (b"\x93NUMPY", InvalidInput),
        (encode_image(MedicalImage(np.zeros((1, 20_000, 7_000), np.uint8)), "npz"), InputTooLarge),
    ],
)
def test_what_is_wrong_is_said_as_the_library_says_it(
    pool: DecodePool, content: bytes, error: type[CapsMedError]
) -> None:
    before = pool.pids()
    with pytest.raises(error) as caught:
        decoded(pool, content)
    with pytest.raises(error) as wanted:
        read_image(content)
    assert str(caught.value) == str(wanted.value)
    assert before in ([], pool.pids())


def test_a_file_over_the_size_never_reaches_a_process() -> None:
    pool = DecodePool(1, MEMORY, 30, Limits(max_bytes=10), 8)
    with pytest.raises(InputTooLarge, match="max_bytes"):
        decoded(pool, bytes(11))
    assert pool.pids() == []


def test_memory_is_bounded(picture: bytes) -> None:
    """A gigabyte of voxels that the limits allow, in a process that may take a quarter of it."""
    limits = Limits(max_inflated_bytes=2**31, max_voxels=2**30)
    pool = DecodePool(1, 256 * 2**20, 60, limits, 8)
    try:
        content = black_png(32_768)
        assert len(content) < 2_000_000
        with pytest.raises(InputTooLarge, match=r"more memory than is allowed|too large to decode"):
            decoded(pool, content)
        assert decoded(pool, picture).array.shape == (1, 21, 30)
        (pid,) = pool.pids()
        assert psutil.Process(pid).memory_info().rss < 600 * 2**20
    finally:
        pool.close()


def black_png(side: int) -> bytes:
    """A picture of equal blocks of 64 rows: nobody waits for a gigabyte to be packed."""
    rows, pack = bytes(64 * (side + 1)), zlib.compressobj(9, wbits=-15)
    block, checksum = pack.compress(rows) + pack.flush(zlib.Z_FULL_FLUSH), 1
    for _ in range(side // 64):
        checksum = zlib.adler32(rows, checksum)
    packed = b"\x78\xda" + block * (side // 64) + zlib.compressobj(9, wbits=-15).flush()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", packed + checksum.to_bytes(4, "big"))
    return PNG_SIGNATURE + header + pixels + chunk(b"IEND")


def test_time_is_bounded(picture: bytes) -> None:
    pool = DecodePool(1, MEMORY, 30, Limits(max_voxels=2**30), 8)
    try:
        run_async(pool.start())
        (pid,) = pool.pids()
        pool._seconds = 0.02
        with pytest.raises(DecodeTimeout, match=r"not decoded within 0.02 s"):
            decoded(pool, black_png(12_032))
        assert not psutil.pid_exists(pid)
        pool._seconds = 30
        assert decoded(pool, picture).array.shape == (1, 21, 30)
    finally:
        pool.close()


def test_a_process_that_is_killed_over_a_file_is_one_error(picture: bytes) -> None:
    """It is stopped, so that it surely has the file in its hands when it dies."""
    pool = DecodePool(1, MEMORY, 60, DEFAULT_LIMITS, 8)
    try:
        run_async(pool.start())
        (pid,) = pool.pids()
        os.kill(pid, signal.SIGSTOP)

        async def both() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails)
                while pool._free.qsize():
                    await anyio.sleep(0.01)
                os.kill(pid, signal.SIGKILL)

        async def fails() -> None:
            with pytest.raises(
                DecoderDied, match="the process that decoded the file ended unexpectedly"
            ):
                await pool.decode(picture, "image")

        run_async(both())
        assert decoded(pool, picture).array.shape == (1, 21, 30)
        assert pool.pids() != [pid]
    finally:
        pool.close()


def test_a_process_that_dies_in_its_sleep_is_noticed_by_nobody(
    pool: DecodePool, picture: bytes
) -> None:
    decoded(pool, picture)
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    assert decoded(pool, picture).array.shape == (1, 21, 30)


def killed_at_the_start(times: int) -> Any:  # noqa: ANN401 - a function in place of another
    """The command of a decoder that ends at once, `times` times."""
    left = [True] * times

    def command(module: str, *arguments: str) -> list[str]:
        if left and left.pop():
            return ["sh", "-c", "kill -9 $$"]
        return module_command(module, *arguments)

    return command


def test_a_decoder_that_is_killed_while_it_starts_is_replaced(
    picture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.decoding.decoder.module_command", killed_at_the_start(1))
    pool = DecodePool(1, MEMORY, 30, DEFAULT_LIMITS, 8)
    try:
        assert decoded(pool, picture).array.shape == (1, 21, 30)
    finally:
        pool.close()


def test_decoders_that_never_start_are_a_503_and_the_next_one_is_tried(
    models: Path, picture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.decoding.decoder.module_command", killed_at_the_start(2))
    LastingDecoders.end()  # or the service would take over one of them
    app = create_app(Settings(models=models, preload=("none",)))  # nothing is started early
    with TestClient(app, raise_server_exceptions=False) as client:
        url, files = "/v1/models/tiny-segmentation/segment", {"image": picture}
        answer = client.post(url, files=files)
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert answer.headers["Retry-After"] == "5"
        assert client.post(url, files=files).status_code == 200


@pytest.mark.parametrize(
    "said",
    ['{"error": []}', '{"error": "invalid_input"}', '{"unforeseen": 1}', "[" * 500_000],
    ids=["no code", "no message", "no words", "nested"],
)
def test_a_decoder_that_answers_nonsense_is_killed(
    said: str, picture: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a file has taken over: it gets no other file."""
    (tmp_path / "said").write_text(f'{{"ready": 1}}\n{said}\n')
    command = ["sh", "-c", f"cat {tmp_path / 'said'}; exec cat > /dev/null"]
    monkeypatch.setattr("api.decoding.decoder.module_command", lambda *_: command)
    one = Decoder(MEMORY)
    with pytest.raises(DecoderDied):
        one.decode(picture, "image", DEFAULT_LIMITS, 30, lambda _: None)
    assert not one.alive


def test_a_decoder_is_replaced_after_many_files(picture: bytes) -> None:
    pool = DecodePool(1, MEMORY, 30, DEFAULT_LIMITS, 8)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("api.decoding.decoder.FILES", 2)
            pids = []
            for _ in range(4):
                decoded(pool, picture)
                pids += pool.pids()
        assert pids[0] == pids[1] != pids[2] == pids[3]
        assert not psutil.pid_exists(pids[0])
    finally:
        pool.close()


def test_a_decoder_can_open_no_file_and_sees_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    decoder = Decoder(MEMORY)
    try:
        process = psutil.Process(decoder.pid)
        assert "SECRET_TOKEN" not in process.environ()
        assert process.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
        assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        assert process.rlimit(psutil.RLIMIT_NOFILE)[0] <= process.num_fds()
        assert 0 < process.rlimit(psutil.RLIMIT_AS)[0] < MEMORY + 2 * 2**30
    finally:
        decoder.kill()


def every_variant() -> dict[str, bytes]:
    """Files whose decoding needs each part of each library."""
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    found = good_files()
    found["nrrd"] = encode_image(MedicalImage(grey[None]), "nrrd")
    found["jpeg"] = encode_image(MedicalImage(grey[None]), "jpeg")
    found["bmp"] = encode_image(MedicalImage(np.stack([grey] * 3)), "bmp")
    deep = np.stack([grey.astype(np.uint16) * 999] * 3)
    found["png of 16 bits"] = encode_image(MedicalImage(deep), "png")
    for compression in ("lzw", "deflate", "zstd", "packbits", "jpeg"):
        predictor = compression in ("lzw", "deflate", "zstd")
        found[f"{compression} in tiff"] = tiff(grey, compression=compression, predictor=predictor)
    found["floats in tiff"] = tiff(grey.astype("f4"), compression="deflate", predictor=True)
    found["big tiff"] = tiff(grey, bigtiff=True)
    found["bilevel tiff"] = saved(Image.fromarray(grey > 9), "TIFF", compression="group4")
    rle = dataset(grey)
    rle.compress(RLELossless)
    found["rle"] = encoded(rle, RLELossless)
    found["deflated dicom"] = encoded(dataset(grey), DeflatedExplicitVRLittleEndian)
    for syntax, form in ((JPEG2000Lossless, "JPEG2000"), (JPEGBaseline8Bit, "JPEG")):
        made = dataset(grey)
        made.PixelData = encapsulate([saved(Image.fromarray(grey), form)])
        made["PixelData"].is_undefined_length = True
        found[f"{form} in dicom"] = encoded(made, syntax)
    for number, compress in SYNTAXES.items():
        stream = compress(PICTURE)
        found[f"transfer syntax {number}"] = compressed(number, [stream], PICTURE)
    return found


def tiff(array: Any, **options: Any) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    tifffile.imwrite(file, array, **options)
    return file.getvalue()


def test_a_decoder_that_can_open_no_file_reads_all_that_is_read(pool: DecodePool) -> None:
    for name, content in every_variant().items():
        found, wanted = decoded(pool, content), read_image(content)
        np.testing.assert_array_equal(found.array, wanted.array, err_msg=name)


@pytest.mark.parametrize("form", ["nifti", "nrrd", "npy", "npz"])
def test_a_decoder_that_can_open_no_file_reads_volumes_too(pool: DecodePool, form: str) -> None:
    affine = np.array([[0.8, -0.6, 0, 3], [0.6, 0.8, 0, -5], [0, 0, 2.5, 7], [0, 0, 0, 1.0]])
    kinds: tuple[Kind, ...] = ("image", "labels")
    for kind in kinds:
        array = np.arange(60, dtype=np.uint8).reshape(1, 3, 4, 5)
        volume = MedicalImage(array, affine, kind=kind, names={7: "nucleus"})
        content = encode_image(volume, form)
        found, wanted = decoded(pool, content, kind), read_image(content, kind=kind)
        np.testing.assert_array_equal(found.array, wanted.array)
        np.testing.assert_array_equal(found.affine, wanted.affine)
        assert found.names == wanted.names


def test_decoders_end_with_their_service() -> None:
    """Where the kernel does not see to it, the end of the pipe does."""
    decoder = Decoder(MEMORY)
    process = psutil.Process(decoder.pid)
    assert decoder._process.stdin is not None
    decoder._process.stdin.close()
    process.wait(timeout=30)
    decoder.kill()


def sent(image: MedicalImage) -> io.BytesIO:
    """What a decoder sends of an image."""
    stream = io.BytesIO()
    wire.announce_image(stream, image)
    wire.send_array(stream, image.array)
    stream.seek(0)
    return stream


def received(stream: BinaryIO, line: dict[str, Any]) -> MedicalImage:
    """The image that `line` announces."""
    return wire.receive_image(stream, line, wire.announced_bytes(line, 2**20))


@pytest.mark.parametrize(
    "said",
    [
        b"no json\n",
        b"[1]\n",
        b'{"error": "made_up", "message": ""}\n',
        b"{" + b" " * 2**21,
        b'{"image": {}}\n',
        b'{"image": {"dtype": "|O8", "shape": [1, 1, 1]}}\n',
        b'{"image": {"dtype": "<f8", "shape": [1, 99999, 99999], "format": "png"}}\n',
        b'{"image": {"dtype": "|u1", "shape": [1, 1, 1], "format": "exe"}}\n',
    ],
)
def test_what_a_decoder_says_is_not_trusted(said: bytes) -> None:
    stream = io.BufferedReader(io.BytesIO(said))
    with pytest.raises((wire.Garbled, KeyError)):
        line = wire.receive_line(stream)
        if "image" in line:
            received(stream, line["image"])
        raise KeyError(line["error"])


@pytest.mark.parametrize(
    "changed",
    [
        {"attributes": {"PatientName": "Doe^Jane"}}, {"attributes": {"Rows": 7}},
        {"more": 1}, {"attributes": []},
        {"slices": [["1.2", float("inf")]]}, {"slices": [["1.2", 1], ["1.2", 2]]},
        {"slices": []}, {"slices": [["../etc", 1]]}, {"slices": [["1.2", "x"]]}, {"frames": True},
    ],
)  # fmt: skip
def test_what_a_decoder_says_of_an_origin_is_not_trusted(changed: dict[str, Any]) -> None:
    stream = sent(read_image(slice_file(**IDENTITY)))
    line = wire.receive_line(stream)["image"]
    line["origin"] |= changed
    with pytest.raises(wire.Garbled):
        received(stream, line)


@pytest.mark.parametrize(
    "content",
    [
        b"no json",
        b"[1]",
        b'{"images": [], "left_out": [1]}',
        b'{"images": [["a", 1]], "left_out": []}',
    ],
)
def test_what_a_decoder_says_of_series_is_not_trusted(content: bytes) -> None:
    with pytest.raises(wire.Garbled):
        wire.receive_series(io.BufferedReader(io.BytesIO(content)), len(content))
    sizes: tuple[Any, ...] = (0, -1, 2**40, "x", None)
    for size in sizes:
        with pytest.raises(wire.Garbled):
            wire.receive_series(io.BufferedReader(io.BytesIO(content)), size)


def test_what_a_format_calls_white_comes_along() -> None:
    deep = read_image(encode_image(MedicalImage(np.full((1, 3, 4), 7, np.uint16)), "png"))
    stream = sent(deep)
    line, start = wire.receive_line(stream)["image"], stream.tell()
    assert received(stream, line).white == deep.white == 65535
    wrong: tuple[Any, ...] = (0, -1, 2**32, "x", [], float("inf"))
    for white in wrong:
        stream.seek(start)
        with pytest.raises(wire.Garbled):
            received(stream, line | {"white": white})


def test_where_the_pixels_of_a_picture_lie_comes_along() -> None:
    plane = np.diag([0.3, 0.45, 1.0])
    stream = sent(MedicalImage(np.zeros((1, 3, 4), np.uint8), format="metaimage", plane=plane))
    line = wire.receive_line(stream)["image"]
    found = received(stream, line).plane
    assert found is not None and np.array_equal(found, plane)


def test_what_a_decoder_says_beside_is_not_trusted() -> None:
    stream = sent(read_image(slice_file(**IDENTITY)))
    line = wire.receive_line(stream)["image"]
    start, attributes = stream.tell(), line["origin"]["attributes"]
    evil = {**line["origin"], "attributes": {**attributes, "StudyDate": "evil"}}
    codes = ([[1, ["1", "SCT", ""], None, ["1", "SCT", "x"]]], [[1, ["1"], None, []]], [["x"]], 7)
    worse: list[dict[str, Any]] = [{"header": "00" * 348}, {"origin": evil}]
    worse += [{"codes": code} for code in codes]
    worse += [{"plane": plane} for plane in ("x", [[1]], [[0, 0, 0], [0, 0, 0], [0, 0, 1]])]
    for changed in (*worse, {"names": [["x", "y"]]}, {"names": [1]}):
        stream.seek(start)
        with pytest.raises(wire.Garbled):
            received(stream, {**line, **changed})
    stream.seek(start)
    found = received(stream, {**line, "warnings": ["a\r\nX: y"]})
    assert found.warnings == ("a  X: y",)


def test_no_temporary_file_stays(
    pool: DecodePool, volume: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    decoded(pool, volume)
    with pytest.raises(CapsMedError, match="cut"):
        decoded(pool, volume[:200])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "members"),
    [
        ("several_volumes", {"volumes": "many"}),
        ("several_volumes", None),
        ("several_series", {"series": [{"uid": "1.2"}]}),
        ("several_series", {"series": 3}),
    ],
)
def test_what_a_decoder_offers_to_choose_from_is_not_trusted(code: str, members: object) -> None:
    with pytest.raises(wire.Garbled, match="impossible choice"):
        decoder.refusal({"error": code, "message": "", "members": members})
