"""The service under load: ``python -m benchmarks.load``.

A real server on the loopback interface and many clients; every answer is compared with the
library's. Prints medians and 99th percentiles, memory after each half, and the overhead of HTTP
over a direct call.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import caps_med
from benchmarks.measure import alternate
from benchmarks.options import benchmark_parser
from benchmarks.serving import Server, serving
from caps_med.bundles import (
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    write_bundle,
)
from caps_med.client import Client, ServiceError
from caps_med.images import encode_image
from caps_med.networks import build_network

#: What HTTP may cost, and how far memory may grow, before this exits with 1.
MOST_OVERHEAD, MOST_GROWTH = 1.15, 0.05
BUILT_IN = ("brain-t1-tissue", "brain-t1-synthesis")
TINY = ("tiny-segmentation", "tiny-synthesis")


@dataclass(frozen=True)
class Request:
    """One request and its only right answer."""

    kind: str
    send: Callable[[Client], bytes]
    direct: Callable[[], bytes]
    answer: bytes


@dataclass
class Tally:
    """What became of the requests."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, outcome: str, seconds: float) -> None:
        with self.lock:
            self.outcomes[outcome] += 1
            if outcome == "right":
                self.seconds.setdefault(kind, []).append(seconds)


def write_tiny(root: Path) -> None:
    """Two small models with random weights: what is measured is the service."""
    for name, network in zip(TINY, ("SegCaps", "CapsPix2Pix"), strict=True):
        arguments: dict[str, object] = {"atoms": 4}
        arguments["out_channels" if network == "SegCaps" else "label_channels"] = 3
        torch.manual_seed(0)
        card = ModelCard(
            task="segmentation" if network == "SegCaps" else "synthesis",
            network=NetworkSpec(name=network, arguments=arguments),
            labels={0: "background", 1: "one", 2: "two"},
            provenance=WeightsProvenance(command="benchmarks.load", data="none", seed=0),
        )
        write_bundle(ModelRepository(root), name, build_network(network, arguments), card)


@dataclass(frozen=True)
class Asked:
    """A service of small models, and what to ask it.

    Attributes:
        models: its model repository.
    """

    server: Server
    models: Path
    requests: Sequence[Request]


@contextmanager
def service_of_two_models(
    options: argparse.Namespace, count: int, names: tuple[str, str] = TINY, **settings: object
) -> Iterator[Asked]:
    """A service, ready, until the block ends; it and the direct calls have the same threads.

    Args:
        options: ``threads`` of one pass, and the ``size`` of a picture.
        count: of different requests of either kind.
        names: of a model that segments, and of one that synthesizes.
        settings: more, by their names in `api.settings.Settings`.
    """
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.mkdir()
        write_tiny(models)
        asked = requests(models, names, options.size, count)
        settings |= {"preload": json.dumps(names), "threads": options.threads}
        with serving(models, Path(folder) / "server.log", settings) as server:
            yield Asked(server, models, asked)


def requests(models: Path, names: tuple[str, str], size: int, count: int) -> list[Request]:
    """`count` different requests of either kind."""
    segmenter, synthesizer = (caps_med.load_model(name, models) for name in names)
    ids = list(synthesizer.metadata.caps_med.labels)
    rng = np.random.default_rng(0)
    found = []
    for seed in range(count):
        picture = _png(rng.integers(0, 255, (size, size)).astype(np.uint8))
        coarse = rng.choice(ids, (size // 16, size // 16)).astype(np.uint8)
        labels = _png(coarse.repeat(16, 0).repeat(16, 1))

        def segment(picture: bytes = picture) -> bytes:
            return encode_image(segmenter.segment(picture), "png")

        def synthesize(labels: bytes = labels, seed: int = seed) -> bytes:
            return encode_image(synthesizer.synthesize(labels, seed), "png")

        def ask_segment(client: Client, picture: bytes = picture) -> bytes:
            return client.segment(names[0], picture)

        def ask_synthesize(client: Client, labels: bytes = labels, seed: int = seed) -> bytes:
            return client.synthesize(names[1], labels, seed)

        found.append(Request("segment", ask_segment, segment, segment()))
        found.append(Request("synthesize", ask_synthesize, synthesize, synthesize()))
    return found


def load(address: str, asked: Sequence[Request], count: int, clients: int) -> Tally:
    """Send `count` requests from `clients` clients at once; a busy service is asked again."""
    tally, numbers = Tally(), itertools.count()

    def work() -> None:
        with Client(address) as client:
            while (number := next(numbers)) < count:
                _ask(client, asked[number % len(asked)], tally)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


def _ask(client: Client, request: Request, tally: Tally) -> None:
    """Ask until it is answered; each refusal is counted, and waited for as it says."""
    while True:
        start = time.perf_counter()
        try:
            answer = request.send(client)
        except ServiceError as error:
            polite = error.status == 503 and error.retry_after is not None
            tally.add(request.kind, "503 with Retry-After" if polite else str(error), 0)
            if not polite:
                return
            time.sleep(error.retry_after or 1)
            continue
        outcome = "right" if answer == request.answer else "WRONG"
        tally.add(request.kind, outcome, time.perf_counter() - start)
        return


def overhead(address: str, asked: Sequence[Request], rounds: int) -> dict[str, float]:
    """Time over HTTP divided by that of a direct call, by kind: medians over alternating rounds."""
    found = {}
    with Client(address) as client:
        for kind in ("segment", "synthesize"):
            request = next(r for r in asked if r.kind == kind)
            jobs: dict[str, Callable[[], None]] = {
                "http": partial(_call, partial(request.send, client)),
                "direct": partial(_call, request.direct),
            }
            seconds = alternate(jobs, rounds)
            middle = {name: statistics.median(values) for name, values in seconds.items()}
            found[kind] = middle["http"] / middle["direct"]
            print(
                f"{kind}, one client: {1000 * middle['http']:.1f} ms over HTTP, "
                f"{1000 * middle['direct']:.1f} ms directly, ratio {found[kind]:.3f}"
            )
    return found


def _call(work: Callable[[], bytes]) -> None:
    work()


def report(tally: Tally, seconds: float) -> None:
    """Print what became of the requests."""
    print(", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common()))
    for kind, times in sorted(tally.seconds.items()):
        times = sorted(times)
        last = times[min(len(times) - 1, int(0.99 * len(times)))]
        print(f"{kind}: median {statistics.median(times):.3f} s, 99th percentile {last:.3f} s")
    print(f"{tally.outcomes['right'] / seconds:.1f} right answers a second")


def measure(server: Server, asked: Sequence[Request], options: argparse.Namespace) -> bool:
    """Both halves of the load, then one client alone; whether all held."""
    megabytes, held = [], True
    load(server.address, asked, 2 * len(asked), options.clients)  # every kind of memory is taken
    for half in ("first", "second"):
        start = time.perf_counter()
        tally = load(server.address, asked, options.requests // 2, options.clients)
        print(f"{half} half, {options.requests // 2} requests, {options.clients} clients")
        report(tally, time.perf_counter() - start)
        megabytes.append(server.megabytes())
        held = held and set(tally.outcomes) <= {"right", "503 with Retry-After"}
    growth = megabytes[1] / megabytes[0] - 1
    print(f"memory {megabytes[0]:.0f} MB, then {megabytes[1]:.0f} MB: {100 * growth:+.1f} %")
    ratios = overhead(server.address, asked, options.rounds)
    if options.models == "tiny":
        return held and growth <= MOST_GROWTH  # what HTTP may cost is said of the built-in models
    return held and growth <= MOST_GROWTH and max(ratios.values()) <= MOST_OVERHEAD


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--models", choices=("tiny", "built-in"), default="tiny")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--size", type=int, default=256, help="edge of a picture, in pixels")
    parser.add_argument("--queue", type=int, default=64, help="requests that may wait for a model")
    parser.add_argument("--batch", type=int, default=8, help="requests in one pass")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of one pass, here and there")
    parser.add_argument("--rounds", type=int, default=20, help="of one client alone")
    options = parser.parse_args()
    names = TINY if options.models == "tiny" else BUILT_IN
    settings = {
        "max_queue": options.queue, "max_batch": options.batch, "workers": options.workers,
        "training": "false",
    }  # fmt: skip
    with service_of_two_models(options, 8, names, **settings) as asked:
        held = measure(asked.server, asked.requests, options)
    sys.exit(0 if held else 1)


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


if __name__ == "__main__":
    main()
