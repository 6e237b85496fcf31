"""TLS and the token between nodes, by the commands of docs/scaling.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cluster.nodes import cluster

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
PATIENCE = 120.0
#: Ray goes on trying for minutes; whoever is let in is so in a few seconds.
REFUSED_S = 25.0
CALL = "import ray; ray.init(log_to_driver=False); print(ray.get(ray.remote(lambda: 42).remote()))"


def certificates(folder: Path) -> dict[str, str]:
    """Made by the commands of the page; the environment that they set."""
    section = PAGE.read_text().partition("### TLS between the nodes")[2]
    script = section.partition("```console\n")[2].partition("```")[0]
    shown = subprocess.run(
        ["bash", "-euc", f"{script}\nenv"], cwd=folder, capture_output=True, text=True, check=True
    )
    found = dict(re.findall(r"^(RAY_(?:USE_TLS|TLS_\w+))=(.*)$", shown.stdout, re.MULTILINE))
    assert len(found) == 4
    return {k: v if v == "1" else str(folder / v) for k, v in found.items()}


def called(environment: Mapping[str, str], within: float = PATIENCE) -> str:
    """What a caller with this environment gets; empty if it is not let in."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    try:
        done = subprocess.run(
            [sys.executable, "-c", CALL], env={**clean, **environment}, capture_output=True,
            text=True, timeout=within,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip()


def test_tls_and_token_let_in_who_has_both(tmp_path: Path) -> None:
    tls = certificates(tmp_path)
    with cluster([0, 1], environment=tls) as nodes:
        assert called({**nodes.environment, **tls}) == "42"
        other = tmp_path / "other"
        other.write_text("0" * 64)
        without_token = {**nodes.environment, **tls, "RAY_AUTH_TOKEN_PATH": str(other)}
        assert called(without_token, REFUSED_S) == ""
        assert called(nodes.environment, REFUSED_S) == ""  # without a certificate
