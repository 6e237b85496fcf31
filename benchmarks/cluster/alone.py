"""What a network answers in plain processes, without HTTP and Ray: the bound of this machine.

    python -m benchmarks.cluster.alone MODEL PIXELS SECONDS     # waits for a line on standard input

Several processes on the cores of one machine share its memory, its caches and, in a virtual
machine, what its host leaves them.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import torch

from benchmarks.cluster.cores import own_cores
from benchmarks.cluster.pictures import pictures
from caps_med.allocator import keep_freed_memory
from caps_med.inference import load_model

#: Seconds for a process to load the model.
_PATIENCE_S = 120


def alone(
    model: str, size: int, processes: int, seconds: float, share: float | None = None
) -> dict[str, float]:
    """Answers a second of that many processes together, and processor time of each answer in ms.

    Args:
        share: of a core that each process has, see `own_cores`.

    Raises:
        RuntimeError: one of them fails; its errors are on standard error.
    """
    command = [sys.executable, "-m", "benchmarks.cluster.alone", model, str(size), str(seconds)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for process in running:
            if _stream(process.stdout).readline() != "ready\n":
                raise RuntimeError("a process without HTTP did not start")
        with own_cores([[process.pid] for process in running], share):
            for process in running:
                _stream(process.stdin).write("go\n")
                _stream(process.stdin).flush()
            said = [process.communicate(timeout=_PATIENCE_S + seconds)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    answers, rates, spent = zip(*(map(float, text.split()) for text in said), strict=True)
    return {"rate": sum(rates), "processor_ms": 1000 * sum(spent) / sum(answers)}


def _stream(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the processes are started with pipes")
    return stream


def main() -> None:
    """Answer pictures one after the other; print their number, rate and processor seconds."""
    name, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    keep_freed_memory()  # as the command does
    torch.set_num_threads(1)  # as a replica's setting has it
    model, asked = load_model(name), pictures(16, size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer.png")
        for picture in asked[:2]:
            model.segment(picture).save(path)
        print("ready", flush=True)
        sys.stdin.readline()
        begin, before, answers = time.perf_counter(), time.process_time(), 0
        for picture in itertools.cycle(asked):
            model.segment(picture).save(path)
            answers += 1
            if (took := time.perf_counter() - begin) >= seconds:
                break
        print(answers, answers / took, time.process_time() - before)


if __name__ == "__main__":
    main()
