"""A new version of a whole cluster: ``python -m benchmarks.cluster upgrade``.

As docs/runbook.md has it: a second cluster with another version of caps_med starts beside the first
over the same models and keys; HAProxy in front (``docker/cluster/haproxy.cfg``) is told to send
requests there (reload); when it has finished those at the first cluster, that one ends. Meanwhile
`caps_med.client.Client` asks without a pause. Exits with 1 if a request is lost, audited twice as
answered, or answered by the old cluster after the switch.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.cluster.clients import Clients, repeated
from benchmarks.cluster.edge import edge, shipped
from benchmarks.cluster.nodes import Cluster, free_ports
from benchmarks.cluster.replicas import deploy, proxy_address, serve_cluster
from benchmarks.load import write_tiny
from benchmarks.options import benchmark_parser
from benchmarks.waiting import until
from caps_med import __version__

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("caps_med", "training", "api", "benchmarks")
MODEL, NEW = "tiny-segmentation", f"{__version__}+new"


def installed(folder: Path, version: str) -> dict[str, str]:
    """A copy of this code that says it is `version`; the environment in which it is imported."""
    for name in _PACKAGES:
        shutil.copytree(_ROOT / name, folder / name, ignore=shutil.ignore_patterns("results"))
    (folder / "caps_med" / "_version.py").write_text(f'__version__ = "{version}"\n')
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


@contextmanager
def running(
    models: Path, audit: Path, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[Cluster, str]]:
    """A cluster that answers, and the address of its worker's proxy.

    Raises:
        RuntimeError: it does not start.
    """
    settings = {
        "preload": f'["{MODEL}"]', "threads": 1, "audit_log": audit, "rate_per_minute": 10**9
    }  # fmt: skip
    with serve_cluster(environment=environment) as nodes:
        done = deploy(nodes, models, ["--port", str(*free_ports(1))], settings, environment)
        if done.returncode:
            raise RuntimeError(done.stderr)
        yield nodes, proxy_address(nodes.workers[0])


def upgrade(folder: Path, requests: int, count: int) -> dict[str, Any]:
    """Replace a cluster while `count` clients ask, a third of the requests between the steps."""
    models, old_audit, new_audit = (folder / name for name in ("models", "old.jsonl", "new.jsonl"))
    models.mkdir()
    write_tiny(models)
    environment = installed(folder / "new", NEW)
    with (
        running(models, old_audit) as (old, first),
        edge([first], folder, shipped) as front,
        ExitStack() as later,  # what starts while the clients ask ends after them
    ):
        clients = Clients(front.address, MODEL, count)
        with clients.asking():
            clients.until(requests // 3)
            _, second = later.enter_context(running(models, new_audit, environment))
            until(lambda: is_ready(second))
            before, begin = len(clients.times), time.monotonic()
            front.switch([second])
            switched, by_old = time.monotonic() - begin, _records(old_audit)
            clients.until(before + requests // 3)
            old.stop()
            clients.until(before + 2 * (requests // 3))
    return {
        "answered": len(clients.times), "lost": len(clients.lost), "errors": clients.lost[:5],
        **repeated(old_audit, new_audit), "versions": dict(clients.versions),
        "switched_s": round(switched, 2),
        "longest_pause_s": round(clients.longest_pause(before, begin), 2),
        "by_old_after_switch": _records(old_audit) - by_old,
    }  # fmt: skip


def is_ready(address: str) -> bool:
    """Whether the service there answers."""
    with suppress(httpx.TransportError):
        return httpx.get(f"{address}/readyz", timeout=60).is_success
    return False


def _records(audit: Path) -> int:
    return len(audit.read_text().splitlines())


def main() -> None:
    """Print what came of it as JSON, and keep it if asked to."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--clients", type=int, default=4, help="that ask at the same time")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="caps-") as folder:
        found = upgrade(Path(folder), options.requests, options.clients)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    sys.exit(1 if found["lost"] or found["audited_twice"] or found["by_old_after_switch"] else 0)
