"""How fast the sliders of the view Classify are answered: ``python -m benchmarks.sliders``.

Each move of a slider asks the service to draw the pose of one class capsule. Requests go one after
the other over one connection, as the page sends them, to a server on this machine.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

from benchmarks.options import benchmark_parser
from benchmarks.serving import serving

ATOMS, CLASSES = 16, 10


def main() -> None:
    """Print the median and the 95th percentile."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--model", default="digits", help="with 10 classes and capsules of 16 atoms"
    )
    parser.add_argument("--moves", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            serving(folder / "models", folder / "log", {}) as server,
            httpx.Client(base_url=server.address) as client,
        ):
            taken = measured(client, options.model, options.moves)
    median, slow = 1000 * np.median(taken), 1000 * np.quantile(taken, 0.95)
    print(f"{options.model}: {median:.1f} ms, 95 % within {slow:.1f} ms")


def measured(client: httpx.Client, model: str, moves: int) -> list[float]:
    """Seconds of each move, the first one left out: it loads the model."""
    generator, taken = np.random.default_rng(0), []
    for move in range(moves + 1):
        pose = ",".join(f"{number:.3f}" for number in generator.uniform(-0.5, 0.5, ATOMS))
        form = {"capsule": str(move % CLASSES), "poses": pose}
        started = time.perf_counter()
        answer = client.post(
            f"/v1/models/{model}/manipulate", data=form, headers={"Accept": "image/png"}
        )
        taken.append(time.perf_counter() - started)
        answer.raise_for_status()
    return taken[1:]


if __name__ == "__main__":
    main()
