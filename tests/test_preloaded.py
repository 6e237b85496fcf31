"""Processes that are forked for a script end as the script would, and with it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.preloaded import module_command
from tests.waiting import PATIENCE, until


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_process_and_its_script(
    preloaded: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = module_command(preloaded, "http.server", "0", "--bind", "127.0.0.1")
    with (tmp_path / "said").open("w") as said:
        script = subprocess.Popen(
            command, stdout=said, env={"PYTHONUNBUFFERED": "1"}, start_new_session=True
        )

    def port() -> str:
        found = re.search(r"port (\d+)", (tmp_path / "said").read_text())
        return found[1] if found else ""

    until(lambda: bool(port()), process=script)
    listening = int(port())
    script.send_signal(number)
    # http.server ends by itself when it is interrupted
    assert script.wait(PATIENCE) == (0 if number is signal.SIGINT else -number)
    until(lambda: not answers(listening))


def test_a_status_and_what_is_said_arrive(preloaded: Path) -> None:
    command = module_command(preloaded, "http.server", "nowhere")
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert answer.returncode == 2
    assert "invalid int value: 'nowhere'" in answer.stderr
