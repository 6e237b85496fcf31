"""The service on a cluster: ``python -m benchmarks.cluster serving``.

Beside a plain ``caps-med serve``: are the answers equal, what does a request cost more, what do
replicas cost in memory and in time to start; how much more do two answer than one, where each has a
core, where the processor's time goes, and what two processes without HTTP could do on this machine.
Then 1,000 requests by `caps_med.client.Client` while a replica, a node, and the node of the proxy
that the clients talk to are killed, and the head's control store (GCS) is killed and started again:
none may be lost, none may be audited as answered twice. Exits with 1 if one is.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.cluster import throughput
from benchmarks.cluster.alone import alone
from benchmarks.cluster.cores import own_cores
from benchmarks.cluster.faults import survive
from benchmarks.cluster.nodes import Cluster, free_ports
from benchmarks.cluster.parts import Meter
from benchmarks.cluster.pictures import pictures
from benchmarks.cluster.replicas import deploy, replicas, serve_cluster, with_decoders
from benchmarks.load import write_tiny
from benchmarks.measure import alternate
from benchmarks.options import benchmark_parser
from benchmarks.serving import Server, serving

MODEL = "tiny-segmentation"
SETTINGS = {"preload": f'["{MODEL}"]', "threads": 1, "training": "false"}
PARTS = ("beside", "replicas", "faults")
#: Clients of each replica under load: enough that its queue is never empty.
_CLIENTS_EACH = 3


@contextmanager
def clustered(
    models: Path, replicas_wanted: int, settings: Mapping[str, object] = SETTINGS
) -> Iterator[tuple[Cluster, str, dict[str, float]]]:
    """A cluster with that many replicas, its address, and the seconds that it took to start."""
    (port,) = free_ports(1)
    begin = time.monotonic()
    with serve_cluster(workers=replicas_wanted) as nodes:
        up = time.monotonic()
        arguments = ["--port", str(port), "--min-replicas", str(replicas_wanted)]
        done = deploy(nodes, models, arguments, settings)
        if done.returncode:
            raise RuntimeError(done.stderr)
        seconds = {"nodes_s": up - begin, "replicas_s": time.monotonic() - up}
        yield nodes, f"http://127.0.0.1:{port}", seconds


def beside(models: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """One replica beside the plain service: equal answers, cost of a request, memory, start."""
    begin = time.monotonic()
    with serving(models, folder / "plain.log", SETTINGS) as plain:
        plain_s = time.monotonic() - begin
        with clustered(models, 1) as (nodes, address, seconds):
            return {
                "equal": _equal(plain.address, address),
                "overhead_ms": {
                    name: _overhead(name, plain.address, address, rounds)
                    for name in ("healthz", "segment")
                },
                "memory_mb": _memory(plain, nodes),
                "start": {"plain_s": plain_s, **seconds},
            }


def _ask(client: httpx.Client, name: str, picture: bytes) -> bytes:
    if name == "healthz":
        return client.get("/healthz").content
    answer = client.post(f"/v1/models/{MODEL}/segment", files={"image": picture})
    answer.raise_for_status()
    return answer.content


def _equal(plain: str, cluster: str) -> int:
    """How many answers were compared, byte by byte.

    Raises:
        RuntimeError: two differ.
    """
    asked = [picture for size in (33, 64, 100, 128) for picture in pictures(50, size)]
    with (
        httpx.Client(base_url=plain, timeout=600) as one,
        httpx.Client(base_url=cluster, timeout=600) as other,
    ):
        for number, picture in enumerate(asked):
            if _ask(one, "segment", picture) != _ask(other, "segment", picture):
                raise RuntimeError(f"picture {number} has two answers")
    return len(asked)


def _overhead(name: str, plain: str, cluster: str, rounds: int) -> dict[str, float]:
    """Medians of one client's requests in turn, and of their differences."""
    (picture,) = pictures(1, 64)
    with (
        httpx.Client(base_url=plain, timeout=600) as one,
        httpx.Client(base_url=cluster, timeout=600) as other,
    ):
        jobs: dict[str, Callable[[], None]] = {
            "plain": partial(_call, one, name, picture),
            "cluster": partial(_call, other, name, picture),
        }
        seconds = alternate(jobs, rounds)
    pairs = zip(seconds["cluster"], seconds["plain"], strict=True)
    return {
        **{which: 1000 * statistics.median(times) for which, times in seconds.items()},
        "difference": 1000 * statistics.median(a - b for a, b in pairs),
    }


def _call(client: httpx.Client, name: str, picture: bytes) -> None:
    _ask(client, name, picture)


def _memory(plain: Server, nodes: Cluster) -> dict[str, float]:
    """Megabytes; pages that processes share are divided among them."""
    answering = [p for one in replicas(nodes) for p in with_decoders(one)]
    everything = [p for node in (nodes.head, *nodes.workers) for p in node.processes()]
    replica, total = _pss(answering), _pss(everything)
    return {"plain": plain.megabytes(), "replica": replica, "ray": total - replica}


def _pss(processes: list[psutil.Process]) -> float:
    return sum(process.memory_full_info().pss for process in processes) / 2**20


def two_replicas(models: Path, seconds: float, share: float | None) -> dict[str, Any]:
    """Answers a second of one replica and of two, and of as many processes without HTTP and Ray.

    What replicas can be at best is what those are: `of_bound` is the share of it. With each rate
    goes what an answer costs of the processor in each part.

    Args:
        share: of a core that each replica, with its decoders, or process has to itself; then
            `core_in_use` says how much of it the replicas used, 1 if nothing else held them up.
            By default all share the machine's cores.
    """
    settings = {**SETTINGS, "preload": f'["{throughput.MODEL}"]'}
    found: dict[int, dict[str, Any]] = {}
    for count in (1, 2):
        plain = alone(throughput.MODEL, throughput.SIZE, count, seconds / 2, share)
        with (
            clustered(models, count, settings) as (nodes, address, _),
            own_cores([[p.pid for p in with_decoders(one)] for one in replicas(nodes)], share),
        ):
            load = throughput.throughput(address, Meter(nodes), _CLIENTS_EACH * count, seconds)
        found[count] = {"rate": load.rate, "processor_ms": load.processor_ms, "alone": plain}
        if share:
            used = load.rate * load.processor_ms["replica"] / 1000
            found[count]["core_in_use"] = round(used / (share * count), 3)
    ratio = found[2]["rate"] / found[1]["rate"]
    bound = found[2]["alone"]["rate"] / found[1]["alone"]["rate"]
    return {
        "model": throughput.MODEL, "pixels": throughput.SIZE, "one": found[1], "two": found[2],
        "core_share": share, "ratio": ratio, "bound": bound, "of_bound": ratio / bound,
        "machine": throughput.machine(),
    }  # fmt: skip


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=200, help="of one client's requests")
    parser.add_argument("--requests", type=int, default=1000, help="while processes are killed")
    parser.add_argument("--seconds", type=float, default=30, help="under load, for each count")
    parser.add_argument(
        "--core-share",
        type=float,
        help="of a core that each replica has to itself under load, such as 0.5 (Linux, root); "
        "the result is kept as `replicas_with_cores`",
    )
    parser.add_argument("--out", type=Path, help="JSON file of the results; others stay in it")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="caps-") as temporary:
        folder = Path(temporary)
        models = folder / "models"
        models.mkdir()
        write_tiny(models)
        measured: dict[str, Callable[[], Any]] = {
            "beside": lambda: beside(models, folder, options.rounds),
            "replicas": lambda: two_replicas(models, options.seconds, options.core_share),
            "faults": lambda: survive(models, folder, MODEL, options.requests),
        }
        for part in options.parts:
            load = os.getloadavg()[0]
            name = "replicas_with_cores" if part == "replicas" and options.core_share else part
            found[name] = {**measured[part](), "load_before": round(load, 1)}
            print(name, json.dumps(found[name], indent=1), flush=True)
    if options.out:
        before = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**before, **found}, indent=1) + "\n")
    sys.exit(0 if _holds(found) else 1)


def _holds(found: dict[str, Any]) -> bool:
    """Whether the claims hold that do not depend on what else the machine does."""
    faults = found.get("faults", {"lost": 0, "audited_twice": 0})
    return not faults["lost"] and not faults["audited_twice"]


if __name__ == "__main__":
    main()
