"""Trainings, started, followed and stopped with MONAI Label's client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.monai_label.rounds import Rounds
from api.projects.records import CANCELLED, Round, RoundState
from api.projects.store import ProjectStore
from api.settings import Settings
from tests.api.monai_label.conftest import Client, Connect
from tests.api.projects.conftest import discs
from tests.api.running import Running, running
from tests.conftest import tiny_binary, write_tiny
from tests.waiting import until

TINY = {"epochs": 1, "steps": 1, "batch_size": 1, "crop": 64}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    models = tmp_path / "models"
    write_tiny(models, "discs", tiny_binary("SegCaps", "disc"))
    settings = Settings(models=models, preload=(), monai_label=True, monai_label_model="discs")
    with running(settings) as found:
        yield found


@pytest.fixture
def client(service: Running, connect: Connect) -> Client:
    return connect(service)


def corrected(client: Client, folder: Path, count: int) -> None:
    for number, (image, mask) in enumerate(discs(count)):
        for name, content in (("image", image), ("mask", mask)):
            (folder / f"{name}.png").write_bytes(content)
        client.upload_image(str(folder / "image.png"), f"disc {number}")
        client.save_label(f"disc {number}", str(folder / "mask.png"))


def test_trainings(client: Client, tmp_path: Path) -> None:
    """Nothing to learn from, then one that is stopped."""
    assert client.info()["trainers"] == {}
    assert client.train_status(check_if_running=True) is False
    with pytest.raises(Exception, match=r"Status: 404; .*nothing is being trained"):
        client.train_status()
    with pytest.raises(Exception, match=r"Status: 422; .*no images yet"):
        client.train_start("", {})
    corrected(client, tmp_path, 2)
    (trainer,) = client.info()["trainers"]
    with pytest.raises(Exception, match=rf"Status: 404; .*the only one is {trainer}"):
        client.train_start("another", {})
    with pytest.raises(Exception, match=r"Status: 422; .*params.epochs"):
        client.train_start(trainer, {"epochs": -1})

    begun = client.train_start(trainer, {**TINY, "epochs": 10_000})
    assert begun["status"] == "RUNNING" and begun["start_ts"]
    assert client.train_status(check_if_running=True) is True
    with pytest.raises(Exception, match=r"Status: 429; .*has not finished"):
        client.train_start(trainer, TINY)
    stats = client.info()["train_stats"][trainer]
    assert stats["total_epochs"] >= 1 and stats["best_metric"] >= 0
    stopped = client.train_stop()
    assert stopped["status"] == "STOPPED" and stopped["details"]
    until(lambda: not client.train_status(check_if_running=True))
    assert client.train_status()["status"] == "STOPPED"
    with pytest.raises(Exception, match=r"Status: 404; .*nothing is being trained"):
        client.train_stop()


@pytest.mark.parametrize(
    ("state", "message", "status"),
    [
        ("finished", "p@2 is not worse", "DONE"),
        ("failed", "it crashed", "ERROR"),
        ("cancelled", CANCELLED, "STOPPED"),
    ],
)
def test_how_a_training_has_ended(
    state: RoundState, message: str, status: str, tmp_path: Path
) -> None:
    dice = {"mean": {"mean": 0.75}, "disc": {"mean": 0.75}}
    one = Round("p", 1, "job", state, 1e9, "m@1", 4, 2, 2, message=message, dice=dice)
    rounds = Rounds(None, ProjectStore(tmp_path / "p.sqlite3", 1, 1))
    seen = rounds.view(one)
    assert (seen["status"], seen["result"], seen["details"]) == (status, message, [message])
    stats = rounds.stats(one)
    assert stats["best_metric"] == 0.75
    assert stats["total_time"]  # by which Slicer knows that it is over
