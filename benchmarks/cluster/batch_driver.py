"""A batch that can be watched and broken: ``python -m benchmarks.cluster.batch_driver``.

Each computation of a case leaves a file of its own in ``--log``; ``--deadly NAME`` ends the process
that works on the case of that name, ``--seconds`` makes each case take longer.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from caps_med.batch import Case, CaseResult, Cluster, SegmentFiles, run_batch
from caps_med.inference import Model


@dataclass(frozen=True)
class Watched(SegmentFiles):
    """Segment, and leave a trace of each computation.

    Attributes:
        log: a folder; a computation of ``a/b`` leaves ``a%b.UNIQUE`` in it.
        seconds: that each case takes longer.
        deadly: the name of the case that ends its process.
    """

    log: Path = Path()
    seconds: float = 0.0
    deadly: str = ""

    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:
        (self.log / f"{case.name.replace('/', '%')}.{uuid4().hex}").touch()
        time.sleep(self.seconds)
        if case.name == self.deadly:
            os._exit(9)
        return super().run(model, case, folder)


def computed(log: Path) -> list[str]:
    """The names of the cases that were begun, once for each time."""
    return sorted(one.name.rpartition(".")[0].replace("%", "/") for one in log.iterdir())


def main() -> None:
    """Run the batch; the status says whether all cases were done."""
    parser = argparse.ArgumentParser()
    for name in ("input", "out", "model", "models", "log"):
        parser.add_argument(name)
    parser.add_argument("--cluster")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--deadly", default="")
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    action = Watched(
        asked.model, Path(asked.models),
        log=Path(asked.log), seconds=asked.seconds, deadly=asked.deadly,
    )  # fmt: skip
    cluster = Cluster(asked.cluster) if asked.cluster else None
    run = run_batch(action, [asked.input], asked.out, cluster=cluster, resume=asked.resume)
    raise SystemExit(1 if run.failed else 0)


if __name__ == "__main__":
    # by its name: the workers of the cluster import what they are sent
    from benchmarks.cluster import batch_driver

    batch_driver.main()
