"""The service and a real Orthanc: a series comes by its UIDs, decoded as an upload is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from api.archives.images import archived_image, located
from api.settings import Settings
from caps_med.archives import ArchiveSettings, SeriesReference
from caps_med.errors import ArchiveNotFound, SeriesNotFound
from caps_med.images import read_image
from tests.api.running import Running, running
from tests.images.dicom_files import IDENTITY, SERIES, series_file, zipped_series
from tests.orthanc import Orthanc

STUDY = IDENTITY["StudyInstanceUID"]
REFERENCE = SeriesReference("orthanc", STUDY, SERIES)


@pytest.fixture(scope="module")
def filled(orthanc: Orthanc) -> Orthanc:
    """An archive of one series of three slices."""
    orthanc.clear()
    for number, z in enumerate((2.5, 0.0, 5.0), start=1):
        orthanc.store(series_file(number, z, Modality="CT"))
    return orthanc


@pytest.fixture(scope="module")
def service(filled: Orthanc, models: Path) -> Iterator[Running]:
    named = json.loads(filled.settings())["orthanc"]
    archives = {"orthanc": ArchiveSettings(**named)}
    settings = Settings(models=models, preload=(), training=False, archives=archives)
    with running(settings) as served:
        yield served


class TestImages:
    def test_a_series_is_the_image_that_an_upload_of_it_is(self, service: Running) -> None:
        image = service.do(archived_image(service.engine, REFERENCE)).result()
        local = read_image(zipped_series())
        np.testing.assert_array_equal(image.array, local.array)
        np.testing.assert_array_equal(image.affine, local.affine)
        assert image.origin is not None and image.origin == local.origin

    def test_a_series_is_found_without_its_study(self, service: Running) -> None:
        assert service.do(located(service.engine, "orthanc", SERIES)).result() == REFERENCE
        with pytest.raises(SeriesNotFound, match="no series with that UID"):
            service.do(located(service.engine, "orthanc", "1.2.3")).result()

    def test_an_archive_that_is_not_named(self, service: Running) -> None:
        with pytest.raises(ArchiveNotFound, match="known are orthanc"):
            service.do(located(service.engine, "http://evil.example", SERIES)).result()
