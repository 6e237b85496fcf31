"""Images of a project that are labelled in part: the rest is neither learned nor scored."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import httpx
import numpy as np
import pytest

from caps_med.bundles import ModelRepository
from caps_med.images import read_image
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
    upload,
)
from tests.waiting import until
from training.data import open_dataset
from training.data.interpretation import Interpretation

FIRST = {"If-None-Match": "*"}


def labelled_left(mask: bytes, ignored: int) -> bytes:
    """A mask of which the right half is not labelled."""
    ids = read_image(mask, kind="labels").array[0].copy()
    ids[:, SIZE // 2 :] = ignored
    return png(ids.astype(np.uint8), "labels")


def test_an_id_of_what_is_not_labelled_is_chosen_at_the_beginning(
    client: httpx.Client, create: Create
) -> None:
    assert client.get(create()).json()["ignore_label"] is None
    assert client.get(create(ignore_label="7")).json()["ignore_label"] == 7
    for taken in ("0", "1", "256"):
        form = {"name": "discs", "model": "discs", "ignore_label": taken}
        assert client.post("/v1/projects", data=form).status_code == 422
    named = {"name": "discs", "model": "discs", "ignore_label": "2", "labels": "1=ignore"}
    assert code(client.post("/v1/projects", data=named)) == (422, "invalid_parameter")


@pytest.mark.parametrize("ignored", [2, 255])
def test_label_maps_may_hold_it_there_alone(
    client: httpx.Client, create: Create, ignored: int
) -> None:
    [(image, mask)] = discs(1)
    left = labelled_left(mask, ignored)
    whole = create()
    refused = upload(client, whole, {"a.png": image}, {"a.png": left})
    assert code(refused) == (422, "unknown_label")
    project = create(ignore_label=str(ignored))
    assert upload(client, project, {"a.png": image}, {"a.png": left}).status_code == 201
    (path,) = add(client, project, {"b.png": image})
    assert client.put(f"{path}/labels", content=left, headers=FIRST).is_success
    kept = read_image(client.get(f"{path}/labels").content, kind="labels").array
    np.testing.assert_array_equal(kept, read_image(left, kind="labels").array)


def test_only_255_or_what_was_chosen_means_not_labelled(
    client: httpx.Client, create: Create
) -> None:
    """A mask of 0 and 255 is one of 0 and 1, unless 255 was chosen."""
    [(image, mask)] = discs(1)
    ids = read_image(mask, kind="labels").array[0]
    white = png((255 * ids).astype(np.uint8), "labels")
    for ignored, expected in ((2, ids), (255, 255 * ids)):
        (path,) = add(client, create(ignore_label=str(ignored)), {"a.png": image})
        assert client.put(f"{path}/labels", content=white, headers=FIRST).is_success
        kept = read_image(client.get(f"{path}/labels").content, kind="labels").array[0]
        np.testing.assert_array_equal(kept, expected)


def test_what_is_not_labelled_was_not_changed(client: httpx.Client, create: Create) -> None:
    [(image, _)] = discs(1)
    (path,) = add(client, create(ignore_label="2"), {"a.png": image})
    assert client.post(f"{path}/predict").status_code == 201
    ids = read_image(client.get(f"{path}/labels").content, kind="labels").array[0].copy()
    ids[0, :4] = 1 - ids[0, :4]
    ids[SIZE // 2 :] = 2
    put = client.put(
        f"{path}/labels", content=png(ids.astype(np.uint8), "labels"), headers={"If-Match": '"1"'}
    )
    assert put.json()["changed"] == pytest.approx(4 / (SIZE * SIZE / 2))
    nothing = png(np.full((SIZE, SIZE), 2, np.uint8), "labels")
    put = client.put(f"{path}/labels", content=nothing, headers={"If-Match": '"2"'})
    assert put.json()["changed"] == 0


@pytest.mark.slow
def test_it_is_neither_learned_nor_scored(
    client: httpx.Client, create: Create, own_models: Path
) -> None:
    """The held-out image is labelled as the model predicts it, where it is labelled."""
    project = create(ignore_label="2", held_out="0.5")
    pictures = {f"{i}.png": image for i, (image, _) in enumerate(discs(4))}
    for path in add(client, project, pictures):
        assert client.post(f"{path}/predict").status_code == 201
        ids = read_image(client.get(f"{path}/labels").content, kind="labels").array[0].copy()
        assert set(np.unique(ids[SIZE // 2 :])) == {0, 1}, "else the scores show nothing"
        ids[SIZE // 2 :] = 2
        mask = png(ids.astype(np.uint8), "labels")
        put = client.put(f"{path}/labels", content=mask, headers={"If-Match": '"1"'})
        assert put.status_code == 200
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    job = client.get(begun.headers["Location"]).json()
    assert job["options"]["ignore_label"] == 2

    until(lambda: finished(client, project))
    one = last_round(client, project)
    assert one["state"] == "finished", one
    assert one["before"]["mean"]["mean"] == 1
    learned = ModelRepository(own_models).find(one["model"]).card
    assert learned.labels == {0: "background", 1: "disc"}


def test_where_all_is_labelled_nothing_is_left_out(client: httpx.Client, create: Create) -> None:
    project = create(ignore_label="2")
    pairs = discs(2)
    images = {f"{i}.png": image for i, (image, _) in enumerate(pairs)}
    masks = {f"{i}.png": mask for i, (_, mask) in enumerate(pairs)}
    assert upload(client, project, images, masks).status_code == 201
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    assert client.get(begun.headers["Location"]).json()["options"].get("ignore_label") is None
    assert client.delete(project).status_code == 204


@pytest.mark.parametrize("layout", ["nnunet", "pairs"])
def test_an_export_says_what_is_not_labelled(
    client: httpx.Client, create: Create, layout: str, tmp_path: Path
) -> None:
    """nnU-Net wants the id after the last label."""
    project = create(ignore_label="9")
    [(image, mask)] = discs(1)
    left = labelled_left(mask, 9)
    assert upload(client, project, {"a.png": image}, {"a.png": left}).status_code == 201
    packed = client.get(f"{project}/export", params={"layout": layout}).content
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(tmp_path)
    ids = read_image(left, kind="labels").array[0]
    if layout == "pairs":
        (file,) = (tmp_path / "labels").iterdir()
        np.testing.assert_array_equal(read_image(file, kind="labels").array[0], ids)
        return
    described = json.loads((tmp_path / "dataset.json").read_text())
    assert described["labels"] == {"background": 0, "disc": 1, "ignore": 2}
    (file,) = (tmp_path / "labelsTr").iterdir()
    found = read_image(file, kind="labels").array[0]
    np.testing.assert_array_equal(found, np.where(ids == 9, 2, ids))
    data = open_dataset(tmp_path, interpretation=Interpretation().with_ignored())
    assert (data.ignored, data.labels) == (2, {0: "background", 1: "disc"})
