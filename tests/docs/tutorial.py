"""Tutorials are run as they are read: every block of a page, in order, in an empty folder.

``python -m tests.docs.tutorial docs/tutorials/*.md`` runs pages and puts what they printed, and the
pictures that they made, back into the documentation.

Blocks of ``bash`` and ``python`` are run; a block of ``text`` is the output of the block before it.
The Python blocks of a page share one namespace. A block that starts with ``caps-med serve`` starts
the service, on a free port in place of 8000, until the end of the page. The picture
``../images/tutorials/PAGE/NAME.webp`` shows the file ``NAME.png`` that the page writes.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

IMAGES = Path(__file__).parents[2] / "docs" / "images" / "tutorials"
INSTALLED = Path(sys.executable).parent
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PORT = 8000
#: A service has to be ready after this many seconds.
_PATIENCE = 120


@dataclass
class Block:
    """A fenced block, where its content stands in the page, and what the page says it prints."""

    language: str
    code: str
    end: int
    printed: re.Match[str] | None


def blocks(page: str) -> list[Block]:
    """The blocks of a page that are run.

    Raises:
        ValueError: a block of another language, or an output of nothing.
    """
    found: list[Block] = []
    for match in _BLOCK.finditer(page):
        language, code = match.groups()
        if language in ("bash", "python"):
            found.append(Block(language, code, match.end(), None))
        elif language == "text" and found and not page[found[-1].end : match.start()].strip():
            found[-1].printed = match
        else:
            raise ValueError(
                f"a block of {language!r} is neither run nor the output of one that is"
            )
    return found


def pictures(path: Path) -> dict[str, Path]:
    """What the page shows: the file that it makes, and the committed picture."""
    linked = re.findall(rf"\(\.\./images/tutorials/{path.stem}/(\S+)\.webp\)", path.read_text())
    return {f"{name}.png": IMAGES / path.stem / f"{name}.webp" for name in linked}


def run(page: str, folder: Path, commands: Path = INSTALLED) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in a folder, which is the current one; each with what it prints.

    ``caps-med`` is that of the folder `commands`.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    port = _free_port()
    with contextlib.ExitStack() as stack:
        for block in blocks(page):
            code = block.code.replace(f"127.0.0.1:{_PORT}", f"127.0.0.1:{port}")
            if block.language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(code, "<tutorial>", "exec"), names)  # noqa: S102
                yield block, printed.getvalue()
            elif code.startswith("caps-med serve"):
                serve = f"{code.strip()} --port {port}"
                stack.enter_context(_service(serve, port, folder, commands))
                yield block, ""
            else:
                yield block, _shell(code, folder, commands)


def _shell(code: str, folder: Path, commands: Path) -> str:
    command = ["/bin/bash", "-e", "-o", "pipefail", "-c", code]
    answer = subprocess.run(
        command, cwd=folder, env=_environment(commands), capture_output=True, text=True, check=False
    )
    if answer.returncode:
        raise RuntimeError(f"{code}\n{answer.stdout}\n{answer.stderr}")
    return answer.stdout


def _environment(commands: Path) -> dict[str, str]:
    path = os.pathsep.join((str(commands), str(INSTALLED), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "COLUMNS": "80", "CAPS_MED_DEVICE": "cpu"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _service(command: str, port: int, folder: Path, commands: Path) -> Iterator[None]:
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            command.split(), cwd=folder, env=_environment(commands), stdout=log, stderr=log
        )
    try:
        _wait_until_ready(port, process)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):  # not there yet, not ready, or slow to answer
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"the service is not ready (exit status {process.poll()})")


def _update(path: Path, folder: Path) -> None:
    """Run a page; write the outputs that it shows, and its pictures."""
    page = path.read_text()
    outputs = [(block, printed) for block, printed in run(page, folder) if block.printed]
    for block, printed in reversed(outputs):
        assert block.printed is not None
        start, end = block.printed.span(2)
        page = page[:start] + printed + page[end:]
    path.write_text(page)
    for made, committed in pictures(path).items():
        committed.parent.mkdir(parents=True, exist_ok=True)
        Image.open(folder / made).convert("RGB").save(committed, quality=70, method=6)


def main() -> None:
    """Update the pages that are named."""
    import tempfile

    for name in sys.argv[1:]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            _update(path, Path(folder))


if __name__ == "__main__":
    main()
