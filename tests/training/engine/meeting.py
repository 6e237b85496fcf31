"""Two processes meet; in each of the first starts one is killed. For ``torchrun``: FILE."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import ignite.distributed as idist

from training.engine.distributed import in_parallel

KILLS = 2


def meet() -> None:
    met = idist.all_reduce(1)
    starts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if starts < KILLS and idist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    idist.barrier()
    if idist.get_rank() == 0:
        Path(sys.argv[1]).write_text(f"{met} processes, restarted {starts} times")


if __name__ == "__main__":
    in_parallel(meet)
