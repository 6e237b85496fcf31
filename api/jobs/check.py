"""Whether data can be trained on: `caps-med data check` in its own process.

``python -m api.jobs.check FOLDER TASK OPTIONS RESULT ...`` decodes every file, so a hostile one may
kill it; the service reports that and goes on.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.confinement import end_with
from api.jobs.files import read_json, write_json
from api.jobs.job import Options
from api.processes import import_path, limit_memory, module_command

if TYPE_CHECKING:
    from training.data.interface import TrainingData

#: Findings listed in the answer, which also counts all of them.
LISTED = 100
#: Files that may list others.
_LISTS = (".json", ".csv", ".tsv")


def inspect(folder: Path, task: str, options: Options) -> dict[str, Any]:
    """The findings about a folder of data, understood as the job's options say, errors first.

    They name no path above it.

    A description that names files outside the folder is refused before any file is looked for, so
    that the answer does not tell which files there are.
    """
    from caps_med.errors import CapsMedError

    try:
        if leads_outside(folder):
            what = "its description names a file outside the data set"
            return _answer([_finding("outside", "", what, "pack all files into it")])
    except RecursionError:
        what = "a JSON file is too deeply nested to be searched for names of files"
        return _answer([_finding("layout", "", what, "take it out")])
    try:
        found = [finding.model_dump() for finding in _opened(folder, task, options).findings]
    except CapsMedError as error:
        found = [_finding("layout", "", str(error), "correct the description of the data set")]
    return _answer([{k: _without(folder, v) for k, v in one.items()} for one in found])


def _opened(folder: Path, task: str, options: Options) -> TrainingData:
    from training.tasks.opening import Understanding, open_data

    return open_data(task, folder, Understanding(options.interpretation, options.label_maps))


def leads_outside(folder: Path) -> bool:
    """Whether a list in the folder names a file outside it; no file that it names is looked for.

    Raises:
        RecursionError: one is too deeply nested.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    lists = (path for path in files if path.suffix.lower() in _LISTS)
    return any(
        not os.path.normpath(path.parent / name).startswith(f"{folder}{os.sep}")
        for path in lists
        for written in _file_names(path)
        for name in (written, written.replace("\\", "/"))  # as `as_on_disk` reads it
        if Path(name).is_absolute() or ".." in Path(name).parts
    )


def _file_names(path: Path) -> Iterator[str]:
    """What may be a file name in a list: cells of a table; in JSON all texts but those that a
    description has of itself, such as its ``reference``.

    Tables are taken apart as the training does it: by another delimiter, a cell could hide a name.
    """
    from training.data.layouts.described import delimiter_of

    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if path.suffix.lower() == ".json":
        with suppress(ValueError):  # not JSON: no list either
            content = json.loads(text)
            values = content.values() if isinstance(content, dict) else [content]
            yield from _texts([value for value in values if not isinstance(value, str)])
        return
    with suppress(csv.Error):  # no table: no list either
        for row in csv.reader(text.splitlines(), delimiter=delimiter_of(text)):
            yield from (cell.strip() for cell in row)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - whatever JSON holds
    left = [value]
    while left:  # recursion would end sooner than that of a JSON parser
        value = left.pop()
        if isinstance(value, str):
            yield value.strip()
        elif isinstance(value, list | dict):
            left += value.values() if isinstance(value, dict) else value


def _without(folder: Path, value: Any) -> Any:  # noqa: ANN401 - of a finding
    """A text without the folder's path."""
    if not isinstance(value, str):
        return value
    for place in (str(folder), str(folder.resolve())):
        value = value.replace(f"{place}{os.sep}", "").replace(place, "the data set")
    return value


def _finding(code: str, file: str, what: str, fix: str) -> dict[str, str]:
    return {"severity": "error", "code": code, "file": file, "what": what, "fix": fix}


def _answer(findings: list[dict[str, Any]]) -> dict[str, Any]:
    errors = sum(found["severity"] == "error" for found in findings)
    return {"errors": errors, "count": len(findings), "findings": findings[:LISTED]}


async def findings(
    folder: Path,
    task: str,
    options: Options,
    result: Path,
    seconds: float,
    memory_bytes: int,
    nice: int,
) -> dict[str, Any]:
    """The findings of the check of a folder; a crash or a timeout is a finding too.

    Args:
        folder: of the data; findings name files relative to it.
        task, options: of the job.
        result: a file that the check may write.
        seconds, memory_bytes, nice: bounds on its process; memory beyond what it starts with.
    """
    limits = (str(memory_bytes), str(nice), str(os.getpid()))
    arguments = (str(folder), task, options.model_dump_json(), str(result), *limits)
    process = await asyncio.create_subprocess_exec(
        *module_command("api.jobs.check", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **import_path(), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
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


def main(folder: Path, task: str, options: Options, result: Path, memory: int, nice: int) -> None:
    """Check `folder` within the given bounds and write the findings."""
    import training.data  # noqa: F401 - counts as memory in use below

    os.nice(nice)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(memory)
    write_json(result, inspect(folder, task, options))


if __name__ == "__main__":
    folder, task, options, result, memory, nice, parent = sys.argv[1:]
    end_with(int(parent))
    chosen = Options.model_validate_json(options)
    main(Path(folder), task, chosen, Path(result), int(memory), int(nice))
