"""A real Orthanc: a series is found and retrieved, and what is stored is there."""

from __future__ import annotations

import json
import logging

import imagecodecs
import numpy as np
import pytest
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless

from benchmarks.orthanc import Orthanc
from caps_med.archives import (
    Archive,
    ArchiveBounds,
    SeriesFound,
    SeriesReference,
    configured_archives,
    find_archive,
    only_series,
)
from caps_med.archives.settings import VARIABLE
from caps_med.errors import (
    ArchiveDenied,
    ArchiveUnavailable,
    InputTooLarge,
    InvalidParameter,
    SeriesNotFound,
)
from caps_med.images import read_image
from tests.archives.series import REFERENCE, STUDY, zipped
from tests.images.dicom_files import IDENTITY, SERIES, dataset, encoded, placed, series_file


def archive(orthanc: Orthanc, bounds: ArchiveBounds | None = None) -> Archive:
    return find_archive("orthanc", configured_archives({VARIABLE: orthanc.settings()}), bounds)


def test_a_series_is_found(filled: Orthanc) -> None:
    expected = [SeriesFound(STUDY, SERIES, "CT", 3)]
    found = archive(filled)
    assert found.find(STUDY) == found.find(series=SERIES) == found.find(STUDY, SERIES) == expected
    assert found.find(STUDY, "1.2.3") == found.find("1.2.3") == []
    with pytest.raises(InvalidParameter, match="name a study or a series"):
        found.find()


def test_a_series_is_retrieved_as_it_was_stored(
    filled: Orthanc, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    content = archive(filled).retrieve(REFERENCE)
    assert content == archive(filled).retrieve(REFERENCE)
    with only_series(REFERENCE) as checked:
        image = checked(read_image(content))
    local = read_image(zipped())
    np.testing.assert_array_equal(image.array, local.array)
    np.testing.assert_array_equal(image.affine, local.affine)
    with (
        pytest.raises(ArchiveUnavailable, match="a different series"),
        only_series(SeriesReference("orthanc", STUDY, "1.2.3")) as checked,
    ):
        checked(image)
    for hidden in (SERIES, filled.address, filled.password, "Authorization"):
        assert hidden not in caplog.text


def test_compressed_files_are_retrieved_as_they_were_stored(filled: Orthanc) -> None:
    series = f"{SERIES}.6"
    picture = np.arange(16 * 24, dtype="u2").reshape(16, 24)
    made = dataset(picture, **placed(0.0), **IDENTITY, SeriesInstanceUID=series)
    stream = bytes(imagecodecs.jpeg2k_encode(picture, codecformat="j2k", level=0))
    made.PixelData = encapsulate([stream])
    filled.store(encoded(made, JPEG2000Lossless))  # which Orthanc cannot decode
    content = archive(filled).retrieve(SeriesReference("orthanc", STUDY, series))
    np.testing.assert_array_equal(read_image(content).array[0, ..., 0].T, picture)


def test_pieces_are_admitted_as_they_arrive(filled: Orthanc) -> None:
    sizes: list[int] = []
    content = archive(filled).retrieve(REFERENCE, sizes.append)
    assert sum(sizes) > 3 * 500 and sum(sizes) < 2 * len(content)

    def refuse(size: int) -> None:
        raise InputTooLarge(f"no room for {size} bytes")

    with pytest.raises(InputTooLarge, match="no room for"):
        archive(filled).retrieve(REFERENCE, refuse)


def test_bounds_of_a_retrieval(filled: Orthanc) -> None:
    with pytest.raises(InputTooLarge, match="more than 2 files"):
        archive(filled, ArchiveBounds(max_files=2)).retrieve(REFERENCE)
    with pytest.raises(InputTooLarge, match="more than 1000 bytes"):
        archive(filled, ArchiveBounds(max_bytes=1000)).retrieve(REFERENCE)


def test_what_is_not_there(filled: Orthanc) -> None:
    for study, series in ((STUDY, "1.2.3"), ("1.2.3", SERIES)):
        with pytest.raises(SeriesNotFound, match="no such series in that study"):
            archive(filled).retrieve(SeriesReference("orthanc", study, series))


def test_wrong_credentials(filled: Orthanc) -> None:
    settings = json.loads(filled.settings())
    settings["orthanc"]["user"] = "another"
    wrong = find_archive("orthanc", configured_archives({VARIABLE: json.dumps(settings)}))
    for call in (lambda: wrong.retrieve(REFERENCE), lambda: wrong.store([series_file(8, 8.0)])):
        with pytest.raises(ArchiveDenied, match=r"does not accept the credentials .* \(401\)"):
            call()


def test_what_is_stored_is_there(filled: Orthanc) -> None:
    made = series_file(9, 9.0, SeriesInstanceUID=f"{SERIES}.5")
    archive(filled).store([made])
    (found,) = archive(filled).find(series=f"{SERIES}.5")
    assert found.instances == 1
    stored = archive(filled).retrieve(SeriesReference("orthanc", STUDY, f"{SERIES}.5"))
    np.testing.assert_array_equal(read_image(stored).array, read_image(made).array)
