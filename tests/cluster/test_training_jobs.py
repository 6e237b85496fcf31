"""Training jobs of a real service on a real Ray cluster, and trainings side by side on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from api.jobs.cluster import RayExecutor, Share
from api.jobs.executor import JobLimits
from api.jobs.files import JobFiles
from api.jobs.job import Job, Options
from api.jobs.locks import FileLock
from benchmarks.cluster.jobs import TINY, service, survive_losses
from benchmarks.cluster.nodes import Cluster, cluster
from caps_med.bundles import ModelRepository
from caps_med.ray_connection import ClusterError, connected
from tests.api.jobs import zipped
from tests.waiting import PATIENCE, until
from training.cluster.folds import outcome

LONG = {**TINY, "epochs": "10000"}
_COMMAND = "from caps_med.cli import main; main()"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster([0, 1, 1], dashboard=True) as found:
        yield found


def test_jobs_are_cancelled_where_they_run_and_where_they_wait(
    nodes: Cluster, discs: Path, tmp_path: Path
) -> None:
    with service(tmp_path, nodes) as found:
        client, archive = found.client, zipped(discs)
        jobs = [client.train("segmentation", f"disc{i}", archive, **LONG) for i in range(3)]
        until(lambda: sum(found.worker(job) is not None for job in jobs) == 2)
        waiting = next(job for job in jobs if found.worker(job) is None)
        until(lambda: found.submission(waiting) is not None)
        for job in (waiting, *(each for each in jobs if each is not waiting)):
            pid = found.worker(job)
            client.cancel(job["id"])
            assert client.wait(job["id"], PATIENCE)["state"] == "cancelled"
            assert pid is None or not Path(f"/proc/{pid}").exists()


class Place:
    """One job of an executor whose program is a stand-in, on the nodes."""

    def __init__(self, root: Path, address: str, program: str) -> None:
        self.job = Job(
            "a" * 32, 1, "running", "segmentation", "x", "d", False, Options(), None, 0.0
        )
        self.files = JobFiles(root / self.job.id)
        self.files.folder.mkdir()
        self.executor = RayExecutor(
            root, root / "models", JobLimits(0, 1, None), (sys.executable, "-c", program),
            address=address, share=Share(cpus=0.5),
        )  # fmt: skip

    def run(self) -> None:
        self.executor.submit(self.job)
        until(lambda: not self.executor.alive(self.job))


def apart(nodes: Cluster, check: str, folder: Path, **environment: str) -> str:
    """Call a check of this module in a process that has the token, which Ray reads when imported.

    Returns what it writes to standard error; it is empty if the check passes.
    """
    code = f"import sys; from {__name__} import *; {check}(Path(sys.argv[1]), sys.argv[2])"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder), nodes.dashboard],
        env={**os.environ, **nodes.environment, **environment},
        check=False, capture_output=True, text=True,
    ).stderr  # fmt: skip


def check_how_processes_end(folder: Path, address: str) -> None:
    status = folder / "status"
    place = Place(folder, address, f"import sys; sys.exit(int(open({str(status)!r}).read()))")
    for code, crashed in ((0, None), (75, None), (3, 3)):
        status.write_text(str(code))
        place.run()
        assert place.executor.crashed(place.job) == crashed, code
    lock = FileLock(place.files.lock)
    assert lock.take()
    assert place.executor.alive(place.job), "a process of a lost node still has the folder"
    lock.release()
    assert not place.executor.alive(place.job)
    place.executor.write_spec(place.job, submission="caps-med-forgotten")
    assert not place.executor.alive(place.job)
    assert place.executor.crashed(place.job) is None
    place.executor.cancel(place.job)


def check_one_run(folder: Path, address: str) -> None:
    Place(folder, address, "").run()


def test_how_a_process_ended_is_known(nodes: Cluster, tmp_path: Path) -> None:
    """A crash counts; a folder that was locked (75), or a start that is forgotten, does not."""
    said = apart(nodes, "check_how_processes_end", tmp_path)
    assert "Error" not in said, said


def test_a_cluster_that_refuses_the_token_is_told(nodes: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("0" * 64)
    said = apart(nodes, "check_one_run", tmp_path, RAY_AUTH_TOKEN_PATH=str(wrong))
    assert "StartRefused: the Ray cluster at" in said
    assert "rejects the service's token: set RAY_AUTH_MODE=token" in said


def test_several_processes_train_one_network(nodes: Cluster, discs: Path, tmp_path: Path) -> None:
    with service(tmp_path, nodes, job_processes=2, job_cpus=0.5) as found:
        chosen = {**TINY, "batch_size": "2", "epochs": "2"}
        job = found.client.train("segmentation", "both", zipped(discs), **chosen)
        done = found.client.wait(job["id"], PATIENCE)
        assert done["state"] == "succeeded", (done, found.client.job_log(job["id"]))
        assert [score["epoch"] for score in done["scores"]] == [1, 2]
        chosen["batch_size"] = "1"
        job = found.client.train("segmentation", "both", zipped(discs), **chosen)
        done = found.client.wait(job["id"], PATIENCE)
        assert done["state"] == "failed"
        assert "batch" in str(done["error"])


def check_a_lost_fold(folder: Path, address: str) -> None:
    with connected("auto", "a test"):
        import ray

        lost = ray.remote(num_cpus=0.1, max_retries=1)(lambda: os._exit(1)).remote()
        with pytest.raises(ClusterError, match=r"^fold 2 could not be completed .* died unexpec"):
            outcome(2, lost)


def test_a_fold_that_is_lost_too_often_is_told(nodes: Cluster, tmp_path: Path) -> None:
    assert not apart(nodes, "check_a_lost_fold", tmp_path)


def command(
    folder: Path, discs: Path, nodes: Cluster | None, name: str, *more: str
) -> subprocess.Popen[str]:
    """``caps-med train segmentation``, begun."""
    chosen = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()]
    given = ["train", "segmentation", "--data", str(discs), "--name", name, "--models", "models"]
    cluster = [] if nodes is None else ["--cluster", nodes.address]
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *given, *chosen, *cluster, *more],
        env={
            **os.environ, "OMP_NUM_THREADS": "1", **({} if nodes is None else nodes.environment),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    return said


def test_folds_side_by_side_have_the_weights_of_one_after_the_other(
    nodes: Cluster, discs: Path, tmp_path: Path
) -> None:
    folds: Sequence[str] = ("--folds", "2", "--epochs", "2")
    finished(command(tmp_path, discs, None, "slow", *folds))
    said = finished(command(tmp_path, discs, nodes, "fast", *folds))
    assert "fold 1 of 2: score" in said and "fold 2 of 2: score" in said
    repository = ModelRepository(tmp_path / "models")
    slow, fast = (repository.find(name) for name in ("slow", "fast"))
    assert slow.weights.read_bytes() == fast.weights.read_bytes()
    assert slow.card.scores == fast.card.scores


def test_a_search_is_interrupted_resumed_and_publishes_its_best(
    nodes: Cluster, discs: Path, tmp_path: Path
) -> None:
    search = ("--tune", "3", "--epochs", "4", "--network", "convcaps", "--license", "CC0-1.0")
    begun = command(tmp_path, discs, nodes, "found", *search)
    run = tmp_path / "runs" / "found"
    until(lambda: begun.poll() is not None or any(run.glob("trial-*/checkpoint.pt")))
    begun.send_signal(signal.SIGINT)
    said, _ = begun.communicate(timeout=PATIENCE)
    assert begun.returncode == 130, said
    assert "--resume" in said
    finished(command(tmp_path, discs, nodes, "found", *search, "--resume"))

    card = ModelRepository(tmp_path / "models").find("found").card
    trials = card.provenance.trials
    assert [row["trial"] for row in trials] == [1, 2, 3]
    assert {row["state"] for row in trials} <= {"trained", "stopped"}
    trained = [row for row in trials if row["state"] == "trained"]
    best = max(trained, key=lambda row: row["score"])
    for name in ("network", "learning_rate", "loss", "crop"):
        assert card.provenance.recipe[name] == best[name]
    for row in trials:
        scores = (run / f"trial-{row['trial']:02}" / "scores.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in scores] == list(range(1, row["epochs"] + 1))
    assert "<h2>Trials</h2>" in (run / "report.html").read_text()


def test_a_job_survives_the_loss_of_its_worker_its_service_and_its_node(
    nodes: Cluster, discs: Path, tmp_path: Path
) -> None:
    """The last one here: a node fewer is left."""
    with service(tmp_path, nodes) as found:
        survive_losses(found, zipped(discs), epochs=40)
