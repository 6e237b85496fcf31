"""OHIF names a series by its UID: the service gets it from a real Orthanc."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import highdicom
import httpx
import nrrd
import numpy as np
import pytest

import caps_med
from api.access.keys import KeyStore
from api.settings import Settings
from benchmarks.orthanc import Orthanc
from caps_med.archives import ArchiveSettings
from tests.api import http
from tests.api.monai_label.conftest import Connect
from tests.api.running import Running, running
from tests.images.dicom_files import IDENTITY, SERIES, series_file, zipped_series

MODEL = "tiny-segmentation"
OHIF = json.dumps({"result_extension": ".nrrd", "result_dtype": "uint8", "result_compress": False})


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return KeyStore(tmp_path_factory.mktemp("archives") / "keys.db")


@pytest.fixture(scope="module")
def service(orthanc: Orthanc, models: Path, keys: KeyStore) -> Iterator[Running]:
    """Three archives: the first denies access, the second is away, the third has one series."""
    orthanc.clear()
    for number, z in enumerate((2.5, 0.0, 5.0), start=1):
        orthanc.store(series_file(number, z, Modality="CT"))
    there = ArchiveSettings(**json.loads(orthanc.settings())["orthanc"])
    denied = there.model_copy(update={"user": "another"})
    gone = ArchiveSettings(url="http://127.0.0.1:9/dicom-web")
    keys.create("first", ["admin"])
    settings = Settings(
        models=models, preload=(), training=False, monai_label=True, keys=keys.path,
        archives={"denied": denied, "gone": gone, "orthanc": there},
    )  # fmt: skip
    with running(settings) as served:
        yield served


def infer(service: Running, key: str, series: str, output: str) -> httpx.Response:
    return http.post(
        f"{service.address}/infer/{MODEL}",
        params={"image": series, "output": output},
        files={"params": (None, OHIF)},
        headers={"Authorization": f"Bearer {key}"},
        timeout=300,
    )


@pytest.fixture
def key(keys: KeyStore) -> str:
    return keys.create("viewer", ["infer", "archive"])[1]


def test_a_series_by_its_uid(service: Running, models: Path, key: str, connect: Connect) -> None:
    wanted = caps_med.load_model(MODEL, models).segment(zipped_series()).array[0]
    answer = infer(service, key, SERIES, "image")
    assert answer.status_code == 200, answer.text
    assert answer.content.endswith(wanted.astype(np.uint8).tobytes(order="F"))
    client = connect(service)
    client.update_auth(client.auth_token("viewer", key))
    file, params = client.infer(MODEL, SERIES, {})
    np.testing.assert_array_equal(nrrd.read(file)[0], wanted)
    assert list(params["label_names"].values()) == sorted(set(wanted.flat) - {0})


def test_dicom_seg_of_the_archive_s_patient(service: Running, key: str) -> None:
    answer = infer(service, key, SERIES, "dicom_seg")
    found = highdicom.seg.segread(io.BytesIO(answer.content))
    assert found.PatientID == IDENTITY["PatientID"]
    assert found.ReferencedSeriesSequence[0].SeriesInstanceUID == SERIES


def test_a_series_that_there_is_not(service: Running, key: str) -> None:
    answer = infer(service, key, "1.2.3", "image")
    assert answer.json()["code"] == "archive_unavailable"  # that may have it


def test_archives_need_their_scope(service: Running, keys: KeyStore) -> None:
    answer = infer(service, keys.create("slicer", ["infer"])[1], SERIES, "image")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("image", ["dicomweb://orthanc/studies/1.2", "1..2", "127.0.0.1:9"])
def test_what_is_no_uid_is_not_asked_for(service: Running, key: str, image: str) -> None:
    answer = infer(service, key, image, "image")
    assert (answer.status_code, answer.json()["code"]) == (404, "image_not_found")
