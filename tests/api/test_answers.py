"""What the routes answer, in each of their forms."""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import highdicom
import httpx
import nrrd
import numpy as np
import pydicom
import pytest
from fastapi.testclient import TestClient
from httpx import Response
from starlette.exceptions import HTTPException

import caps_med
from api.app import create_app
from api.encoding import negotiate
from api.settings import Settings
from caps_med.bundles import ImageStatistics
from caps_med.images import CODECS, MedicalImage, encode_image, read_image
from caps_med.images.codecs import dicom_seg
from caps_med.inference import MAP_NAMES, Model
from caps_med.inference.precision import NOTE
from tests.conftest import BUILT_IN_NAMES, tiny_card, write_tiny
from tests.images.dicom_files import ECHOES, IDENTITY, slice_file, zipped_series, zipped_study

SEGMENT = "/v1/models/tiny-segmentation/segment"
SYNTHESIZE = "/v1/models/tiny-synthesis/synthesize"
FEATURES = "/v1/models/tiny-segmentation/features"


def test_health(client: TestClient) -> None:
    assert client.get("/healthz").json()["status"] == "alive"
    assert client.get("/readyz").status_code in (200, 503)
    assert "<title>caps_med" in client.get("/").text


def test_models_list_their_layers(client: TestClient, models: Path) -> None:
    names = [model["name"] for model in client.get("/v1/models").json()["models"]]
    assert names == [*BUILT_IN_NAMES, "tiny-segmentation", "tiny-synthesis"]
    detail = client.get("/v1/models/tiny-segmentation@1").json()
    wanted = caps_med.load_model("tiny-segmentation", models)
    told = ("name", "types", "atoms", "stride")
    assert detail["layers"] == [
        {name: getattr(one, name) for name in told} for one in wanted.layers
    ]
    assert detail["labels"] == {"0": "background", "2": "nucleus", "7": "membrane"}
    assert detail["weights"]["sha256"] == wanted.metadata.weights.sha256
    assert detail["versions"] == [1]


def test_a_volume_comes_back_in_its_space(client: TestClient, models: Path, volume: bytes) -> None:
    answer = client.post(SEGMENT, files={"image": ("anything", volume)})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/gzip"
    found, source = read_image(answer.content, kind="labels"), read_image(volume)
    np.testing.assert_array_equal(found.affine, source.affine)
    wanted = caps_med.load_model("tiny-segmentation", models).segment(volume)
    np.testing.assert_array_equal(found.array, wanted.array)
    for name, value in wanted.provenance.headers().items():
        assert answer.headers[name] == value


def test_the_operator_chooses_the_precision(
    models: Path, volume: bytes, client: TestClient
) -> None:
    """Every answer says so, and the labels are those that Python computes in it."""
    model = caps_med.load_model("tiny-segmentation", models)
    settings = Settings(models=models, preload=(), training=False, projects=False, precision="bf16")
    wanted = model.segment(volume, precision="bf16")
    with TestClient(create_app(settings)) as other:
        answer = other.post(SEGMENT, files={"image": volume})
        numbers = other.post(SEGMENT, files={"image": volume}, params={"format": "json"}).json()
        shown = other.get("/v1/models/tiny-segmentation").json()["precision"]
        made = other.get("/v1/models/tiny-synthesis").json()["precision"]
    np.testing.assert_array_equal(read_image(answer.content, kind="labels").array, wanted.array)
    assert answer.headers["Caps-Med-Precision"] == numbers["provenance"]["precision"] == shown
    assert (shown, made) == ("bf16", "fp32") and NOTE in numbers["warnings"]
    default = client.post(SEGMENT, files={"image": volume})
    assert "Caps-Med-Precision" not in default.headers
    assert client.get("/v1/models/tiny-segmentation").json()["precision"] == "fp32"


@pytest.mark.parametrize("source", ["nifti", "dicom"])
def test_every_volume_comes_back_as_nrrd(
    client: TestClient, models: Path, volume: bytes, source: str, tmp_path: Path
) -> None:
    content = volume if source == "nifti" else zipped_series()
    wanted = caps_med.load_model("tiny-segmentation", models).segment(content)
    answer = client.post(SEGMENT, files={"image": content}, params={"format": "nrrd"})
    assert answer.headers["content-type"] == "application/x-nrrd"
    assert answer.headers["content-disposition"] == 'attachment; filename="segmentation.nrrd"'
    (tmp_path / "x.nrrd").write_bytes(answer.content)
    voxels, header = nrrd.read(str(tmp_path / "x.nrrd"))
    np.testing.assert_array_equal(voxels, wanted.array[0])
    assert [header["Segment0_Name"], header["Segment1_Name"]] == ["nucleus", "membrane"]
    np.testing.assert_allclose(read_image(answer.content).affine, wanted.affine, atol=1e-9)
    image = client.post("/v1/images", files={"image": content}, params={"format": "nrrd"})
    np.testing.assert_array_equal(read_image(image.content).array, read_image(content).array)


def test_a_metaimage_is_answered_as_one(client: TestClient, volume: bytes) -> None:
    asked = {"format": "metaimage"}
    content = client.post("/v1/images", files={"image": volume}, params=asked).content
    answer = client.post(SEGMENT, files={"image": content})
    assert answer.headers["content-type"] == "application/x-metaimage"
    assert answer.headers["content-disposition"] == 'attachment; filename="segmentation.mha"'
    wanted = read_image(client.post(SEGMENT, files={"image": volume}).content)
    np.testing.assert_array_equal(read_image(answer.content).array, wanted.array)
    np.testing.assert_allclose(read_image(answer.content).affine, wanted.affine, atol=1e-6)


def test_no_dicom_seg_is_written_where_none_is_asked_for(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError("a DICOM SEG was written")

    monkeypatch.setattr(dicom_seg, "segmentation", refuse)
    for form in ("json", "nifti"):
        files = {"image": zipped_series()}
        assert client.post(SEGMENT, files=files, params={"format": form}).status_code == 200
    assert client.post(SEGMENT, files={"image": zipped_series()}).status_code == 500


@pytest.mark.parametrize("form", ["dicom", "dicom-labelmap", "sr"])
def test_too_many_labels_for_a_dicom_seg_are_refused_before_the_work(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setitem(CODECS, "dicom", replace(CODECS["dicom"], most_labels=1))
    monkeypatch.setattr(Model, "segment", lambda *_, **__: pytest.fail("it was segmented"))
    files = {"image": zipped_series()}
    answer = client.post(SEGMENT, files=files, params={"format": form})
    assert answer.status_code == 415
    assert "a label map of 2 labels is not written" in answer.json()["detail"]


def test_a_series_has_a_report_and_a_label_map_segmentation(client: TestClient) -> None:
    def asked(form: str) -> Response:
        files = {"image": zipped_series()}
        answer: Response = client.post(SEGMENT, files=files, params={"format": form})
        assert answer.status_code == 200, answer.text
        return answer

    seg, report, labelmap = (asked(form) for form in ("dicom", "sr", "dicom-labelmap"))
    assert report.headers["content-type"] == "application/dicom"
    assert report.headers["content-disposition"] == 'attachment; filename="report.dcm"'
    found = pydicom.dcmread(io.BytesIO(report.content))
    assert found.Modality == "SR" and found.PatientID == IDENTITY["PatientID"]
    assert str(pydicom.dcmread(io.BytesIO(seg.content)).SOPInstanceUID) in str(found)
    assert labelmap.headers["content-disposition"] == 'attachment; filename="segmentation.dcm"'
    assert pydicom.dcmread(io.BytesIO(labelmap.content)).SegmentationType == "LABELMAP"
    synthetic = client.post(SYNTHESIZE, files={"labels": seg.content})  # and back, as labels
    assert synthetic.status_code == 200, synthetic.text


def test_probabilities_lie_in_the_image_s_space(
    client: TestClient, models: Path, volume: bytes
) -> None:
    wanted = caps_med.load_model("tiny-segmentation", models).segment(volume).probabilities
    asked = {"image": volume, "map": (None, "probabilities")}
    answer = client.post(SEGMENT, files=asked)
    found = read_image(answer.content)
    assert answer.headers["content-type"] == "application/gzip"
    np.testing.assert_allclose(found.array, wanted.array, atol=1e-6)
    np.testing.assert_array_equal(found.affine, read_image(volume).affine)
    zipped = zipfile.ZipFile(io.BytesIO(client.post(f"{SEGMENT}?format=zip", files=asked).content))
    assert zipped.namelist() == ["segmentation.nii.gz", "probabilities.nii.gz", "answer.json"]
    pixels = np.random.default_rng(0).integers(0, 255, (1, 16, 16)).astype(np.uint8)
    asked = {"image": encode_image(MedicalImage(pixels), "png"), "map": (None, "probabilities")}
    answer = client.post(SEGMENT, files=asked)
    assert answer.headers["content-type"] == "application/x-npy"
    assert np.load(io.BytesIO(answer.content)).shape == (16, 16, 3)
    refused = client.post(f"{SEGMENT}?format=png", files=asked)
    assert refused.status_code == 406  # three classes are no colours
    zipped = zipfile.ZipFile(io.BytesIO(client.post(f"{SEGMENT}?format=zip", files=asked).content))
    assert "probabilities.npy" in zipped.namelist()
    stack = MedicalImage(np.repeat(pixels[..., None], 3, 3), np.diag([-1.0, -1, 1, 1]))
    asked = {"image": encode_image(stack, "tiff"), "map": (None, "probabilities")}
    answer = client.post(SEGMENT, files=asked)
    assert answer.status_code == 200 and read_image(answer.content).array.shape[0] == 3
    refused = client.post(f"{SEGMENT}?format=tiff", files=asked)
    assert refused.status_code == 406  # before anything is computed


def test_a_volume_of_a_4d_nifti_is_chosen(client: TestClient, volume: bytes) -> None:
    one = read_image(volume)
    several = encode_image(one.with_array(np.concatenate([one.array, one.array // 2])), "nifti")
    refused = client.post(SEGMENT, files={"image": several})
    assert refused.status_code == 422 and refused.json()["code"] == "several_volumes"
    assert refused.json()["volumes"] == 2 and "HTTP: ?volume=N" in refused.json()["detail"]
    answer = client.post(SEGMENT, files={"image": several}, params={"volume": 0})
    assert answer.status_code == 200, answer.text
    assert answer.content == client.post(SEGMENT, files={"image": volume}).content
    refused = client.post(SYNTHESIZE, files={"labels": several})
    assert refused.status_code == 422 and refused.json()["code"] == "several_volumes"
    assert refused.json()["volumes"] == 2


def test_what_is_no_series_has_no_report(client: TestClient, volume: bytes) -> None:
    answer = client.post(SEGMENT, files={"image": volume}, params={"format": "sr"})
    assert answer.status_code == 406
    assert "format=sr: must be one of nifti" in answer.json()["detail"]


def test_the_series_of_a_study_and_one_of_its_volumes_are_chosen(client: TestClient) -> None:
    def asked(path: str, **choice: str | int) -> Response:
        answer: Response = client.post(path, files={"image": zipped_study()}, params=choice)
        return answer

    several = asked(SEGMENT)
    assert several.status_code == 422 and several.json()["code"] == "several_series"
    assert f"{ECHOES} (MR, dual echo, 4 files)" in several.json()["detail"]
    assert {"uid": ECHOES, "title": "MR, dual echo, 4 files"} in several.json()["series"]
    several = asked(SEGMENT, series=ECHOES)
    assert several.status_code == 422 and several.json()["code"] == "several_volumes"
    assert "2 volumes of 2 slices each" in several.json()["detail"]
    assert several.json()["volumes"] == 2
    answer = asked(SEGMENT, series=ECHOES, volume=1)
    assert answer.status_code == 200
    found = highdicom.seg.segread(io.BytesIO(answer.content))
    references = found.ReferencedSeriesSequence[0].ReferencedInstanceSequence
    assert [one.ReferencedSOPInstanceUID for one in references] == [f"{ECHOES}.1", f"{ECHOES}.3"]
    image = asked("/v1/images", series=ECHOES, volume=1, format="nifti")
    assert float(read_image(image.content).array.min()) == 2000
    wrong = asked(SEGMENT, series=ECHOES, volume=2)
    assert wrong.status_code == 422 and "no volume 2" in wrong.json()["detail"]


@pytest.mark.parametrize("content", [slice_file(**IDENTITY), zipped_series()])
def test_a_dicom_series_comes_back_as_dicom_seg(
    client: TestClient, models: Path, content: bytes
) -> None:
    """Of the same patient, on the same slices; as NIfTI where that is asked for."""
    wanted = caps_med.load_model("tiny-segmentation", models).segment(content)
    answer = client.post(SEGMENT, files={"image": content})
    assert answer.headers["content-type"] == "application/dicom"
    assert answer.headers["content-disposition"] == 'attachment; filename="segmentation.dcm"'
    found = highdicom.seg.segread(io.BytesIO(answer.content))
    assert found.PatientID == IDENTITY["PatientID"]
    assert found.ManufacturerModelName == "tiny-segmentation@1"
    for number, (name, value) in enumerate(wanted.volumes.items(), start=1):
        assert found.get_segment_description(number).segment_label == name
        drawn = [
            frame
            for frame, part in zip(
                np.atleast_3d(found.pixel_array.T).T,
                found.PerFrameFunctionalGroupsSequence,
                strict=True,
            )
            if part.SegmentIdentificationSequence[0].ReferencedSegmentNumber == number
        ]
        voxel = abs(np.linalg.det(wanted.affine[:3, :3]))
        assert sum(frame.sum() for frame in drawn) * voxel == pytest.approx(value)
    nifti = client.post(SEGMENT, files={"image": content}, params={"format": "nifti"})
    np.testing.assert_array_equal(read_image(nifti.content, kind="labels").array, wanted.array)
    with zipfile.ZipFile(
        io.BytesIO(client.post(SEGMENT, files={"image": content}, params={"format": "zip"}).content)
    ) as archive:
        names = ["segmentation.dcm", "segmentation.nii.gz", "report.dcm", "answer.json"]
        assert archive.namelist() == names


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("*/*", "png"),
        ("image/png;q=0, */*", "nifti"),
        ("image/*;q=0, */*;q=0.1", "nifti"),
        ("image/*;q=0, image/png", "png"),
        ("application/json;q=0.5, image/png;q=0.4", "json"),
        ("text/html, application/*", "nifti"),
        ("image/png;q=0", None),
        ("application/x-nifti;q=0, application/*", "json"),
        ("*/*;q=0, application/json", "json"),
        ("*/*;q=0, application/*", "nifti"),
    ],
)
def test_what_a_client_accepts(accept: str, form: str | None) -> None:
    offered = ["png", "nifti", "json"]
    if form is None:
        with pytest.raises(HTTPException, match="no format in the Accept header"):
            negotiate(None, accept, offered)
    else:
        assert negotiate(None, accept, offered) == form


def test_forms_of_a_segmentation(client: TestClient, picture: bytes, models: Path) -> None:
    wanted = caps_med.load_model("tiny-segmentation", models).segment(picture)
    plain = client.post(SEGMENT, files={"image": picture})
    assert plain.headers["content-type"] == "image/png"
    assert plain.content == encode_image(wanted, "png")
    nifti = client.post(SEGMENT, files={"image": picture}, headers={"Accept": "application/gzip"})
    assert read_image(nifti.content, kind="labels").array.shape == (1, 30, 21, 1)
    npz = client.post(SEGMENT, files={"image": picture}, params={"format": "npz"})
    with np.load(io.BytesIO(npz.content)) as arrays:
        np.testing.assert_array_equal(arrays["labels"], wanted.array)
        np.testing.assert_array_equal(arrays["probabilities"], wanted.probabilities.array)
    numbers = client.post(
        SEGMENT, files={"image": picture}, headers={"Accept": "text/html, application/json;q=0.9"}
    ).json()
    assert numbers["volumes"] == wanted.volumes
    assert numbers["unit"] == "pixels"
    assert numbers["labels"] == [one.as_dict() for one in wanted.measures]
    assert {"label", "name", "fraction", "objects", "confidence"} < set(numbers["labels"][0])
    assert numbers["provenance"] == wanted.provenance.as_dict()


def test_same_seed_same_bytes(client: TestClient, labels: bytes) -> None:
    def image(seed: int) -> bytes:
        answer = client.post(SYNTHESIZE, files={"labels": labels}, data={"seed": seed})
        assert answer.headers["Caps-Med-Seed"] == str(seed)
        return bytes(answer.content)

    assert image(7) == image(7)
    assert image(7) != image(8)


def test_several_images_are_a_zip(client: TestClient, labels: bytes) -> None:
    def request() -> bytes:
        data = {"seed": 3, "count": 2}
        return bytes(client.post(SYNTHESIZE, files={"labels": labels}, data=data).content)

    one = client.post(SYNTHESIZE, files={"labels": labels}, data={"seed": 4}).content
    content = request()
    assert content == request()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["synthetic-seed3.png", "synthetic-seed4.png"]
        assert archive.read("synthetic-seed4.png") == one


def test_features_are_exactly_the_librarys(client: TestClient, models: Path, volume: bytes) -> None:
    wanted = caps_med.load_model("tiny-segmentation", models).features(volume, slice=1)
    answer = client.post(FEATURES, files={"image": volume}, data={"slice": 1})
    with np.load(io.BytesIO(answer.content)) as arrays:
        assert sorted(arrays) == sorted(wanted.arrays())
        for name, value in wanted.arrays().items():
            np.testing.assert_array_equal(arrays[name], value)
    sheet = client.post(FEATURES, files={"image": volume}, params={"format": "png"})
    assert read_image(sheet.content).array.shape[0] == 3
    numbers = client.post(FEATURES, files={"image": volume}, params={"format": "json"}).json()
    assert numbers["layers"]["seg_caps"]["types"] == 3
    assert numbers["size"] == list(wanted.size)
    one = client.post(FEATURES, files={"image": volume}, data={"layer": "seg_caps"})
    with np.load(io.BytesIO(one.content)) as arrays:
        assert sorted(arrays) == ["lengths/seg_caps", "seg_caps"]


def test_answers_do_not_depend_on_who_asks_at_the_same_time(models: Path) -> None:
    settings = Settings(models=models, preload=(), workers=4)
    pictures = [
        encode_image(
            MedicalImage(np.full((1, 16 + i, 24), i, np.uint8) * ramp, format="png"), "png"
        )
        for i, ramp in enumerate([np.arange(24, dtype=np.uint8)] * 8)
    ]
    model = caps_med.load_model("tiny-segmentation", models)
    with TestClient(create_app(settings)) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda p: client.post(SEGMENT, files={"image": p}), pictures))
    for picture, answer in zip(pictures, answers, strict=True):
        assert answer.content == encode_image(model.segment(picture), "png")


def test_features_of_synthesis_need_labels(client: TestClient, labels: bytes) -> None:
    route = "/v1/models/tiny-synthesis/features"
    good = client.post(route, files={"labels": labels}, data={"seed": 2})
    with np.load(io.BytesIO(good.content)) as arrays:
        assert arrays["convcaps10"].shape == (1, 4, 21, 30)
    for parts in ({"image": labels}, {"image": labels, "labels": labels}, {}):
        bad = client.post(route, files=parts)
        assert bad.status_code == 422
        assert "send the part 'labels', and no 'image'" in bad.json()["detail"]
    bad = client.post(FEATURES, files={"image": labels, "labels": labels})
    assert "send the part 'image', and no 'labels'" in bad.json()["detail"]


def test_metrics_count_answers(client: TestClient, picture: bytes) -> None:
    client.post(SEGMENT, files={"image": picture})
    text = client.get("/metrics").text
    route = "/v1/models/{model}/segment"
    labels = f'model="tiny-segmentation",outcome="200",route="{route}"'
    assert f"caps_med_requests_total{{{labels}}}" in text
    assert 'caps_med_stage_seconds_count{stage="predict"}' in text


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/{model}/segment"])
def test_openapi_documents_the_routes(client: TestClient, path: str) -> None:
    document = client.get("/openapi.json").json()
    assert path in document["paths"]
    assert "Problem" in document["components"]["schemas"]


def test_an_image_unlike_the_training_is_told(tmp_path: Path) -> None:
    values = [(0.9, 0.91)] * 6  # of no image
    names = ("background", "dark", "middle", "bright", "contrast", "roughness")
    statistics = ImageStatistics.model_validate(dict(zip(names, values, strict=True)))
    described = {"statistics": statistics, "input_description": "scans of 100 % größe"}
    write_tiny(tmp_path, "known", tiny_card("segmentation", None).model_copy(update=described))
    pixels = np.random.default_rng(0).integers(0, 255, (1, 24, 32), dtype=np.uint8)
    files = {"image": encode_image(MedicalImage(pixels), "png")}
    path = "/v1/models/known/segment"
    with TestClient(create_app(Settings(models=tmp_path))) as client:
        header = client.post(path, files=files).headers["Caps-Med-Warnings"]
        (warning,) = client.post(path, files=files, params={"format": "json"}).json()["warnings"]
    assert "the image is unlike those that the model was trained on" in warning
    assert "it takes scans of 100 % größe" in warning
    assert unquote(header) == warning


@pytest.mark.parametrize("what", ["synthesize", "interpolate"])
def test_a_label_map_that_does_not_suit_is_told(client: TestClient, what: str) -> None:
    empty = MedicalImage(np.zeros((1, 16, 24), np.uint8), format="png", kind="labels")
    path, files = f"/v1/models/tiny-synthesis/{what}", {"labels": encode_image(empty, "png")}
    told = "the label map is empty: all of it is background"
    answer = client.post(path, files=files, params={"format": "json"})
    assert answer.json()["warnings"] == [told]
    assert client.post(path, files=files).headers["Caps-Med-Warnings"] == told


def test_how_sure_a_segmentation_is(client: TestClient, models: Path, volume: bytes) -> None:
    def asked(format: str | None = None, **data: str) -> httpx.Response:
        files, params = {"image": ("a.nii.gz", volume)}, {"format": format} if format else {}
        answer: httpx.Response = client.post(SEGMENT, files=files, data=data, params=params)
        assert answer.status_code == 200, answer.text
        return answer

    model = caps_med.load_model("tiny-segmentation", models)
    wanted = model.segment(volume, disagreement=True)
    for name in MAP_NAMES:
        found = read_image(asked(map=name).content)
        np.testing.assert_allclose(found.array, wanted.map_of(name).array, atol=1e-6)
        np.testing.assert_array_equal(found.affine, wanted.affine)
    assert asked("json").json()["uncertainty"]["entropy"] == round(wanted.mean_entropy, 4)
    assert asked("json", disagreement="true").json()["uncertainty"] == wanted.uncertainty
    with zipfile.ZipFile(io.BytesIO(asked("zip", map="entropy").content)) as archive:
        names = ["segmentation.nii.gz", "entropy.nii.gz", "answer.json"]
        assert archive.namelist() == names
    with np.load(io.BytesIO(asked("npz", map="confidence").content)) as arrays:
        np.testing.assert_array_equal(arrays["confidence"], wanted.confidence_map.array)
    unknown = client.post(SEGMENT, files={"image": ("a", volume)}, data={"map": "depth"})
    assert unknown.status_code == 422


def test_an_answer_is_refined_if_asked(client: TestClient, models: Path, volume: bytes) -> None:
    plain, refined = (
        client.post(SEGMENT, files={"image": ("a.nii.gz", volume)}, data=data)
        for data in ({}, {"refine": "em"})
    )
    model = caps_med.load_model("tiny-segmentation", models)
    expected = model.segment(volume, refine="em").array
    np.testing.assert_array_equal(read_image(refined.content, kind="labels").array, expected)
    assert (expected != model.segment(volume).array).any()
    name = "caps-med-preprocessing"
    assert refined.headers[name] == f"{plain.headers[name]}; refined by em"
    unknown = client.post(SEGMENT, files={"image": ("a", volume)}, data={"refine": "magic"})
    assert unknown.status_code == 422
