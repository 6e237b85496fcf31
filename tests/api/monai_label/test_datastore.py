"""Images and label maps of the data store, which is a project, through MONAI Label's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import nrrd
import numpy as np
import pytest

import caps_med
from api.access.keys import KeyStore
from api.monai_label import catalogue
from api.settings import Settings
from caps_med.images import MedicalImage, read_image, write_image
from tests.api import http
from tests.api.monai_label.conftest import Client, Connect
from tests.api.running import Running, running

MODEL = "tiny-segmentation"
SHAPE = (1, 20, 28, 3)
#: The newest project of this name is the data store.
PROJECT = {"name": "monai-label", "model": MODEL}
AFFINE = np.array([[0.8, -0.6, 0, 3], [0.6, 0.8, 0, -5], [0, 0, 2.5, 7], [0, 0, 0, 1.0]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of projects."""
    return tmp_path_factory.mktemp("projects")


@pytest.fixture(scope="module")
def store(models: Path, folder: Path) -> Iterator[Running]:
    with running(offered(models, folder)) as found:
        yield found


def offered(models: Path, folder: Path) -> Settings:
    return Settings(
        models=models, preload=(), training=False, decoders=1, monai_label=True,
        monai_label_model=MODEL, projects_folder=folder, keys=folder / "keys.db",
    )  # fmt: skip


@pytest.fixture
def client(store: Running, connect: Connect) -> Client:
    return connect(store)


def volume_file(folder: Path, seed: int = 0) -> str:
    array = np.random.default_rng(seed).uniform(0, 90, SHAPE).astype(np.float32)
    path = folder / f"volume{seed}.nii.gz"
    write_image(MedicalImage(array, AFFINE), path)
    return str(path)


def label_file(folder: Path, ids: dict[int, slice], names: dict[int, str] | None = None) -> str:
    """A label map as Slicer saves it: rows `ids` of the first axis; with names .seg.nrrd."""
    array = np.zeros(SHAPE, np.uint32)
    for label, rows in ids.items():
        array[0, rows] = label
    path = folder / ("labels.seg.nrrd" if names else "labels.nii.gz")
    write_image(MedicalImage(array, AFFINE, kind="labels", names=names or {}), path)
    return str(path)


def segments(*names: str) -> dict[str, object]:
    """What Slicer says about the label map that it saves."""
    return {"label_info": [{"name": n, "idx": i} for i, n in enumerate(names, 1)], "model": MODEL}


def pages_view(store: Running, image: str) -> dict[str, object]:
    """The image as the page shows it."""
    project = http.get(f"{store.address}/v1/projects").json()["projects"][0]
    path = f"{store.address}/v1/projects/{project['id']}/images/{image}"
    found: dict[str, object] = http.get(path, params={"format": "json"}).json()
    return found


def test_a_volume_of_slicer(client: Client, store: Running, models: Path, tmp_path: Path) -> None:
    """Sent, segmented, corrected and saved, and then on the page."""
    before = client.info()["datastore"]["completed"]
    volume = volume_file(tmp_path)
    image = client.upload_image(volume, "12: T1/axial, MRHead")["image"]
    name = "12: T1/axial, MRHead"  # which Slicer goes on using
    file, params = client.infer(MODEL, name, {"result_dtype": "uint8"})
    wanted = caps_med.load_model(MODEL, models).segment(volume)
    np.testing.assert_array_equal(nrrd.read(file)[0], wanted.array[0])
    assert set(params["label_names"]) == {"nucleus", "membrane"}
    assert pages_view(store, image)["state"] == "predicted"

    corrected = label_file(tmp_path, {1: slice(0, 4), 2: slice(10, 12)})
    answer = client.save_label(name, corrected, params=segments("membrane", "nucleus"))
    assert answer["image"] == image
    saved = read_image(client.download_label(image, "final"), kind="labels")
    assert (saved.array[0, :4] == 7).all()  # the first segment is the membrane
    assert (saved.array[0, 10:12] == 2).all()
    assert (saved.array > 0).sum() == 6 * 28 * 3
    np.testing.assert_allclose(saved.affine, AFFINE, atol=1e-6)
    predicted = read_image(client.download_label(image, "original"), kind="labels")
    np.testing.assert_array_equal(predicted.array, wanted.array)

    shown = pages_view(store, image)
    assert (shown["state"], shown["author"], shown["version"]) == ("corrected", "me", 2)
    assert client.info()["datastore"]["completed"] == before + 1
    tags = client.datastore()["objects"][image]["labels"]
    assert tags["original"]["info"]["params"]["label_names"] == {"nucleus": 2, "membrane": 7}
    assert tags["final"]["info"]["client_id"] == "me"


def test_what_the_page_has_is_offered_as_the_next_sample(
    client: Client, store: Running, tmp_path: Path
) -> None:
    with httpx.Client(base_url=store.address) as page:
        made = page.post("/v1/projects", data=PROJECT).json()
        for strategy in ("random", "uncertainty", "diversity"):
            assert client.next_sample(strategy, {}) == {}
        files = {"images": ("case 1.nii.gz", Path(volume_file(tmp_path)).read_bytes())}
        added = page.post(f"/v1/projects/{made['id']}/images", files=files).json()["images"]
        sample = client.next_sample("random", {})
        assert (sample["id"], sample["name"]) == (added[0]["id"], "case 1.nii.gz")
        fetched = page.get("/datastore/image", params={"image": sample["id"]})
        assert fetched.content == files["images"][1]
        assert page.head("/datastore/image", params={"image": sample["id"]}).status_code == 200
        found = client.info()
        assert found["labels"] == ["nucleus", "membrane"]
        assert next(iter(found["models"])) == MODEL  # which Slicer runs on the next sample
        client.save_label(sample["id"], label_file(tmp_path, {2: slice(0, 3)}))
        assert client.next_sample("random", {}) == {}
        query = {"label": sample["id"], "tag": "final"}
        about = page.get("/datastore/label/info", params=query).json()
        assert about["params"]["label_names"] == {"nucleus": 2}
        assert page.delete("/datastore/image", params={"id": sample["id"]}).json() == {}
        assert client.info()["datastore"]["total"] == 0


def test_an_image_that_is_sent_again(client: Client, tmp_path: Path) -> None:
    first = client.upload_image(volume_file(tmp_path, 1), "MRHead")
    total = client.info()["datastore"]["total"]
    assert client.upload_image(volume_file(tmp_path, 1), "MRHead") == first
    with pytest.raises(Exception, match=r"Status: 409; .*another image has this name"):
        client.upload_image(volume_file(tmp_path, 2), "MRHead")
    assert client.info()["datastore"]["total"] == total


def test_a_name_may_look_like_an_id(client: Client, tmp_path: Path) -> None:
    """Slicer calls an image by the name that it was sent with, which may be a hash."""
    name = "d41d8cd98f00b204e9800998ecf8427e"
    first = client.upload_image(volume_file(tmp_path, 4), name)
    assert client.upload_image(volume_file(tmp_path, 4), name) == first
    assert client.infer(MODEL, name, {})
    client.save_label(name, label_file(tmp_path, {}))


def test_an_image_that_is_sent_twice_at_once(store: Running, tmp_path: Path) -> None:
    """As by a client that has lost the connection and repeats the request."""
    content = Path(volume_file(tmp_path, 3)).read_bytes()

    def put(_: int) -> str:
        url, files = f"{store.address}/datastore/?image=twice", {"file": ("a.nii.gz", content)}
        return str(http.request("PUT", url, files=files, timeout=60).json()["image"])

    with ThreadPoolExecutor(3) as pool:
        (image,) = set(pool.map(put, range(3)))
    named = http.get(f"{store.address}/datastore/image/info", params={"image": "twice"})
    assert named.status_code == 200 and image


def test_names_in_the_file_count(client: Client, tmp_path: Path) -> None:
    """In .seg.nrrd, ids need not be in the order of the segments."""
    client.upload_image(volume_file(tmp_path), "named")
    names = {1: "nucleus", 5: "membrane"}
    file = label_file(tmp_path, {1: slice(0, 2), 5: slice(4, 7)}, names)
    client.save_label("named", file, params=segments("membrane", "nucleus"))
    saved = read_image(client.download_label("named", "final"), kind="labels").array[0]
    assert (saved[:2] == 2).all() and (saved[4:7] == 7).all()
    swapped = label_file(tmp_path, {7: slice(0, 2), 2: slice(4, 7)}, {7: "nucleus", 2: "membrane"})
    client.save_label("named", swapped)  # ids of the project, under each other's names
    again = read_image(client.download_label("named", "final"), kind="labels").array[0]
    np.testing.assert_array_equal(again, saved)
    for label, message in ((3, "the project does not know"), (999_999_999, "is named")):
        file = label_file(tmp_path, {label: slice(0, 2)}, {label: "liver"})
        with pytest.raises(Exception, match=rf"Status: 422; .*{message}"):
            client.save_label("named", file)


def test_label_maps_that_do_not_fit(client: Client, tmp_path: Path) -> None:
    client.upload_image(volume_file(tmp_path), "a")
    large = tmp_path / "large.nii.gz"
    write_image(MedicalImage(np.zeros((1, 40, 28, 3), np.uint8), AFFINE, kind="labels"), large)
    with pytest.raises(Exception, match=r"Status: 422; .*the label map has the size"):
        client.save_label("a", str(large), params=segments("nucleus"))
    moved = tmp_path / "moved.nii.gz"
    write_image(MedicalImage(np.zeros(SHAPE, np.uint8), np.eye(4), kind="labels"), moved)
    with pytest.raises(Exception, match=r"Status: 422; .*different affines"):
        client.save_label("a", str(moved))
    file = label_file(tmp_path, {3: slice(0, 2)})
    with pytest.raises(Exception, match=r"Status: 422; .*no segment 3 is named"):
        client.save_label("a", file, params=segments("nucleus", "membrane"))
    with pytest.raises(Exception, match=r"Status: 422; .*the project does not know"):
        client.save_label("a", file, params=segments("nucleus", "membrane", "liver"))
    with pytest.raises(Exception, match=r"Status: 422; .*the model knows 0, 2, 7"):
        client.save_label("a", file)
    with pytest.raises(Exception, match=r"Status: 422; .*must be saved as final"):
        client.save_label("a", file, tag="original")
    with pytest.raises(Exception, match=r"Status: 404; .*no such label map"):
        client.download_label("a", "final")
    empty = segments("nucleus", "membrane", "liver")  # which has no voxel
    client.save_label("a", label_file(tmp_path, {2: slice(0, 2)}), params=empty)


def test_other_models_are_asked_but_their_answers_not_kept(
    client: Client, store: Running, tmp_path: Path
) -> None:
    image = client.upload_image(volume_file(tmp_path), "another")["image"]
    client.infer("brain-tissue", "another", {})
    assert pages_view(store, image)["state"] == "unlabelled"


@pytest.mark.parametrize("image", ["../../x", "/etc/passwd", "0" * 32, "a\0b", "%", "'; --"])
def test_ids_that_are_none(client: Client, tmp_path: Path, image: str) -> None:
    client.upload_image(volume_file(tmp_path), "a")
    with pytest.raises(Exception, match=r"Status: 404; .*no image with this id"):
        client.infer(MODEL, image, {})
    with pytest.raises(Exception, match=r"Status: 404; .*no image with this id"):
        client.save_label(image, label_file(tmp_path, {}))
    with pytest.raises(Exception, match="Status: 404"):
        client.download_label(image, "final")


def test_a_name_that_is_a_path_is_only_a_name(client: Client, folder: Path, tmp_path: Path) -> None:
    client.upload_image(volume_file(tmp_path), "../../../tmp/evil")
    kept = [path.name for path in folder.rglob("*")]
    assert kept and not any("evil" in name for name in kept)
    assert client.infer(MODEL, "../../../tmp/evil", {})


def test_what_is_not_labelled_is_a_segment(client: Client, store: Running, tmp_path: Path) -> None:
    project = http.post(
        f"{store.address}/v1/projects", data={**PROJECT, "ignore_label": "9"}
    ).json()
    name, *_, ignore = client.info()["labels"]
    image = client.upload_image(volume_file(tmp_path), "strokes")["image"]
    file = label_file(tmp_path, {1: slice(0, 2), 2: slice(2, 20)})
    client.save_label(image, file, params=segments(name, ignore))
    about = client.datastore()["objects"][image]["labels"]["final"]["info"]
    (label,) = (int(number) for number, known in project["labels"].items() if known == name)
    assert (ignore, about["params"]["label_names"]) == ("ignore", {name: label, "ignore": 9})


def test_a_long_listing_is_made_a_page_at_a_time(
    client: Client, store: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.post(f"{store.address}/v1/projects", data=PROJECT)
    for number in range(5):
        client.upload_image(volume_file(tmp_path, number), f"case {number}")
    client.infer(MODEL, "case 3", {})
    whole = client.datastore()
    monkeypatch.setattr(catalogue, "PAGE", 2)
    assert client.datastore() == whole
    assert len(whole["objects"]) == 5
    listing = store.server.config.app.state.datastore.catalogue  # type: ignore[union-attr]
    project = listing.project(None, "monai-label")
    pieces = list(listing.listing(project))
    assert len(pieces) == 5  # the head, three pages, the end
    assert json.loads("".join(pieces)) == whole


def test_every_key_has_its_own(models: Path, connect: Connect, tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.db")
    settings = offered(models, tmp_path)
    texts = [keys.create(name, ["infer"])[1] for name in ("anna", "ben")]
    with running(settings) as store:
        anna, ben = connect(store), connect(store)
        for client, text in zip((anna, ben), texts, strict=True):
            client.update_auth(client.auth_token("x", text))
        image = anna.upload_image(volume_file(tmp_path), "a")["image"]
        for name in ("a", image):
            with pytest.raises(Exception, match="Status: 404"):
                ben.infer(MODEL, name, {})
        assert ben.datastore() == {"objects": {}}
        bearer = {"Authorization": f"Bearer {texts[0]}"}
        listed = http.get(f"{store.address}/v1/projects", headers=bearer).json()["projects"]
        (project,) = [one["id"] for one in listed]
    with running(settings.model_copy(update={"monai_label_project": project})) as store:
        shared = connect(store)
        shared.update_auth(shared.auth_token("x", texts[1]))
        saved = shared.save_label("a", label_file(tmp_path, {2: slice(0, 2)}))
        assert saved["image"] == image
        about = shared.datastore()["objects"][image]["labels"]["final"]["info"]
        assert about["client_id"] == "ben"  # and not what the client calls itself
