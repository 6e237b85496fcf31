"""Interpolation, manipulation and points over HTTP."""

from __future__ import annotations

import io
import zipfile
from typing import Any, Literal

import numpy as np
import pytest
from fastapi.testclient import TestClient

from caps_med.images import MedicalImage, encode_image, read_image
from caps_med.images.image import STACK_AFFINE
from caps_med.inference import Synthesizer, SyntheticImage

GENERATOR, SEGMENTER = "/v1/models/tiny-synthesis", "/v1/models/tiny-segmentation"


def test_the_ends_are_byte_for_byte_the_seeds(client: TestClient, labels: bytes) -> None:
    sent = {"labels": ("l", labels)}
    form = {"seed": 3, "to_seed": 9, "steps": 4}
    answer = client.post(f"{GENERATOR}/interpolate", files=sent, data=form)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Caps-Med-To-Seed"] == "9"
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    names = archive.namelist()
    assert names == [f"image{i:02d}.png" for i in range(4)]
    for name, seed in ((names[0], 3), (names[-1], 9)):
        alone = client.post(f"{GENERATOR}/synthesize", files=sent, data={"seed": seed})
        assert archive.read(name) == alone.content
    strip = client.post(f"{GENERATOR}/interpolate?format=png", files=sent, data=form)
    assert read_image(strip.content).array.shape == (1, 21, 120)
    numbers = client.post(f"{GENERATOR}/interpolate?format=json", files=sent, data=form).json()
    assert numbers["positions"][0] == 0
    assert numbers["positions"][-1] == 1


def test_capsules_beside_the_images(client: TestClient, labels: bytes) -> None:
    sent, form = {"labels": ("l", labels)}, {"seed": 3, "to_seed": 9, "steps": 4, "features": True}
    strip = client.post(f"{GENERATOR}/interpolate?format=png", files=sent, data=form)
    assert read_image(strip.content).array.shape == (1, 5 * 21, 120)
    answer = client.post(f"{GENERATOR}/interpolate?format=npz", files=sent, data=form)
    arrays = np.load(io.BytesIO(answer.content))
    alone = client.post(f"{GENERATOR}/features?format=npz", files=sent, data={"seed": 9})
    layers = np.load(io.BytesIO(alone.content))
    assert np.array_equal(arrays["capsules03/convcaps10"], layers["convcaps10"])
    assert client.post(f"{GENERATOR}/interpolate", files=sent, data=form).status_code == 422


def test_a_slice_of_a_volume_or_the_volumes(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PNG one slice is computed and no more; the volumes are bounded in all."""
    ids = np.zeros((1, 12, 16, 5), np.uint8)
    ids[0, 2:8, 3:9, :3] = 2
    volume = encode_image(MedicalImage(ids, format="nifti", kind="labels"), "nifti")
    sent, form = {"labels": ("l", volume)}, {"seed": 3, "to_seed": 9, "steps": 2}

    def arrays(**more: int) -> dict[str, np.ndarray]:
        url = f"{GENERATOR}/interpolate?format=npz"
        return dict(
            np.load(io.BytesIO(client.post(url, files=sent, data={**form, **more}).content))
        )

    whole, one = arrays(), arrays(slice=1)
    assert whole["image00"].shape == (1, 12, 16, 5)
    np.testing.assert_array_equal(one["image01"], whole["image01"][..., 1:2])
    seen: list[tuple[int, ...]] = []
    interpolate = Synthesizer.interpolate

    def watched(self: Synthesizer, labels: MedicalImage, *rest: int) -> list[SyntheticImage]:
        seen.append(labels.spatial_shape)
        return interpolate(self, labels, *rest)

    monkeypatch.setattr(Synthesizer, "interpolate", watched)
    strip = client.post(f"{GENERATOR}/interpolate?format=png", files=sent, data=form)
    assert read_image(strip.content).array.shape == (1, 16, 24)
    assert seen == [(12, 16, 1)]
    refused = client.post(f"{GENERATOR}/interpolate", files=sent, data={**form, "slice": 5})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_parameter")


def test_slices_of_a_tiff_come_as_nifti(client: TestClient) -> None:
    """TIFF holds no place of a slice; the whole volumes it does hold."""
    labels = MedicalImage(np.zeros((1, 12, 16, 5), np.uint8), STACK_AFFINE, "tiff", kind="labels")
    sent = {"labels": ("l", encode_image(labels, "tiff"))}
    for chosen, suffix in ({}, "tif"), ({"slice": 3}, "nii.gz"):
        form = {"steps": 2, **chosen}
        answer = client.post(f"{GENERATOR}/interpolate", files=sent, data=form)
        names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
        assert names == [f"image{i:02d}.{suffix}" for i in range(2)]


def test_too_many_steps(client: TestClient, labels: bytes) -> None:
    answer = client.post(
        f"{GENERATOR}/interpolate", files={"labels": ("l", labels)}, data={"steps": 65}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")


@pytest.mark.parametrize(
    ("path", "form", "kind"),
    [
        (f"{SEGMENTER}/features", {}, "image"),
        (f"{SEGMENTER}/features", {"layer": "conv1", "row": 2, "column": 3}, "image"),
        (f"{SEGMENTER}/manipulate", {}, "image"),
        (f"{GENERATOR}/features", {}, "labels"),
    ],
    ids=["features", "point", "manipulate", "features of a label map"],
)
def test_what_does_not_suit_the_model_is_told(
    client: TestClient, path: str, form: dict[str, Any], kind: Literal["image", "labels"]
) -> None:
    empty = MedicalImage(np.zeros((1, 16, 24), np.uint8), format="png", kind=kind)
    sent = {kind: encode_image(empty, "png")}
    answer = client.post(path, files=sent, data=form, params={"format": "json"})
    (told,) = answer.json()["warnings"]
    assert "is empty" in told and answer.headers["Caps-Med-Warnings"] == told
    if "layer" not in form:
        arrays = client.post(path, files=sent, data=form, params={"format": "npz"})
        assert arrays.headers["Caps-Med-Warnings"] == told


def test_an_atom_moves(client: TestClient, picture: bytes) -> None:
    sent = {"image": ("i", picture)}
    form = {"capsule": 0, "atom": 1, "deltas": "-0.25,0,0.25"}
    arrays = np.load(
        io.BytesIO(client.post(f"{SEGMENTER}/manipulate", files=sent, data=form).content)
    )
    assert arrays["reconstructions"].shape == (3, 1, 21, 30)
    assert np.array_equal(arrays["reconstructions"][1], arrays["original"])
    named = form | {"capsule": "background"}
    again = client.post(f"{SEGMENTER}/manipulate", files=sent, data=named)
    assert again.content == client.post(f"{SEGMENTER}/manipulate", files=sent, data=form).content
    numbers = client.post(f"{SEGMENTER}/manipulate?format=json", files=sent, data=form).json()
    assert numbers["deltas"] == [-0.25, 0, 0.25]
    assert numbers["mean_change"][1] == 0
    strip = client.post(f"{SEGMENTER}/manipulate?format=png", files=sent, data=form)
    assert read_image(strip.content).array.shape == (1, 21, 90)


def test_what_cannot_be_moved(client: TestClient, picture: bytes) -> None:
    refused = [{"deltas": "a"}, {"deltas": "nan"}, {"atom": 99}, {"capsule": 3}, {"capsule": "a"}]
    for form in refused:
        answer = client.post(f"{SEGMENTER}/manipulate", files={"image": ("i", picture)}, data=form)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")


def test_one_point(client: TestClient, picture: bytes) -> None:
    sent = {"image": ("i", picture)}
    form = {"layer": "primarycaps", "row": 5, "column": 9}
    found = client.post(f"{SEGMENTER}/features", files=sent, data=form).json()
    assert np.array(found["pose"]).shape == (2, 4)
    assert found["next_layer"] == "conv_cap_2_1"
    assert np.allclose(np.sum(found["couplings"], axis=1), 1, atol=1e-5)
    answer = client.post(f"{SEGMENTER}/features", files=sent, data={"row": 5})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")
