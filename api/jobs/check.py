"""Whether data can be trained on: `caps-med data check` in its own process.

``python -m api.jobs.check FOLDER OPTIONS RESULT ...`` decodes every file, so a hostile one may kill
it; the service reports that and goes on.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from api.jobs.files import read_json, write_json
from api.jobs.job import Options
from api.processes import import_path, module_command

#: Findings listed in the answer, which also counts all of them.
LISTED = 100


def inspect(folder: Path, options: Options) -> dict[str, Any]:
    """The findings about a folder of data, understood as the job's options say, errors first.

    A description that names files outside the folder is refused before any file is opened.
    """
    from training.data import open_dataset

    dataset = open_dataset(folder, interpretation=options.interpretation)
    for case in dataset.cases:
        for file in (*case.images, case.label):
            if not file.path.resolve().is_relative_to(folder.resolve()):
                what = "its description names a file outside the data set"
                return _answer([_finding("outside", "", what, "pack all files into it")])
    return _answer([found.model_dump() for found in dataset.findings])


def _finding(code: str, file: str, what: str, fix: str) -> dict[str, str]:
    return {"severity": "error", "code": code, "file": file, "what": what, "fix": fix}


def _answer(findings: list[dict[str, Any]]) -> dict[str, Any]:
    errors = sum(found["severity"] == "error" for found in findings)
    return {"errors": errors, "count": len(findings), "findings": findings[:LISTED]}


async def findings(
    folder: Path,
    options: Options,
    result: Path,
    seconds: float,
    memory_bytes: int | None,
    nice: int,
) -> dict[str, Any]:
    """The findings of the check of a folder; a crash or a timeout is a finding too.

    Args:
        folder: of the data; findings name files relative to it.
        options: of the job.
        result: a file that the check may write.
        seconds, memory_bytes, nice: bounds on its process.
    """
    limits = (str(memory_bytes or 0), str(nice))
    arguments = (str(folder), options.model_dump_json(), str(result), *limits)
    process = await asyncio.create_subprocess_exec(
        *module_command("api.jobs.check", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **import_path(), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        what = f"could not be checked within {seconds:g} s"
        return _answer([_finding("too_slow", "", what, "send fewer or smaller files")])
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    answer = read_json(result)
    if answer is None:
        what = f"checking it crashed the process (status {process.returncode})"
        return _answer([_finding("unreadable", "", what, "save the files again, or send fewer")])
    return answer


def main(folder: Path, options: Options, result: Path, memory: int, nice: int) -> None:
    """Check `folder` within the given bounds and write the findings."""
    os.nice(nice)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    write_json(result, inspect(folder, options))


if __name__ == "__main__":
    folder, options, result, memory, nice = sys.argv[1:]
    main(Path(folder), Options.model_validate_json(options), Path(result), int(memory), int(nice))
