"""A project learns: a real training, its comparison on held-out images, export, deletion."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from skimage.io import imread

from api.projects.evaluation import Scores, compared
from api.projects.learning import held_out_of
from api.projects.records import CANCELLED, Image, Project
from caps_med.bundles import ModelRepository, NetworkSpec
from caps_med.images import MedicalImage, encode_image, read_image
from tests.api.jobs import wait_for
from tests.api.projects.conftest import (
    SIZE,
    TINY,
    Create,
    add,
    code,
    discs,
    finished,
    last_round,
    png,
)
from tests.conftest import tiny_binary, tiny_card, write_tiny
from tests.waiting import until
from training.data import open_dataset


def annotated(client: httpx.Client, project: str, count: int) -> list[str]:
    """Add discs, predict them, and correct them with the truth."""
    pairs = discs(count)
    paths = add(client, project, {f"disc {i}.png": image for i, (image, _) in enumerate(pairs)})
    for path, (_, mask) in zip(paths, pairs, strict=True):
        assert client.post(f"{path}/predict").status_code == 201
        put = client.put(f"{path}/labels", content=mask, headers={"If-Match": '"1"'})
        assert put.status_code == 200
    return paths


@pytest.mark.slow
def test_a_round_of_an_ensemble_trains_a_network_from_the_beginning(
    client: httpx.Client, create: Create, own_models: Path
) -> None:
    card = tiny_binary("SegCaps", "disc")
    network = {"network": "SegCaps", "members": 2, "arguments": dict(card.network.arguments)}
    spec = NetworkSpec(name="Ensemble", arguments=network)
    write_tiny(own_models, "discs-folds", card.model_copy(update={"network": spec}))
    project = create(model="discs-folds", held_out="0.5")
    annotated(client, project, 4)
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    until(lambda: finished(client, project))
    one = last_round(client, project)
    assert (one["state"], one["base"]) == ("finished", "discs-folds@1"), one
    assert client.get(begun.headers["Location"]).json()["options"]["start_from"] is None
    assert not ModelRepository(own_models).find(one["model"]).card.is_ensemble


@pytest.mark.slow
def test_a_round_trains_and_tells_whether_the_model_is_better(
    client: httpx.Client, create: Create, own_models: Path
) -> None:
    project = create(held_out="0.5")
    annotated(client, project, 4)
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    assert begun.headers["Location"] == f"/v1/training-jobs/{begun.json()['job']}"
    assert client.get(project).json()["job"] == begun.json()["job"]
    assert code(client.post(f"{project}/learn")) == (409, "learning")
    until(lambda: finished(client, project))
    one = last_round(client, project)
    assert one["state"] == "finished", one
    assert (one["corrected"], one["trained_on"], one["held_out"]) == (4, 2, 2)
    trained = client.get(project).json()["trained_model"]
    assert (one["base"], one["model"]) == ("discs@1", f"{trained}@1")
    assert 0 < one["changed"] < 1
    better = one["dice"]["mean"]["mean"] >= one["before"]["mean"]["mean"]
    assert one["accepted"] is better
    assert ("not worse" in one["message"]) is better
    shown = client.get(project).json()
    assert (shown["model"], shown["job"]) == (one["model"] if better else "discs@1", None)
    repository = ModelRepository(own_models)
    assert repository.candidates(trained) == ([] if better else [1])
    images = client.get(f"{project}/images").json()["images"]
    assert sum(image["held_out"] for image in images) == 2
    job = client.get(begun.headers["Location"]).json()
    assert job["options"]["start_from"] == "discs@1"

    listed = client.get("/v1/models").json()["models"]
    assert (trained in [model["name"] for model in listed]) is better

    for image in images:
        if image["held_out"]:
            assert client.delete(f"{project}/images/{image['id']}").status_code == 204
    refused = client.post(f"{project}/learn", data=TINY)
    assert code(refused) == (422, "data_not_fit"), "the others were learned"
    assert "learned from all other images" in refused.json()["detail"]


def test_a_round_is_cancelled_with_its_job_or_project(client: httpx.Client, create: Create) -> None:
    project = create()
    annotated(client, project, 3)
    endless = {**TINY, "epochs": "10000"}
    begun = client.post(f"{project}/learn", data=endless)
    assert client.delete(begun.headers["Location"]).status_code == 202
    until(lambda: client.get(project).json()["job"] is None)
    cancelled = last_round(client, project)
    assert (cancelled["state"], cancelled["message"]) == ("cancelled", CANCELLED)
    (held_out,) = (
        image for image in client.get(f"{project}/images").json()["images"] if image["held_out"]
    )
    assert client.delete(f"{project}/images/{held_out['id']}").status_code == 204
    job = client.post(f"{project}/learn", data=endless).json()["job"]  # others are not learned
    wait_for(client, job, "running")
    assert client.delete(project).status_code == 204
    wait_for(client, job, "cancelled")
    assert code(client.get(f"{project}/rounds")) == (404, "project_not_found")


def test_too_little_is_not_learned_from(client: httpx.Client, create: Create) -> None:
    project = create()
    annotated(client, project, 1)
    refused = client.post(f"{project}/learn")
    assert code(refused) == (422, "data_not_fit")
    assert refused.json()["detail"] == "1 image is corrected: correct at least 2"


def test_a_label_that_no_image_shows_would_be_forgotten(
    client: httpx.Client, create: Create
) -> None:
    project = create()
    nothing = png(np.zeros((SIZE, SIZE), np.uint8), "labels")
    for path in add(client, project, {f"{i}.png": image for i, (image, _) in enumerate(discs(2))}):
        first = {"If-None-Match": "*"}
        assert client.put(f"{path}/labels", content=nothing, headers=first).is_success
    refused = client.post(f"{project}/learn")
    assert code(refused) == (422, "data_not_fit")
    assert "shows disc" in refused.json()["detail"]


def test_labels_of_many_words_are_learned(
    client: httpx.Client, create: Create, own_models: Path
) -> None:
    """As those of a model with hundreds of labels."""
    write_tiny(own_models, "wordy", tiny_binary("SegCaps", "disc-" * 1000))
    project = create(model="wordy")
    annotated(client, project, 2)
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    assert client.delete(project).status_code == 204


def test_every_seed_that_a_project_takes_is_learned_with(
    client: httpx.Client, create: Create
) -> None:
    project = create(seed=str(2**63 - 1))
    annotated(client, project, 2)
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    assert client.delete(project).status_code == 204


@pytest.mark.parametrize("layout", ["nnunet", "pairs"])
def test_an_export_is_a_data_set(
    client: httpx.Client, create: Create, layout: str, tmp_path: Path
) -> None:
    project = create()
    assert code(client.get(f"{project}/export")) == (422, "data_not_fit")
    annotated(client, project, 2)
    packed = client.get(f"{project}/export", params={"layout": layout})
    assert packed.headers["content-type"] == "application/zip"
    folder = tmp_path / layout
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        assert archive.testzip() is None
        archive.extractall(folder)
    data = open_dataset(folder)
    assert (len(data.cases), data.trainable) == (2, True)
    if layout == "nnunet":
        description = json.loads((folder / "dataset.json").read_text())
        assert description["labels"] == {"background": 0, "disc": 1}
        assert (description["numTraining"], description["file_ending"]) == (2, ".png")


def test_labels_are_numbered_and_named_as_nnunet_wants_them(
    client: httpx.Client, create: Create, own_models: Path, tmp_path: Path
) -> None:
    """It refuses ids that leave numbers out, and another name of 0 than background."""
    labels = {0: "nothing", 1: "edema", 4: "enhancing"}
    write_tiny(own_models, "gliomas", tiny_card("segmentation", None, labels=labels))
    project, [(picture, _)] = create(model="gliomas"), discs(1)
    ids = np.zeros(read_image(picture, kind="image").array[:1].shape, np.uint8)
    ids[:, 3:9, 3:9], ids[:, 5:8, 5:8] = 1, 4
    mask = encode_image(MedicalImage(ids, kind="labels"), "png")
    corrected(client, project, {"a.png": picture}, mask)
    described = exported(client, project, tmp_path / "nnunet")
    assert described["labels"] == {"background": 0, "edema": 1, "enhancing": 2}
    (file,) = (tmp_path / "nnunet" / "labelsTr").iterdir()
    found = read_image(file, kind="labels").array
    np.testing.assert_array_equal(found, np.where(ids == 4, 2, ids))
    packed = client.get(f"{project}/export", params={"layout": "pairs"}).content
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        (name,) = (name for name in archive.namelist() if name.startswith("labels/"))
        np.testing.assert_array_equal(read_image(archive.read(name), kind="labels").array, ids)


def test_pictures_and_volumes_are_no_data_set_of_nnunet(
    client: httpx.Client, create: Create, volume: bytes
) -> None:
    project = create()
    annotated(client, project, 1)
    (path,) = add(client, project, {"a.nii.gz": volume})
    assert client.post(f"{path}/predict").status_code == 201
    labels = client.get(f"{path}/labels").content
    assert client.put(f"{path}/labels", content=labels, headers={"If-Match": '"1"'}).is_success
    assert code(client.get(f"{project}/export")) == (422, "data_not_fit")
    packed = client.get(f"{project}/export", params={"layout": "pairs"})
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        assert len(archive.namelist()) == 4


def corrected(client: httpx.Client, project: str, images: dict[str, bytes], mask: bytes) -> None:
    for path in add(client, project, images):
        first = {"If-None-Match": "*"}
        assert client.put(f"{path}/labels", content=mask, headers=first).is_success


def coloured(image: bytes, form: str = "png") -> bytes:
    """A grey picture with red in it."""
    grey = read_image(image, kind="image").array
    picture = PIL.Image.fromarray(np.concatenate([grey, grey // 2, grey // 3]).transpose(1, 2, 0))
    picture.save(file := io.BytesIO(), form)
    return file.getvalue()


@pytest.mark.parametrize("colour_first", [False, True])
def test_grey_and_colour_are_no_data_set_of_nnunet(
    client: httpx.Client, create: Create, colour_first: bool
) -> None:
    project, [(grey, mask)] = create(), discs(1)
    colour = coloured(grey)
    first, second = (colour, grey) if colour_first else (grey, colour)
    corrected(client, project, {"a.png": first}, mask)
    corrected(client, project, {"b.png": second}, mask)
    refused = client.get(f"{project}/export")
    assert code(refused) == (422, "data_not_fit")
    assert "images with 1 and 3 channels" in refused.json()["detail"]
    assert client.get(f"{project}/export", params={"layout": "pairs"}).is_success


@pytest.mark.slow
def test_grey_and_colour_are_learned_as_the_model_takes_them(
    client: httpx.Client, create: Create
) -> None:
    project = create()
    for number, (grey, mask) in enumerate(discs(3)):
        corrected(client, project, {f"grey {number}.png": grey}, mask)
    for number, (grey, mask) in enumerate(discs(3, seed=1)):
        form = ("png", "jpeg")[number % 2]
        corrected(client, project, {f"colour {number}.{form}": coloured(grey, form)}, mask)
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    until(lambda: finished(client, project))
    one = last_round(client, project)
    assert one["state"] == "finished", one


def test_what_cannot_be_adapted_is_told_by_the_job(
    client: httpx.Client, create: Create, own_models: Path
) -> None:
    """And not by the request, which begins it and reads no image."""
    project = create()
    for number, (grey, mask) in enumerate(discs(3)):
        corrected(client, project, {f"colour {number}.png": coloured(grey)}, mask)
    kept = own_models / ".projects" / project.rpartition("/")[2]
    for file in kept.rglob("*.png"):
        if len(read_image(file).array) > 1:
            file.write_bytes(b"\x89PNG\r\n\x1a\n, and nothing more")
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    until(lambda: finished(client, project))
    one = last_round(client, project)
    assert one["state"] == "failed" and re.match(r"colour \d\.png: ", one["message"]), one
    job = client.get(f"/v1/training-jobs/{one['job']}").json()
    assert (job["state"], job["code"]) == ("failed", "invalid_input")


def test_pictures_and_volumes_are_not_learned_together(
    client: httpx.Client, create: Create, volume: bytes
) -> None:
    project = create(held_out="0.1")
    annotated(client, project, 3)
    for path in add(client, project, {f"{i}.nii.gz": volume for i in range(3)}):
        assert client.post(f"{path}/predict").status_code == 201
        labels = client.get(f"{path}/labels").content
        assert client.put(f"{path}/labels", content=labels, headers={"If-Match": '"1"'}).is_success
    refused = client.post(f"{project}/learn", data=TINY)
    assert code(refused) == (422, "data_not_fit")
    assert "pictures and" in refused.json()["detail"]


def test_a_round_that_fails_names_the_images(client: httpx.Client, create: Create) -> None:
    project = create(held_out="0.1")
    (image, _), *_ = found = discs(4)
    for number, (_, mask) in enumerate(found):
        corrected(client, project, {f"same {number}.png": image}, mask)
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    until(lambda: finished(client, project))
    told = last_round(client, project)["message"]
    assert "contradiction: same" in told
    assert "is the same image as same" in told


def exported(client: httpx.Client, project: str, folder: Path) -> dict[str, Any]:
    """The description of nnU-Net's layout, which is unpacked."""
    packed = client.get(f"{project}/export").content
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)
    found: dict[str, Any] = json.loads((folder / "dataset.json").read_text())
    return found


def test_colours_are_one_file_of_nnunet(
    client: httpx.Client, create: Create, tmp_path: Path
) -> None:
    project, [(grey, mask)] = create(), discs(1)
    corrected(client, project, {"a.png": coloured(grey)}, mask)
    described = exported(client, project, tmp_path)
    assert described["channel_names"] == {"0": "R", "1": "G", "2": "B"}
    assert len([*(tmp_path / "imagesTr").iterdir()]) == 1


@pytest.mark.parametrize(("mode", "copies"), [("L", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3)])
def test_nnunet_reads_the_ids_and_the_channels_that_the_description_names(
    client: httpx.Client, create: Create, tmp_path: Path, mode: str, copies: int
) -> None:
    """It reads pictures by scikit-image: palettes as colours, and transparency as a channel."""
    project, [(grey, mask)] = create(), discs(1)
    levels = read_image(grey, kind="image").array[0]
    opaque = [np.full_like(levels, 255)] * mode.endswith("A")
    picture = np.stack([*[levels] * copies, *opaque], axis=-1).squeeze()
    PIL.Image.fromarray(picture).save(file := io.BytesIO(), "PNG")
    corrected(client, project, {"a.png": file.getvalue()}, mask)
    described = exported(client, project, tmp_path)
    (image,), (label,) = ((tmp_path / name).iterdir() for name in ("imagesTr", "labelsTr"))
    assert imread(image).size == levels.size * len(described["channel_names"])
    ids = read_image(mask, kind="labels").array[0]
    np.testing.assert_array_equal(imread(label), ids)


def test_numbers_that_png_does_not_hold_are_tiff_for_nnunet(
    client: httpx.Client, create: Create, tmp_path: Path
) -> None:
    project, ((grey, mask), (other, _)) = create(), discs(2)
    floats = read_image(grey, kind="image").array.astype(np.float32) * 16 - 50
    corrected(client, project, {"a.tif": encode_image(MedicalImage(floats), "tiff")}, mask)
    corrected(client, project, {"b.png": other}, mask)
    assert exported(client, project, tmp_path)["file_ending"] == ".tif"
    data = open_dataset(tmp_path)
    assert not [one for one in data.findings if one.severity == "error"]
    (image, label), (second, _) = map(data.read, data.cases)
    assert (image.array == floats).all()
    assert (label.array == read_image(mask, kind="labels").array).all()
    assert (second.array == read_image(other).array).all()


def test_other_channels_are_a_file_each_of_nnunet(
    client: httpx.Client, create: Create, own_models: Path, tmp_path: Path
) -> None:
    card = tiny_binary("SegCaps", "disc")
    arguments = {**card.network.arguments, "in_channels": 2}
    network = card.network.model_copy(update={"arguments": arguments})
    named = {"network": network, "channel_names": ("T1", "FLAIR")}
    write_tiny(own_models, "two-sequences", card.model_copy(update=named))
    project = create(model="two-sequences")
    voxels = np.random.default_rng(3).uniform(0, 90, (2, 16, 16, 3)).astype(np.float32)
    scan = encode_image(MedicalImage(voxels, np.diag([1.0, 1, 3, 1]), "nifti"), "nifti")
    (path,) = add(client, project, {"a.nii.gz": scan})
    assert client.post(f"{path}/predict").status_code == 201
    labels = client.get(f"{path}/labels").content
    assert client.put(f"{path}/labels", content=labels, headers={"If-Match": '"1"'}).is_success
    described = exported(client, project, tmp_path)
    assert described["channel_names"] == {"0": "T1", "1": "FLAIR"}
    data = open_dataset(tmp_path)
    assert (len(data.cases), data.channels) == (1, ("T1", "FLAIR"))
    np.testing.assert_allclose(data.read(data.cases[0])[0].array, voxels, rtol=1e-6)


def project_of(**values: Any) -> Project:  # noqa: ANN401
    usual = {"number": 1, "id": "a", "name": "a", "owner": None, "start_model": "m@1",
             "model": "m@1", "trained_name": "a-1", "labels": {0: "background", 1: "disc"},
             "seed": 3, "held_out": 0.2, "created": 0.0}  # fmt: skip
    return Project(**{**usual, **values})


def images_of(count: int, held_out: Mapping[int, bool] | None = None) -> list[Image]:
    return [
        Image(
            number=i, id=str(i), project="a", name="", file="", format="png", channels=1,
            shape=(8, 8), affine=None, bytes=1, created=0.0, state="corrected",
            held_out=bool(held_out and held_out.get(i)),
        )
        for i in range(count)
    ]  # fmt: skip


def test_the_held_out_part_is_chosen_once() -> None:
    chosen = held_out_of(images_of(20), project_of())
    assert len(chosen) == 4
    assert chosen == held_out_of(images_of(20), project_of())
    assert chosen != held_out_of(images_of(20), project_of(seed=4))
    assert held_out_of(images_of(40, {3: True, 5: True}), project_of()) == {"3", "5"}
    assert len(held_out_of(images_of(2), project_of(held_out=0.9))) == 1


def test_a_model_that_is_not_worse_is_kept() -> None:
    low, high = Scores([{"disc": 0.5}], ["x"]), Scores([{"disc": 0.7}], ["x"])
    assert compared("m@1", low, "n@1", high)[0]
    assert compared("m@1", low, "n@1", low)[0]
    accepted, message = compared("m@1", high, "n@1", low)
    assert not accepted
    assert "n@1 is worse than m@1 on 1 held-out image, so m@1 stays in use" in message


def test_a_model_that_cannot_be_compared_is_not_kept() -> None:
    """The held-out images were deleted while it was trained."""
    accepted, message = compared("m@1", Scores([], []), "n@1", Scores([], []))
    assert not accepted
    assert message == "no held-out image is left to compare n@1 with m@1, which stays in use"


def test_dice_has_an_interval_over_images() -> None:
    """Of single images there is none, and a label in neither map does not count."""
    scores = Scores([{"a": 0.5, "b": 1.0}, {"a": 0.7}, {}], ["x", "y", "z"]).as_dict(seed=0)
    assert scores["a"]["mean"] == pytest.approx(0.6)
    assert 0.5 <= scores["a"]["low"] <= 0.6 <= scores["a"]["high"] <= 0.7
    assert scores["b"] == {"mean": 1.0, "low": None, "high": None}
    assert scores["mean"]["mean"] == pytest.approx((0.75 + 0.7) / 2)
