"""The real server in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from api.commands import serve
from api.settings import Settings
from api.startup import read_settings
from caps_med.errors import InvalidParameter
from caps_med.images import read_image
from tests.api import http
from tests.api.running import running

COMMAND = Path(sys.executable).parent / "caps-med"


@pytest.fixture(scope="module")
def address(models: Path) -> Iterator[str]:
    """`caps-med serve` on a free port; it says which."""
    command = [str(COMMAND), "serve", "--port", "0", "--models", str(models)]
    environment = {**os.environ, "CAPS_MED_PRELOAD": '["tiny-segmentation"]'}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        found = None
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        assert found is not None
        yield found[0]
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        assert server.wait(timeout=20) in (0, -signal.SIGTERM)


def test_python_command_line_and_http_agree(
    address: str, models: Path, volume: bytes, preloaded: Path, tmp_path: Path
) -> None:
    import caps_med

    source, out = tmp_path / "in.nii.gz", tmp_path / "out.nii.gz"
    source.write_bytes(volume)
    url = f"{address}/v1/models/tiny-segmentation/segment"
    answer = http.post(url, files={"image": volume}, timeout=60)
    command = [str(preloaded), "segment", "--model", "tiny-segmentation", str(source), "--out",
               str(out), "--models", str(models)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    by_python = caps_med.load_model("tiny-segmentation", models).segment(source)
    by_http, by_command = (read_image(x, kind="labels") for x in (answer.content, out))
    np.testing.assert_array_equal(by_http.array, by_python.array)
    np.testing.assert_array_equal(by_command.array, by_python.array)
    np.testing.assert_array_equal(by_http.affine, by_command.affine)


def test_it_is_ready_and_counts(address: str) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(retries=3), timeout=60) as client:
        client.post(f"{address}/v1/models/tiny-segmentation/segment", files={"image": b"x"})
        assert client.get(f"{address}/healthz").status_code == 200
        assert 'outcome="415"' in client.get(f"{address}/metrics").text


def test_answers_on_a_kept_connection_are_sent_at_once(models: Path) -> None:
    """Their bodies waited for an acknowledgement of their headers, which takes 40 ms."""
    with running(Settings(models=models, preload=())) as server, httpx.Client() as client:
        assert client.get(f"{server.address}/healthz").status_code == 200
        (connection,) = server.server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CAPS_MED_WORKERS", "abc", "CAPS_MED_WORKERS: "),
        ("CAPS_MED_PRELOAD", "brain-t1-tissue", "CAPS_MED_PRELOAD: must be a JSON list"),
        ("CAPS_MED_KEYS", __file__, "is not a file of API keys"),
        ("CAPS_MED_MODELS", __file__, "test_server.py: this is a file; name a folder"),
        (
            "CAPS_MED_DEVICE",
            "cuda:99",
            "CAPS_MED_DEVICE='cuda:99': this machine has no such device",
        ),
        ("CAPS_MED_ROUTING", "fast", "CAPS_MED_ROUTING: routing backend 'fast': must be one of"),
    ],
)
def test_a_wrong_setting_is_one_line(name: str, value: str, message: str, preloaded: Path) -> None:
    command = [str(preloaded), "serve", "--port", "0"]
    answer = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, name: value}, timeout=60,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    assert message in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DATASETS", "/srv/a", r'CAPS_MED_DATASETS: must be a JSON object, such as \{"one": ...\}'),
        ("ARCHIVES", '{"pacs": {}}', "CAPS_MED_ARCHIVES: pacs.url: Field required"),
        ("AUDIT_REQUIRED", "1", "CAPS_MED_AUDIT_REQUIRED needs CAPS_MED_AUDIT_LOG: .*"),
    ],
)
def test_a_wrong_setting_names_its_variable_and_form(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"CAPS_MED_{name}", value)
    with pytest.raises(InvalidParameter, match=f"^{message}$"):
        read_settings({})


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"max_replicas": 8}, "--cluster"),
        ({"min_replicas": 2}, "--cluster"),
        ({"monai_label_project": "liver"}, "--monai-label"),
        ({"monai_label_model": "organs"}, "--monai-label"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(
    options: dict[str, Any], needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.server.run", lambda *_: None)
    with pytest.raises(InvalidParameter, match=f"only used with {needed}$"):
        serve(port=0, **options)


def test_on_windows_the_service_says_that_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(InvalidParameter, match="needs Linux or macOS; on Windows run it in WSL 2"):
        serve()
