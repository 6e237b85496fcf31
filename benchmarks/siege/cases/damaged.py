"""Damaged pictures, which a decoder would complete by itself: a wrong answer that looks right."""

from __future__ import annotations

import io

import numpy as np
import tifffile
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, JPEGBaseline8Bit, RLELossless

from benchmarks.siege.case import case
from benchmarks.siege.service import SEGMENT, Siege, expect

SIZE = 256
NOISE = np.random.default_rng(0).integers(0, 255, (SIZE, SIZE), np.uint8)
#: Rows that are one run of RLE each, or two of 128.
RUNS = np.arange(SIZE, dtype=np.uint8).repeat(SIZE).reshape(SIZE, SIZE)


@case("a JPEG without its second half but with its end marker: alone, in DICOM, in TIFF; cut RLE")
def cut_pictures(siege: Siege) -> str:
    whole = [*_wrapped(_jpeg()), *_wrapped(_jpeg(progressive=True)), _rle(cut=False)]
    cut = [*_wrapped(_cut(_jpeg())), *_wrapped(_cut(_jpeg(progressive=True))), _rle(cut=True)]
    with siege.serving() as service:
        right = [service.post(SEGMENT, content) for content in whole]
        damaged = [service.post(SEGMENT, content) for content in cut]
    return f"whole {expect(right, '200')}; cut {expect(damaged, '422 invalid_input')}"


def _jpeg(**options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(NOISE).save(file, "JPEG", **options)
    return file.getvalue()


def _cut(jpeg: bytes) -> bytes:
    return jpeg[: len(jpeg) // 2] + b"\xff\xd9"


def _wrapped(jpeg: bytes) -> list[bytes]:
    """The JPEG itself, in DICOM and in TIFF."""
    file = io.BytesIO()
    tifffile.imwrite(
        file, iter([jpeg]), shape=NOISE.shape, dtype="u1", compression="jpeg",
        photometric="minisblack", rowsperstrip=SIZE,
    )  # fmt: skip
    scan = _scan(NOISE)
    scan.PixelData = encapsulate([jpeg])
    scan["PixelData"].is_undefined_length = True
    scan.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    return [jpeg, _saved(scan), file.getvalue()]


def _rle(cut: bool) -> bytes:
    """DICOM with RLE, whose second half is missing or not."""
    scan = _scan(RUNS)
    scan.compress(RLELossless)
    content = _saved(scan)
    if not cut:
        return content
    frame = scan.PixelData[16:]  # behind an empty table of offsets and the head of the frame
    scan.PixelData = encapsulate([frame[: len(frame) // 2]])
    scan["PixelData"].is_undefined_length = True
    return _saved(scan)


def _scan(pixels: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> Dataset:
    scan = Dataset()
    scan.SOPClassUID, scan.SOPInstanceUID, scan.SeriesInstanceUID = CTImageStorage, "1.2.7", "1.2.8"
    scan.Rows, scan.Columns = pixels.shape
    scan.SamplesPerPixel, scan.PhotometricInterpretation = 1, "MONOCHROME2"
    scan.BitsAllocated = scan.BitsStored = 8
    scan.HighBit, scan.PixelRepresentation = 7, 0
    scan.PixelData = pixels.tobytes()
    scan["PixelData"].VR = "OB"
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    return scan


def _saved(scan: Dataset) -> bytes:
    file = io.BytesIO()
    scan.save_as(file, enforce_file_format=True)
    return file.getvalue()
