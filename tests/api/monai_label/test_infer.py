"""Models and segmentations, as Slicer's client and OHIF ask for them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import highdicom
import httpx
import nibabel
import nrrd
import numpy as np
import pytest
import SimpleITK
from numpy.typing import NDArray

import caps_med
from tests.api import http
from tests.api.monai_label.conftest import Client
from tests.api.running import Running
from tests.images.dicom_files import IDENTITY, slice_file, zipped_series

MODEL = "tiny-segmentation"
INFER = f"/infer/{MODEL}"
#: What Slicer sends with each call, and OHIF.
SLICER = {"result_extension": ".nrrd", "result_dtype": "uint8"}
OHIF = '{"result_extension": ".nrrd", "result_dtype": "uint8", "result_compress": false}'


@pytest.fixture
def volume_file(volume: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "volume.nii.gz"
    path.write_bytes(volume)
    return path


def in_lps(affine: NDArray[Any]) -> NDArray[Any]:
    lps: NDArray[Any] = np.diag([-1.0, -1, 1, 1]) @ affine
    return lps


def test_what_clients_are_told(client: Client) -> None:
    info = client.info()
    assert "config" not in info  # Slicer would ask for an upgrade of the server
    assert isinstance(info["labels"], list)
    assert {"nucleus", "membrane"} <= set(info["labels"])
    assert "background" not in info["labels"]
    found = info["models"][MODEL]
    assert found["type"] == "segmentation"
    assert list(found["labels"].items()) == [("nucleus", 2), ("membrane", 7)]
    assert "tiny-synthesis" not in info["models"]
    assert all(model["labels"] for model in info["models"].values())
    assert {"strategies", "trainers", "train_stats", "datastore"} <= set(info)


def test_an_image_is_sent_and_segmented(client: Client, models: Path, volume_file: Path) -> None:
    wanted = caps_med.load_model(MODEL, models).segment(volume_file)
    file, params = client.infer(MODEL, "", dict(SLICER), file=str(volume_file))
    assert file.endswith(".nrrd")
    voxels, header = nrrd.read(file)
    assert voxels.dtype == np.uint8
    np.testing.assert_array_equal(voxels, wanted.array[0])
    assert header["Segment0_Name"] == "nucleus"
    read = SimpleITK.ReadImage(file)  # as Slicer does
    lps = in_lps(wanted.affine)
    np.testing.assert_allclose(read.GetOrigin(), lps[:3, 3], atol=1e-9)
    directions = np.reshape(read.GetDirection(), (3, 3)) * read.GetSpacing()
    np.testing.assert_allclose(directions, lps[:3, :3], atol=1e-9)
    assert list(params["label_names"].values()) == sorted(set(np.unique(wanted.array)) - {0})
    assert params["provenance"] == wanted.provenance.as_dict()
    assert params["warnings"] == list(wanted.warnings)


def test_other_forms_of_the_label_map(client: Client, volume_file: Path) -> None:
    asked = {"result_extension": ".nii.gz", "client": "any"}
    file, _ = client.infer(MODEL, "", asked, file=str(volume_file))
    assert caps_med.read_image(file, kind="labels").array.shape == (1, 20, 28, 3)
    file, _ = client.infer(MODEL, "", {"result_dtype": "uint16"}, file=str(volume_file))
    assert nrrd.read(file)[0].dtype == np.uint16
    file, _ = client.infer(MODEL, "", asked | {"result_dtype": "uint16"}, file=str(volume_file))
    assert nibabel.load(file).get_data_dtype() == np.uint16


def test_a_session_is_used_for_several_calls(client: Client, volume_file: Path) -> None:
    made = client.create_session(str(volume_file))
    session = made["session_id"]
    assert client.get_session(session)["expiry"] == 3600
    alone, _ = client.infer(MODEL, "", {}, file=str(volume_file))
    for _ in range(2):
        file, _ = client.infer(MODEL, "any name", {}, session_id=session)
        np.testing.assert_array_equal(nrrd.read(file)[0], nrrd.read(alone)[0])
    client.remove_session(session)
    assert client.get_session(session) == {}  # and Slicer sends the image again


def test_ohif_gets_the_voxels_as_they_are(served: Running, models: Path, tmp_path: Path) -> None:
    """Raw, in the order of the series: columns, rows, slices along their normal."""
    series = zipped_series()
    with httpx.Client(base_url=served.address) as http:
        made = http.put("/session/", files={"files": ("series.zip", series)}).json()
        answer = http.post(
            INFER,
            params={"image": "1.2.3", "output": "image", "session_id": made["session_id"]},
            files={"params": (None, OHIF)},
        )
    assert answer.status_code == 200
    (tmp_path / "x.nrrd").write_bytes(answer.content)
    voxels, header = nrrd.read(str(tmp_path / "x.nrrd"))
    assert (header["encoding"], header["type"]) == ("raw", "uint8")
    wanted = caps_med.load_model(MODEL, models).segment(series)
    assert answer.content.endswith(wanted.array[0].astype(np.uint8).tobytes(order="F"))
    np.testing.assert_array_equal(voxels, wanted.array[0])
    columns, rows, normal = wanted.affine[:3, :3].T
    assert np.dot(np.cross(columns, rows), normal) > 0


def test_slices_of_a_series_make_one_volume(served: Running, models: Path) -> None:
    slices = [slice_file(z, InstanceNumber=i, SOPInstanceUID=f"1.2.{i + 1}", **IDENTITY)
              for i, z in enumerate((0.0, 2.5, 5.0))]  # fmt: skip
    with httpx.Client(base_url=served.address) as http:
        files = [("files", (f"{i}.dcm", content)) for i, content in enumerate(slices)]
        session = http.put("/session/", files=files).json()["session_id"]
        query = {"session_id": session, "output": "dicom_seg"}
        answer = http.post(INFER, params=query, files={"params": (None, "{}")})
    assert answer.headers["content-type"] == "application/dicom"
    found = highdicom.seg.segread(io.BytesIO(answer.content))
    assert found.PatientID == IDENTITY["PatientID"]
    assert found.ManufacturerModelName == f"{MODEL}@1"


def test_numbers_alone(served: Running, volume: bytes) -> None:
    url = f"{served.address}{INFER}?output=json"
    answer = http.post(url, files={"file": volume}, data={"params": "{}"})
    assert answer.json()["provenance"]["model"] == MODEL
    assert answer.headers["caps-med-model"] == MODEL
