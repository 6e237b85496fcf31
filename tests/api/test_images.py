"""Images in a form for viewers, samples, and the page that uses them."""

from __future__ import annotations

import gzip
import json
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from api.routes import page
from caps_med.images import MedicalImage, SliceStack, encode_image, read_image
from caps_med.samples import SAMPLES
from tests.images.dicom_files import zipped_study
from tests.zips import zip_of

IMAGES = "/v1/images"


def test_a_nifti_file_comes_back_as_it_is(client: TestClient, volume: bytes) -> None:
    answer = client.post(IMAGES, files={"image": volume})
    assert (answer.status_code, answer.content) == (200, volume)
    assert answer.headers["caps-med-slices"] == "3"
    assert answer.headers["caps-med-geometry"] == "yes"


def test_a_browser_gets_gzip_of_one_member(client: TestClient, volume: bytes) -> None:
    """As bgzip writes it, it has several, of which browsers read none."""
    plain = gzip.decompress(volume)
    members = gzip.compress(plain[:500]) + gzip.compress(plain[500:])
    content = client.post(IMAGES, files={"image": members}).content
    stream = zlib.decompressobj(wbits=31)
    assert read_image(stream.decompress(content)).array.shape == (1, 20, 28, 3)
    assert stream.eof and not stream.unused_data


def test_a_picture_becomes_a_slice_the_same_way_up(client: TestClient, picture: bytes) -> None:
    answer = client.post(IMAGES, files={"image": picture})
    assert answer.headers["content-type"] == "application/gzip"
    assert answer.headers["caps-med-geometry"] == "no"
    found, source = read_image(answer.content), read_image(picture)
    np.testing.assert_array_equal(SliceStack.from_image(found).array[0], source.array)


def test_colours_are_seen_in_grey(client: TestClient) -> None:
    pixels = np.zeros((3, 4, 5), np.uint8)
    pixels[1] = 200
    colour = encode_image(MedicalImage(pixels, format="png"), "png")
    found = read_image(client.post(IMAGES, files={"image": colour}).content)
    assert np.unique(found.array).tolist() == [round(200 * 0.587)]


@pytest.mark.parametrize("plane", ["axial", "coronal", "sagittal"])
def test_one_slice_lies_where_it_lay(client: TestClient, volume: bytes, plane: str) -> None:
    whole = SliceStack.from_image(read_image(volume), plane)  # type: ignore[arg-type]
    at = len(whole.array) - 2
    data = {"plane": plane, "slice": str(at)}
    answer = client.post(IMAGES, files={"image": volume}, data=data)
    assert answer.headers["caps-med-slices"] == str(len(whole.array))
    one = SliceStack.from_image(read_image(answer.content), plane)  # type: ignore[arg-type]
    np.testing.assert_array_equal(one.array[0], whole.array[at])
    moved = whole.affine @ [at, 2, 3, 1]
    np.testing.assert_allclose(one.affine @ [0, 2, 3, 1], moved, atol=1e-4)


def test_a_single_slice_is_seen_in_its_own_plane(client: TestClient) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 1, 30, 20)).astype(np.uint8)
    sagittal = MedicalImage(pixels, np.eye(4), "nifti")
    files = {"image": encode_image(sagittal, "nifti")}
    answer = client.post(f"{IMAGES}?format=png", files=files)
    assert answer.headers["caps-med-slices"] == "1"
    shown = np.asarray(Image.open(BytesIO(answer.content)))
    assert shown.shape == SliceStack.from_image(sagittal, "sagittal").array.shape[2:] == (20, 30)
    # a model with a spacing looks for axial slices in it
    answer = client.post(f"{IMAGES}?format=png", files=files, data={"model": "tiny-segmentation"})
    assert answer.headers["caps-med-slices"] == "20"


def test_a_slice_as_a_picture(client: TestClient, volume: bytes, labels: bytes) -> None:
    data = {"slice": "1"}
    answer = client.post(f"{IMAGES}?format=png", files={"image": volume}, data=data)
    shown = np.asarray(Image.open(BytesIO(answer.content)), float)
    wanted = SliceStack.from_image(read_image(volume)).array[1, 0]
    assert shown.shape == wanted.shape
    assert np.corrcoef(shown.ravel(), wanted.ravel())[0, 1] > 0.999
    ids = client.post(f"{IMAGES}?format=png", files={"image": labels}, data={"kind": "labels"})
    found = read_image(ids.content, kind="labels")
    np.testing.assert_array_equal(found.array, read_image(labels, kind="labels").array)


def test_colours_given_up_are_told(client: TestClient) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 24)).astype(np.uint8)
    colour = encode_image(MedicalImage(pixels, format="png"), "png")
    model = "/v1/models/tiny-segmentation"
    for url in (IMAGES, f"{model}/segment", f"{model}/features"):
        answer = client.post(url, files={"image": colour})
        assert "luminance" in answer.headers["caps-med-warnings"]


def test_labels_in_the_colours_of_a_model(client: TestClient, labels: bytes) -> None:
    listed = client.get("/v1/models").json()["models"]
    for model in listed:
        data = {"kind": "labels", "model": model["name"]}
        answer = client.post(f"{IMAGES}?format=png", files={"image": labels}, data=data)
        shown, ids = Image.open(BytesIO(answer.content)), read_image(labels, kind="labels").array
        colours = np.asarray(shown.convert("RGB"))
        for label in set(np.unique(ids)) & {int(label) for label in model["colors"]}:
            found = np.unique(colours[ids[0] == label], axis=0).tolist()
            assert found == [model["colors"][str(label)]]
    data["model"] = "x"
    unknown = client.post(f"{IMAGES}?format=png", files={"image": labels}, data=data)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "model_not_found")


def test_a_slice_that_is_not_there(client: TestClient, volume: bytes, picture: bytes) -> None:
    for content in (volume, picture):
        for form in ("nifti", "png"):
            files, data = {"image": content}, {"slice": "99"}
            answer = client.post(f"{IMAGES}?format={form}", files=files, data=data)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")
            assert "slice=99: must be from 0 to" in answer.json()["detail"]


def test_all_that_a_viewer_needs_at_once(client: TestClient, picture: bytes) -> None:
    url = "/v1/models/tiny-segmentation/segment"
    with zipfile.ZipFile(
        BytesIO(client.post(f"{url}?format=zip", files={"image": picture}).content)
    ) as z:
        files = {name: z.read(name) for name in z.namelist()}
    assert list(files) == ["segmentation.png", "segmentation.nii.gz", "answer.json"]
    for form, name in (("png", "segmentation.png"), ("nifti", "segmentation.nii.gz")):
        alone = client.post(f"{url}?format={form}", files={"image": picture})
        assert files[name] == alone.content
    assert (
        json.loads(files["answer.json"])
        == client.post(f"{url}?format=json", files={"image": picture}).json()
    )


def test_which_files_form_an_image(client: TestClient) -> None:
    url = f"{IMAGES}/series"
    answer = client.post(url, files={"archive": zipped_study()})
    assert answer.json() == {
        "images": [
            {"label": "series", "files": [f"t1/{n}.dcm" for n in (1, 2, 3)]},
            {"label": "series", "files": [f"echoes/{n}.dcm" for n in range(4)]},
        ],
        "left_out": [],
    }
    empty = client.post(url, files={"archive": zip_of(("a.txt", b"text"))})
    assert empty.json() == {"images": [], "left_out": []}
    refused = client.post(url, files={"archive": b"PK\3\4"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")


def test_seeds_side_by_side(client: TestClient, labels: bytes) -> None:
    url = "/v1/models/tiny-synthesis/synthesize"
    files, data = {"labels": labels}, {"seed": "4", "count": "2"}
    strip = read_image(client.post(f"{url}?format=png", files=files, data=data).content)
    for i, seed in enumerate(("4", "5")):
        one = read_image(client.post(url, files=files, data={"seed": seed}).content)
        width = one.array.shape[2]
        np.testing.assert_array_equal(strip.array[..., i * width : (i + 1) * width], one.array)


def test_samples_are_a_closed_list(client: TestClient) -> None:
    listed = client.get("/v1/samples").json()["samples"]
    assert [sample["name"] for sample in listed] == list(SAMPLES)
    for sample in listed:
        answer = client.get(f"/v1/samples/{sample['name']}")
        assert answer.content == SAMPLES[sample["name"]].path.read_bytes()
        read_image(answer.content, kind=sample["kind"])
        assert sample["file"] in answer.headers["content-disposition"]
        assert sample["image_of"] in (None, *SAMPLES)
    for name in ("nope", "t1.nii.gz", "..%2FNOTICE.md", "%2Fetc%2Fpasswd"):
        answer = client.get(f"/v1/samples/{name}")
        assert answer.status_code == 404
    assert client.get("/v1/samples/nope").json()["code"] == "sample_not_found"


def test_models_tell_what_their_cards_show(client: TestClient) -> None:
    models = {m["name"]: m for m in client.get("/v1/models").json()["models"]}
    card = models["brain-t1-tissue"]
    assert card["colors"]["1"] == [86, 180, 233]
    assert card["license"] == "Apache-2.0" and "MNI152" in card["data"]
    assert "skull-stripped" in card["input_description"]
    assert card["size_bytes"] > 2_000_000
    assert not card["ensemble"]
    assert set(models["tiny-segmentation"]["colors"]) == {"0", "2", "7"}


class TestPage:
    def test_what_was_built(
        self, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "index.html").write_text("<title>built</title>")
        monkeypatch.setattr(page, "STATIC", tmp_path)
        answer = client.get("/")
        assert answer.text == "<title>built</title>"
        assert answer.headers["cache-control"] == "no-cache"

    def test_what_to_run_where_it_was_not(
        self, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(page, "STATIC", tmp_path / "none")
        answer = client.get("/")
        assert answer.status_code == 200
        assert "make page" in answer.text and "Node" in answer.text

    def test_nothing_else_is_served(self, client: TestClient) -> None:
        for path in ("nope.js", "../index.html", "%2e%2e/%2e%2e/app.py", ""):
            assert client.get(f"/assets/{path}").status_code == 404
