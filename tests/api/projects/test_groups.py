"""Images of one patient, or of one volume, are held out and learned from together."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest

from api.problems import Refusal
from api.projects.evaluation import Scores
from api.projects.export import _splits
from api.projects.groups import groups_of, patient_digest
from api.projects.images import ProjectImages
from api.projects.learning import held_out_of
from api.projects.records import Image
from api.projects.store import ProjectStore
from api.projects.training_data import write_cases
from caps_med.client import Client
from caps_med.images import read_image
from tests.api.projects.conftest import TINY, Create, code, discs, finished, last_round, upload
from tests.api.projects.test_learning import images_of, project_of
from tests.api.running import Running
from tests.images.dicom_files import SERIES, dataset, encoded, series_file
from tests.waiting import until
from tests.zips import zip_of
from training.data import open_dataset


def of_patients(patients: Sequence[str | None], held_out: Sequence[int] = ()) -> list[Image]:
    images = images_of(len(patients), dict.fromkeys(held_out, True))
    return [replace(one, patient=whose) for one, whose in zip(images, patients, strict=True)]


def called(*names: str) -> list[Image]:
    images = images_of(len(names))
    return [replace(one, name=name) for one, name in zip(images, names, strict=True)]


def test_a_patient_is_held_out_as_a_whole() -> None:
    patients = [f"p{i // 4}" for i in range(20)]
    chosen = held_out_of(of_patients(patients), project_of())
    assert len(chosen) == 4
    assert len({patients[int(image)] for image in chosen}) == 1
    assert len(held_out_of(of_patients(patients), project_of(held_out=0.6))) == 12


def test_what_comes_later_of_a_held_out_patient_is_held_out() -> None:
    images = of_patients(["a", "b", "a", None, "b"], held_out=[0])
    assert held_out_of(images, project_of()) == {"0", "2"}


def test_images_of_a_single_patient_are_not_learned_from() -> None:
    with pytest.raises(Refusal, match="an image of another patient"):
        held_out_of(of_patients(["a", "a", "a"]), project_of())
    assert len(held_out_of(of_patients(["a", "a", None]), project_of())) in (1, 2)


def test_what_was_learned_is_not_held_out_where_the_held_out_part_was_deleted() -> None:
    images = of_patients(["a", "b", "b", "c", "c", "d"])
    before = [replace(one, learned=True) for one in images[:4]]
    for seed in range(9):
        assert held_out_of([*before, *images[4:]], project_of(seed=seed, held_out=0.6)) == {"5"}
    with pytest.raises(Refusal, match="correct a new image of another patient"):
        held_out_of([*before, images[4]], project_of())


def test_names_tell_the_slices_of_a_volume() -> None:
    names = [f"{scan}_slice_{k}.png" for scan in ("one", "two") for k in range(3)]
    chosen = held_out_of(called(*names), project_of())
    assert chosen in ({"0", "1", "2"}, {"3", "4", "5"})
    alone = held_out_of(called(*names[:3]), project_of())
    assert len(alone) == 1  # as of a data set on disk: something is held out


def test_a_patient_is_more_than_a_name() -> None:
    first, second, other = called("one_slice_1.png", "one_slice_2.png", "b.png")
    images = [replace(first, patient="p"), second, replace(other, patient="p")]
    assert held_out_of(images, project_of()) in ({"0", "2"}, {"1"})


def test_one_digest_for_all_tells_nobody_apart() -> None:
    """Anonymized files may all have the same Patient ID."""
    images = [replace(one, patient_digest="7") for one in images_of(4)]
    assert groups_of(images) == ["0", "1", "2", "3"]
    assert groups_of([*images, replace(images[0], id="4", patient="p")]) == [*"7777", "p"]


def test_intervals_are_over_patients() -> None:
    values = np.linspace(0.4, 0.9, 12)
    cases = [{"a": float(value)} for value in values]
    by_image = Scores(cases, [str(i) for i in range(12)]).as_dict(0)["a"]
    by_patient = Scores(cases, [str(i // 3) for i in range(12)]).as_dict(0)["a"]
    assert by_image["mean"] == by_patient["mean"]
    assert by_patient["low"] < by_image["low"] and by_image["high"] < by_patient["high"]
    assert Scores(cases, ["p"] * 12).as_dict(0)["a"]["low"] is None


@pytest.fixture
def project(client: httpx.Client, create: Create, server: Running, tmp_path: Path) -> str:
    """Three corrected images of each of two patients, and one of nobody in particular."""
    path = create(held_out="0.4")
    with Client(server.address) as service:
        for patient, pairs in (("7/A", discs(3)), ("7-A", discs(3, 1)), (None, discs(1, 2))):
            files: list[Path] = []
            for number, pair in enumerate(pairs):
                for folder, content in zip(("images", "labels"), pair, strict=True):
                    target = tmp_path / folder / f"{number}.png"
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(content)
                files.append(tmp_path / "images" / f"{number}.png")
            labels = [tmp_path / "labels" / one.name for one in files]
            added = service.projects.add(path.rpartition("/")[2], files, labels, patient=patient)
            assert {one["patient"] for one in added} == {patient}
    return path


def test_dicom_series_with_one_patient_id_belong_together(
    client: httpx.Client, create: Create, own_models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The ID is neither kept nor shown, nor are series without one linked."""

    def study(number: int, **changed: str) -> bytes:
        named = {"SeriesInstanceUID": f"{SERIES}.{number}", **changed}
        return zip_of(*((f"{z}", series_file(10 * number + z, z, **named)) for z in range(3)))

    path = create()
    ids = ["17-4", "17-4 ", "17-5", ""]
    studies = {f"{n}.zip": study(n, PatientID=one) for n, one in enumerate(ids, start=1)}
    xray = dataset(np.zeros((32, 32), np.uint8), PatientID="17-4", Modality="DX")
    studies["picture.dcm"] = encoded(xray)
    answer = upload(client, path, studies)
    assert answer.status_code == 201, answer.text
    root = own_models / ".projects"
    images = ProjectStore(root / "projects.sqlite3", 10**9, 10**7).images(
        path.rpartition("/")[2], None, 0, 9
    )
    first, second, other, nobody, picture = groups_of(images)
    assert first == second == picture
    assert len({first, other, nobody}) == 3 and nobody == images[3].id
    assert patient_digest(read_image(studies["1.zip"]), "another project") != first
    shown = answer.text + client.get(f"{path}/images").text + caplog.text
    assert "17-4" not in shown and first not in shown
    assert not any(b"17-4" in file.read_bytes() for file in root.rglob("*") if file.is_file())


def test_an_id_that_stands_for_no_one_links_no_images() -> None:
    for identifier in ("ANONYMOUS", "Anonymized", "N/A", "***", " "):
        assert patient_digest(read_image(series_file(1, 0.0, PatientID=identifier)), "p") is None
    assert patient_digest(read_image(series_file(1, 0.0, PatientID="ANON-17")), "p")


def sizes(folder: Path) -> list[int]:
    """Of the groups that a training divides nowhere."""
    groups = [case.grouped for case in open_dataset(folder).cases]
    return sorted(groups.count(group) for group in set(groups))


@pytest.mark.slow
def test_a_round_divides_no_patient(client: httpx.Client, project: str) -> None:
    begun = client.post(f"{project}/learn", data=TINY)
    assert begun.status_code == 202, begun.text
    until(lambda: finished(client, project))
    one = last_round(client, project)
    assert one["state"] == "finished", one
    images = client.get(f"{project}/images").json()["images"]
    held = {image["patient"] for image in images if image["held_out"]}
    assert len(held) == 1
    assert one["held_out"] == sum(image["patient"] in held for image in images)


def test_training_and_export_keep_patients_together(
    client: httpx.Client, project: str, own_models: Path, tmp_path: Path
) -> None:
    root = own_models / ".projects"
    store = ProjectStore(root / "projects.sqlite3", 10**9, 10**7)
    files = ProjectImages(root, store, cast(Any, None))
    images = store.images(project.rpartition("/")[2], "corrected", 0, 99)
    labelled = [(image, label) for image in images if (label := store.label(image.id))]
    written = write_cases(tmp_path / "data", labelled, files)
    assert [*written.values()] == labelled
    assert sizes(tmp_path / "data") == [1, 3, 3]
    assert not [path for path in (tmp_path / "data").rglob("*") if "7" in path.parent.name]
    packed = client.get(f"{project}/export", params={"layout": "pairs"}).content
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(tmp_path / "pairs")
    assert sizes(tmp_path / "pairs") == [1, 3, 3]
    packed = client.get(f"{project}/export", params={"layout": "nnunet"}).content
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(tmp_path / "nnunet")
        folds = json.loads(archive.read("splits_final.json"))
    cases = {case.name for case in open_dataset(tmp_path / "nnunet").cases}
    assert len(cases) == 7 and sorted(len(fold["val"]) for fold in folds) == [1, 3, 3]
    assert all(set(fold["train"]) == cases - set(fold["val"]) for fold in folds)
    assert {name for fold in folds for name in fold["val"]} == cases


def test_folds_for_nnunet_are_as_even_as_patients_allow() -> None:
    groups = {
        f"{patient}-{k}": f"p{patient}" for patient in range(12) for k in range(1 + patient % 2)
    }
    folds = _splits(groups, 3)
    assert len(folds) == 5 and folds == _splits(groups, 3) != _splits(groups, 4)
    for fold in folds:
        kept = [{groups[name] for name in fold[part]} for part in ("train", "val")]
        assert not kept[0] & kept[1] and len(kept[1]) in (2, 3)
    assert _splits(dict.fromkeys("abc", ""), 0) == []  # nnU-Net's own will do
    assert _splits(dict.fromkeys("abc", "p"), 0) == []  # there is nothing to hold out


def test_who_a_patient_is_has_bounds(client: httpx.Client, create: Create) -> None:
    project, ((image, _),) = create(), discs(1)

    def answer(patient: str) -> httpx.Response:
        files = {"images": ("a.png", image)}
        return client.post(f"{project}/images", files=files, data={"patient": patient})

    assert code(answer("x" * 65)) == (422, "invalid_parameter")
    assert code(answer("a\nb")) == (422, "invalid_parameter")
    assert answer("  p 1 ").json()["images"][0]["patient"] == "p 1"
    assert answer(" ").json()["images"][0]["patient"] is None
