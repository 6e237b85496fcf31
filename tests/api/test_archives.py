"""The service and a real Orthanc: a series comes by its UIDs, decoded as an upload is."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import highdicom
import httpx
import numpy as np
import pydicom
import pytest
from fastapi.testclient import TestClient

from api.access.keys import KeyStore, Scope
from api.app import create_app
from api.archives.images import archived_image, located
from api.settings import Settings
from benchmarks.orthanc import Orthanc
from caps_med.archives import ArchiveSettings
from caps_med.errors import ArchiveNotFound, SeriesNotFound
from caps_med.images import read_image
from tests.api import http
from tests.api.running import Running, running
from tests.archives.series import REFERENCE, STUDY, zipped
from tests.images.dicom_files import IDENTITY, SERIES
from tests.waiting import PATIENCE, until


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
        local = read_image(zipped())
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


def posted(service: Running, **form: str) -> httpx.Response:
    """The answer to a request that names the series."""
    named = {"archive": "orthanc", "study": STUDY, "series": SERIES, **form}
    operation = named.pop("operation", "segment")
    query = {"format": named.pop("format")} if "format" in named else {}
    headers = {"Prefer": named.pop("prefer")} if "prefer" in named else {}
    path = f"/v1/models/{named.pop('model', 'tiny-segmentation')}/{operation}"
    return http.post(
        service.address + path, data=named, params=query, headers=headers, timeout=PATIENCE
    )


def uploaded(service: Running, format: str, operation: str = "segment") -> httpx.Response:
    """The answer to an upload of the same series."""
    return http.post(
        f"{service.address}/v1/models/tiny-segmentation/{operation}",
        files={"image": zipped()}, params={"format": format}, timeout=PATIENCE,
    )  # fmt: skip


class TestRequests:
    def test_the_archives_are_listed_by_name_alone(self, service: Running) -> None:
        assert http.get(f"{service.address}/v1/archives").json() == {"archives": ["orthanc"]}

    def test_a_series_is_segmented_as_an_upload_is(self, service: Running) -> None:
        answer = posted(service, format="nifti")
        assert answer.status_code == 200 and answer.content == uploaded(service, "nifti").content
        assert "Caps-Med-Stored-Series" not in answer.headers

    def test_features_of_a_series(self, service: Running) -> None:
        answer = posted(service, operation="features", format="json")
        local = uploaded(service, "json", "features")
        assert answer.json()["layers"] == local.json()["layers"]

    @pytest.mark.parametrize("format", ["dicom", "nifti"])
    def test_the_answer_is_stored(self, service: Running, filled: Orthanc, format: str) -> None:
        answer = posted(service, store="true", format=format)
        assert answer.status_code == 200
        seg = taken_out(filled, answer.headers)
        if format == "dicom":
            assert answer.content == seg
        assert_frames_are(seg, uploaded(service, "nifti").content)

    def test_what_is_stored_is_of_the_type_that_is_asked_for(
        self, service: Running, filled: Orthanc
    ) -> None:
        answer = posted(service, store="true", report="true", format="dicom-labelmap")
        (report,) = series_of(filled, "SR")
        (instance,) = filled.call(f"/series/{report}")["Instances"]
        said = str(pydicom.dcmread(io.BytesIO(filled.call(f"/instances/{instance}/file"))))
        seg = pydicom.dcmread(io.BytesIO(answer.content))
        assert seg.SegmentationType == "LABELMAP"
        assert seg.SOPClassUID in said and seg.SOPInstanceUID in said
        filled.call(f"/series/{report}", method="DELETE")
        assert answer.content == taken_out(filled, answer.headers)

    def test_a_job_that_stored_one_type_is_fetched_in_any_form(
        self, service: Running, filled: Orthanc
    ) -> None:
        accepted = posted(service, store="true", format="dicom-labelmap", prefer="respond-async")
        job = service.address + accepted.headers["Location"]
        until(lambda: http.get(job).json()["state"] in ("succeeded", "failed"))
        results = {
            form: http.get(f"{job}/result", params={"format": form})
            for form in ("dicom-labelmap", "dicom", "sr")
        }
        stored = taken_out(filled, results["dicom"].headers)
        assert results["dicom-labelmap"].content == stored
        made = {form: pydicom.dcmread(io.BytesIO(one.content)) for form, one in results.items()}
        assert made["dicom"].SegmentationType == "BINARY"
        assert made["dicom-labelmap"].SOPInstanceUID in str(made["sr"])
        assert http.delete(job).status_code == 204

    def test_the_report_is_stored_beside_it(self, service: Running, filled: Orthanc) -> None:
        assert posted(service, store="true", report="true").status_code == 200
        found = httpx.Headers(posted(service, store="true").headers)
        (report,) = series_of(filled, "SR")
        (instance,) = filled.call(f"/series/{report}")["Instances"]
        made = pydicom.dcmread(io.BytesIO(filled.call(f"/instances/{instance}/file")))
        assert made.StudyInstanceUID == STUDY
        assert found["Caps-Med-Stored-Instance"] in str(made)
        filled.call(f"/series/{report}", method="DELETE")
        taken_out(filled, found)

    def test_in_the_background_the_answer_is_stored_before_it_is_fetched(
        self, service: Running, filled: Orthanc
    ) -> None:
        accepted = posted(service, store="true", prefer="respond-async")
        assert accepted.status_code == 202
        job = service.address + accepted.headers["Location"]
        until(lambda: http.get(job).json()["state"] in ("succeeded", "failed"))
        result = http.get(f"{job}/result")
        assert result.content == taken_out(filled, result.headers)
        assert http.delete(job).status_code == 204

    @pytest.mark.parametrize(
        ("form", "status", "code", "said"),
        [
            ({"archive": "http://evil.example"}, 404, "archive_not_found", "known are orthanc"),
            ({"archive": "../orthanc"}, 404, "archive_not_found", "known are orthanc"),
            ({"series": "1.2/../../../patients"}, 422, "invalid_parameter", "not a DICOM UID"),
            ({"series": "1.2%2f..%2f3"}, 422, "invalid_parameter", "not a DICOM UID"),
            ({"study": "1.2?x=1"}, 422, "invalid_parameter", "not a DICOM UID"),
            ({"study": "http://evil.example"}, 422, "invalid_parameter", "not a DICOM UID"),
            ({"series": "1." * 33}, 422, "invalid_parameter", "at most 64"),
            ({"series": "1.2.3"}, 404, "series_not_found", "no such series"),
        ],
    )
    def test_what_is_refused(
        self, service: Running, form: dict[str, str], status: int, code: str, said: str
    ) -> None:
        answer = posted(service, **form)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert said in answer.json()["detail"]

    def test_parts_that_do_not_belong_together(self, service: Running) -> None:
        path = f"{service.address}/v1/models/tiny-segmentation/segment"
        image, series = {"image": zipped()}, {"archive": "orthanc", "study": STUDY}
        for files, data, said in (
            (image, {"store": "true"}, "store: only used with archive"),
            (image, {"report": "true"}, "report: only used with store"),
            (image, {**series, "series": SERIES}, "not both"),
            (None, series, "must be given together"),
        ):
            answer = http.post(path, files=files, data=data)
            assert answer.status_code == 422 and said in answer.json()["detail"], said
        named = {**series, "series": SERIES}
        answer = http.post(f"{path}?series={SERIES}", data=named)
        assert answer.status_code == 422 and "leave one of them out" in answer.json()["detail"]


def test_an_archive_needs_its_scope(filled: Orthanc, models: Path, tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.db")
    allowed = {name: keys.create(name, scopes)[1] for name, scopes in SCOPES.items()}
    named = ArchiveSettings(**json.loads(filled.settings())["orthanc"])
    settings = Settings(
        models=models, preload=(), training=False, archives={"orthanc": named}, keys=keys.path
    )
    form = {"archive": "orthanc", "study": STUDY, "series": SERIES}
    statuses = {}
    with TestClient(create_app(settings)) as client:
        for name, key in allowed.items():
            headers = {"Authorization": f"Bearer {key}"}
            answer = client.post("/v1/models/tiny-segmentation/segment", data=form, headers=headers)
            listed = client.get("/v1/archives", headers=headers)
            statuses[name] = answer.status_code, listed.status_code
    assert statuses == {"uploads": (403, 403), "archives": (403, 200), "both": (200, 200)}


#: Keys by what they may do.
SCOPES: dict[str, tuple[Scope, ...]] = {
    "uploads": ("infer",), "archives": ("archive",), "both": ("infer", "archive"),
}  # fmt: skip


def taken_out(orthanc: Orthanc, headers: httpx.Headers) -> bytes:
    """The stored file that an answer's headers name, which is then deleted."""
    found = orthanc.call("/tools/lookup", headers["Caps-Med-Stored-Instance"].encode())
    (instance,) = [one["Path"] for one in found if one["Type"] == "Instance"]
    tags = orthanc.call(f"{instance}/simplified-tags")
    assert tags["SeriesInstanceUID"] == headers["Caps-Med-Stored-Series"]
    assert (tags["StudyInstanceUID"], tags["PatientID"]) == (STUDY, IDENTITY["PatientID"])
    content = orthanc.call(f"{instance}/file")
    orthanc.call(instance, method="DELETE")
    assert isinstance(content, bytes)
    return content


def series_of(orthanc: Orthanc, modality: str) -> list[str]:
    """Orthanc's identifiers of the series of this modality."""
    return [
        series
        for series in orthanc.call("/series")
        if orthanc.call(f"/series/{series}")["MainDicomTags"]["Modality"] == modality
    ]


def assert_frames_are(seg: bytes, nifti: bytes) -> None:
    """The segmentation holds the label map."""
    labels = read_image(nifti, kind="labels").array[0]
    volume = highdicom.seg.segread(io.BytesIO(seg)).get_volume(combine_segments=True)
    upward = volume.array if volume.affine[2, 0] > 0 else volume.array[::-1]
    ids = np.unique(labels[labels > 0])
    assert len(ids)
    numbered = np.searchsorted(ids, labels.T) + 1
    np.testing.assert_array_equal(upward, np.where(labels.T > 0, numbered, 0))
