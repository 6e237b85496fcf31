"""From an archive to a stored segmentation, against the segmentation alone.

``python -m benchmarks.archive`` starts a real Orthanc (Debian: orthanc, orthanc-dicomweb), stores a
head of 110 slices in it (Colin27, resampled) and segments it with ``brain-t1-tissue``: alone, from
an image in memory; and as ``--from`` and ``--to`` do, where the series is found, retrieved and
decoded, and the DICOM SEG is encoded and stored. Prints the seconds of each step, and the whole
over the segmentation alone (target: 1.3) and over its own, which a busy machine disturbs less.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid
from scipy.ndimage import zoom

import caps_med
from benchmarks.measure import ratio
from benchmarks.options import benchmark_parser
from benchmarks.orthanc import running
from caps_med.allocator import keep_freed_memory
from caps_med.archives import Archive, SeriesReference, configured_archives, find_archive
from caps_med.archives.settings import VARIABLE
from caps_med.images import MedicalImage, encode_image, one_slice, read_image
from caps_med.inference import Model

T = TypeVar("T")

SLICES = 110
SHAPE = (180, 216, SLICES)
MODEL = "brain-t1-tissue"
SAMPLE = Path(caps_med.__file__).parent / "samples" / "colin27.nii.gz"


class Clock:
    """Seconds of the steps of the last run, by their names."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, step: str, work: Callable[[], T]) -> T:
        """The result of a step."""
        begun = time.perf_counter()
        found = work()
        self.seconds[step] = time.perf_counter() - begun
        return found


def series() -> tuple[list[bytes], SeriesReference]:
    """The files of an MR series of `SHAPE`, and its reference."""
    source = read_image(SAMPLE)
    factors = [now / before for now, before in zip(SHAPE, source.spatial_shape, strict=True)]
    volume = zoom(source.array[0].astype(np.float32), factors, order=1).astype(np.uint16)
    spacing = [edge / factor for edge, factor in zip(source.spacing or (), factors, strict=True)]
    uids = {name: generate_uid() for name in ("study", "series", "frame")}
    files = [_slice(volume[:, :, k].T, k * spacing[2], spacing, uids) for k in range(SLICES)]
    return files, SeriesReference("orthanc", uids["study"], uids["series"])


def _slice(
    pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint16]],
    z: float,
    spacing: list[float],
    uids: Mapping[str, str],
) -> bytes:
    made = Dataset()
    made.PatientName, made.PatientID, made.Modality = "Colin^27", "C27", "MR"
    made.SOPClassUID, made.SOPInstanceUID = MRImageStorage, generate_uid()
    made.StudyInstanceUID, made.SeriesInstanceUID = uids["study"], uids["series"]
    made.FrameOfReferenceUID = uids["frame"]
    made.ImageOrientationPatient = [-1, 0, 0, 0, -1, 0]  # NIfTI's axes, in DICOM's
    made.ImagePositionPatient = [0, 0, round(z, 4)]
    made.PixelSpacing = [round(spacing[1], 6), round(spacing[0], 6)]
    made.SliceThickness = round(spacing[2], 4)
    made.Rows, made.Columns = pixels.shape
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated = made.BitsStored = 16
    made.HighBit, made.PixelRepresentation = 15, 0
    made.PixelData = pixels.astype("<u2").tobytes()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID
    made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID
    file = io.BytesIO()
    made.save_as(file, enforce_file_format=True)
    return file.getvalue()


def through(archive: Archive, reference: SeriesReference, model: Model, clock: Clock) -> None:
    """From the archive to the stored SEG."""
    content = clock.time("retrieve", lambda: archive.retrieve(reference))
    image = clock.time("decode", lambda: model.read(content, "image"))
    answer = clock.time("segment", lambda: model.segment(image))
    seg = clock.time("encode", lambda: encode_image(answer, "dicom"))
    clock.time("store", lambda: archive.store([seg]))


def check_stored(archive: Archive, reference: SeriesReference, alone: MedicalImage) -> None:
    """Check that the archive holds the same label map.

    Raises:
        RuntimeError: it does not.
    """
    (seg,) = [one for one in archive.find(reference.study) if one.modality == "SEG"]
    content = archive.retrieve(SeriesReference(reference.archive, seg.study, seg.series))
    found = read_image(content, kind="labels")  # without the slices that have no label
    offset = (np.linalg.inv(alone.affine) @ found.affine)[:3, 3].round().astype(int)
    (x, y, z), (width, depth, height) = offset, found.spatial_shape
    whole = np.zeros_like(alone.array)
    whole[:, x : x + width, y : y + depth, z : z + height] = found.array
    if not np.array_equal(whole, alone.array):
        raise RuntimeError("the stored segmentation differs from the local one")


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=_rounds, default=3)
    rounds = parser.parse_args().rounds
    keep_freed_memory()  # as the command does
    model, clock = caps_med.load_model(MODEL), Clock()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as orthanc:
        archive = find_archive("orthanc", configured_archives({VARIABLE: orthanc.settings()}))
        files, reference = series()
        archive.store(files)
        image = model.read(archive.retrieve(reference), "image")
        import_module("highdicom")  # takes a while, once in a process
        model.segment(one_slice(image, SLICES // 2, "axial"))  # warms the network up
        seconds: dict[str, list[float]] = {"alone": [], "segment": [], "archive": []}
        for _ in range(rounds):
            alone = clock.time("alone", lambda: model.segment(image))
            seconds["alone"].append(clock.seconds["alone"])
            begun = time.perf_counter()
            through(archive, reference, model, clock)
            seconds["archive"].append(time.perf_counter() - begun)
            seconds["segment"].append(clock.seconds["segment"])
        check_stored(archive, reference, alone)
    for step, took in clock.seconds.items():
        print(f"{step:<10}{took:8.2f} s")
    print(f"over the segmentation alone: {ratio(seconds, 'archive', 'alone'):.3f}")
    print(f"over its own segmentation:   {ratio(seconds, 'archive', 'segment'):.3f}")


def _rounds(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


if __name__ == "__main__":
    main()
