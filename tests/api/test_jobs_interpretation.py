"""Training over HTTP on data whose label maps and channels must be explained."""

from __future__ import annotations

import io
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.jobs.job import Job, Options
from api.settings import Settings
from caps_med.bundles import ModelRepository
from tests.api.jobs import TINY, wait_for
from tests.training.data.test_oddities import nuclei, save_cases
from tests.training.randomization.maps import write_volumes


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(models=tmp_path / "models", preload=())
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    """Instances, their images named composed and their label maps decomposed; and strangers."""
    data = save_cases(tmp_path / "data", [nuclei(9 + 7 * i, i) for i in range(5)])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for path in sorted(data.rglob("*.*")):
            form = "NFC" if path.parent.name == "images" else "NFD"
            name = unicodedata.normalize(form, f"{path.parent.name}/Kö{path.name}")  # type: ignore[arg-type]
            file.writestr(name, path.read_bytes())
        for name in ("Thumbs.db", "images/notes.txt", "labels/.hidden"):
            file.writestr(name, b"no image")
    return buffer.getvalue()


def submit(client: TestClient, archive: bytes, **options: str) -> tuple[int, dict[str, object]]:
    form = {"task": "segmentation", "name": "nuclei", "network": "unet", **TINY, **options}
    del form["atoms"]
    answer = client.post("/v1/training-jobs", data=form, files={"archive": ("a.zip", archive)})
    return answer.status_code, answer.json()


@pytest.mark.slow
def test_instances_are_refused_until_they_are_explained(
    client: TestClient, archive: bytes, tmp_path: Path
) -> None:
    status, answer = submit(client, archive)
    assert status == 422 and answer["code"] == "data_not_fit"
    findings = answer["findings"]
    assert [each["code"] for each in findings] == ["instances"]  # type: ignore[attr-defined]
    status, job = submit(client, archive, instances="binary", labels="1=nucleus", channels="DAPI")
    assert status == 202, job
    wait_for(client, str(job["id"]), "succeeded")
    card = ModelRepository(tmp_path / "models").find("nuclei").card
    assert card.labels == {0: "background", 1: "nucleus"}
    assert (card.instances, card.channel_names) == ("binary", ("DAPI",))


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        ({"labels": "nucleus"}, "labels=nucleus: give an id and its name"),
        ({"labels": "1=nucleus,2=nucleus"}, "1 and 2 are both called nucleus"),
        ({"channels": "a,,b"}, "a name is empty"),
        ({"instances": "spots"}, "instances"),
    ],
)
def test_impossible_explanations_are_refused(
    options: dict[str, str], detail: str, client: TestClient, archive: bytes
) -> None:
    status, answer = submit(client, archive, **options)
    assert status == 422 and detail in str(answer["detail"])


def test_the_command_carries_the_explanation() -> None:
    options = Options(instances="borders", labels="1=cell nucleus", channels="--x")
    job = Job("0" * 32, 1, "queued", "segmentation", "n", "d", True, options, None, 0.0)
    assert job.command(False)[-3:] == [
        "--instances=borders", "--labels=1=cell nucleus", "--channels=--x",
    ]  # fmt: skip


def zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for path in sorted(folder.iterdir()):
            file.writestr(path.name, path.read_bytes())
    return buffer.getvalue()


@pytest.mark.slow
def test_label_maps_alone_train_a_model_for_any_contrast(
    client: TestClient, tmp_path: Path
) -> None:
    folder = write_volumes(tmp_path / "balls")
    (folder / "labels.yaml").write_text("labels: {4: {name: brain, ids: [2, 3]}}\noutside: [9]")
    status, answer = submit(client, zipped(folder))
    assert status == 422 and answer["code"] == "data_not_fit"
    status, job = submit(client, zipped(folder), randomize="true")
    assert status == 202, job
    wait_for(client, str(job["id"]), "succeeded")
    card = ModelRepository(tmp_path / "models").find("nuclei").card
    assert card.labels == {0: "background", 4: "brain"} and card.normalization.ranks
    assert card.provenance.recipe["scheme"]["outside"] == [9]


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        (
            {"labels": "/etc/passwd"},
            "labels='/etc/passwd': give names (1=cortex), one of freesurfer-tissue",
        ),
        ({"channels": "FLAIR"}, "channels: not used with randomize; leave it out"),
        ({"foreground": "0.5"}, "foreground: not used with randomize; leave it out"),
        (
            {"task": "synthesis", "network": "capspix2pix"},
            "randomize: synthesis has no such option",
        ),
    ],
)
def test_options_that_do_not_go_with_randomize_are_refused(
    options: dict[str, str], detail: str, client: TestClient, archive: bytes
) -> None:
    status, answer = submit(client, archive, randomize="true", **options)
    assert status == 422 and detail in str(answer["detail"])
