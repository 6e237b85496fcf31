"""What is compared: how each is trained, and asked for its predictions."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.nnunet.task import Task
from benchmarks.processes import COMMAND
from caps_med.images import read_image
from training.data import open_dataset

#: Number of the data set in nnU-Net's folders.
NUMBER = "1"
#: Lines that are shown of a command that failed.
PRINTED = 30


class Method(Protocol):
    """Something that learns to segment, by commands."""

    @property
    def name(self) -> str:
        """In the tables."""

    def train(self, task: Task, repeat: int) -> None:
        """Train on ``task.trained``."""

    def predict(self, task: Task, repeat: int, out: Path, *, mirrored: bool) -> None:
        """Write the label maps of ``task.tested`` into a folder.

        Args:
            mirrored: average over mirror images.
        """


@dataclass(frozen=True)
class Ours:
    """caps_med, with the options of a training."""

    name: str
    options: Sequence[str]

    def train(self, task: Task, repeat: int) -> None:
        """``caps-med train segmentation`` from the start; the repeat is its seed."""
        name, runs = self._model(repeat), task.work / "runs"
        shutil.rmtree(runs / name, ignore_errors=True)  # of a command that was stopped
        call(
            COMMAND, "train", "segmentation", "--data", task.trained, "--name", name,
            "--models", task.work / "models", "--runs", runs, "--seed", repeat, *self.options,
        )  # fmt: skip

    def predict(self, task: Task, repeat: int, out: Path, *, mirrored: bool) -> None:
        """``caps-med segment``."""
        call(
            COMMAND, "segment", "--model", self._model(repeat), "--models", task.work / "models",
            "-i", task.tested / "images", "-o", out, *(("--tta",) if mirrored else ()),
        )  # fmt: skip

    def _model(self, repeat: int) -> str:
        return f"{self.name.lower().replace(' ', '-')}-{repeat}"


@dataclass(frozen=True)
class NnUNet:
    """nnU-Net, planned by itself.

    Attributes:
        environment: has nnU-Net's commands in ``bin``.
        length: of the training, as its trainers are called: ``5epochs``.
    """

    environment: Path
    length: str

    @property
    def name(self) -> str:
        """In the tables."""
        return f"nnU-Net, {self.length}"

    def train(self, task: Task, repeat: int) -> None:
        """``nnUNetv2_train``, of the first of its five folds."""
        if not (planned := _home(task) / "planned").exists():
            shutil.rmtree(_home(task), ignore_errors=True)
            write_raw(task)
            self._call(
                "plan_and_preprocess", task, repeat, "-d", NUMBER, "-c", task.configuration,
                "-npfp", "1", "-np", "1",
            )  # fmt: skip
            planned.touch()
        self._call("train", task, repeat, NUMBER, task.configuration, "0", *self._trainer)

    def predict(self, task: Task, repeat: int, out: Path, *, mirrored: bool) -> None:
        """``nnUNetv2_predict``."""
        self._call(
            "predict", task, repeat, "-i", _raw(task) / "imagesTs", "-o", out, "-d", NUMBER,
            "-c", task.configuration, "-f", "0", "-npp", "1", "-nps", "1",
            *(() if mirrored else ("--disable_tta",)), *self._trainer,
        )  # fmt: skip

    @property
    def _trainer(self) -> Sequence[str]:
        return ("-tr", f"nnUNetTrainer_{self.length}", "-device", "cpu")

    def _call(self, command: str, task: Task, repeat: int, *options: str | Path) -> None:
        folders = {"raw": "raw", "preprocessed": "preprocessed", "results": f"results-{repeat}"}
        home, binaries = _home(task), self.environment.resolve() / "bin"
        call(
            binaries / f"nnUNetv2_{command}", *options,
            **{f"nnUNet_{name}": str(home / own) for name, own in folders.items()},
            nnUNet_n_proc_DA="1" if command == "plan_and_preprocess" else "0",
            PATH=f"{binaries}{os.pathsep}{os.environ['PATH']}",
        )  # fmt: skip


def _home(task: Task) -> Path:
    return task.work / "nnunet"


def _raw(task: Task) -> Path:
    return _home(task) / "raw" / f"Dataset{int(NUMBER):03}_{task.name}"


def write_raw(task: Task) -> None:
    """The images in nnU-Net's layout."""
    seen: set[int] = set()
    for folder, part in ((task.tested, "Ts"), (task.trained, "Tr")):
        images, labels = (_raw(task) / f"{kind}{part}" for kind in ("images", "labels"))
        images.mkdir(parents=True)
        labels.mkdir()
        cases = open_dataset(folder).cases
        for case in cases:
            image, label = case.images[0].path, case.label.path
            ending = "".join(image.suffixes)
            shutil.copy(image, images / f"{case.name}_0000{ending}")
            shutil.copy(label, labels / f"{case.name}{ending}")
            seen.update(np.unique(labels_in(label)).tolist())
    described = {
        "channel_names": {"0": "image"},
        "labels": {"background": 0, **{f"label {i}": i for i in sorted(seen - {0})}},
        "numTraining": len(cases),
        "file_ending": ending,
    }
    (_raw(task) / "dataset.json").write_text(json.dumps(described))


def labels_in(file: Path) -> NDArray[Any]:
    """The labels of a label map, by pixel."""
    return read_image(file, kind="labels").array


def call(*command: str | Path | int, **environment: str) -> None:
    """Run a command to its end on one thread.

    Raises:
        SystemExit: it failed; with the end of what it printed.
    """
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    settings: Mapping[str, str] = {**os.environ, **one_thread, **environment}
    parts = [str(part) for part in command]
    done = subprocess.run(
        parts, env=settings, check=False, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        printed = "\n".join(done.stdout.splitlines()[-PRINTED:])
        raise SystemExit(f"{shlex.join(parts)} ended with {done.returncode}:\n{printed}")
