"""A small series for archives, in which the tiny models find something."""

from __future__ import annotations

import numpy as np

from caps_med.archives import SeriesReference
from tests.images.dicom_files import IDENTITY, SERIES, dataset, encoded, placed
from tests.zips import zip_of

STUDY = str(IDENTITY["StudyInstanceUID"])
SLICES = 3
REFERENCE = SeriesReference("orthanc", STUDY, SERIES)


def slices(series: str = SERIES, **changed: object) -> list[bytes]:
    """The files of three axial CT slices of 1 mm pixels `[24, 28]` with noise."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(SLICES):
        described = {
            **placed(2.5 * number, (1.0, 1.0)),
            **IDENTITY,
            "Modality": "CT",
            "SeriesInstanceUID": series,
            "SOPInstanceUID": f"{series}.{number + 1}",
            **changed,
        }
        made.append(encoded(dataset(rng.integers(0, 30, (24, 28)).astype("i2"), **described)))
    return made


def zipped() -> bytes:
    """The same in a zip."""
    return zip_of(*((f"{number}.dcm", one) for number, one in enumerate(slices())))
