"""Other ways to compute the convolutions of a network: ``python -m benchmarks.convolutions``.

At equal routing: each convolution alone, on the input that it has in the network, float32, one
thread, processor time of all layers over that of the layers as they are, by tiles where these are
faster (`caps_med.convolutions`). Exits with 1 if a way gives other numbers. ONNX Runtime and
OpenVINO are left out where they are not installed (``pip install onnxruntime openvino``). Which
algorithm oneDNN takes: ``ONEDNN_VERBOSE=1``.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import caps_med
from benchmarks.measure import alternate
from benchmarks.options import benchmark_parser
from caps_med.networks import CapsuleNetwork, SegmentationNetwork, build_network
from caps_med.routing import use_backend

RESULTS = Path(__file__).parent / "results" / "convolutions.json"
#: The largest difference of two ways, over the largest number. Tiles round three times as much as
#: direct sums do (`caps_med.convolutions.winograd`).
DIFFERENCE = 3e-5
#: Ways that need a library of this name.
LIBRARIES = ("onnxruntime", "openvino")
Layer = nn.Conv2d | nn.ConvTranspose2d
Run = Callable[[], Tensor]
NETWORKS: Mapping[str, Callable[[], CapsuleNetwork]] = {
    "brain-t1-tissue": lambda: caps_med.load_model("brain-t1-tissue").network,
    "SegCaps": partial(build_network, "SegCaps", {}),
    "SegCaps, 4 atoms": partial(build_network, "SegCaps", {"atoms": 4}),
    "ConvCaps": partial(build_network, "ConvCaps", {}),
}


def layers_of(network: CapsuleNetwork, size: int) -> list[tuple[Layer, Tensor]]:
    """The convolutions of a network in order, each with its input for a picture of this size."""
    found: list[tuple[Layer, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(layer, Layer)  # noqa: S101 - hooked below
        found.append((layer, inputs[0]))

    for layer in network.modules():
        if isinstance(layer, Layer):
            layer.register_forward_pre_hook(note)
    assert isinstance(network, SegmentationNetwork)  # noqa: S101 - of NETWORKS
    picture = torch.rand(1, network.in_channels, size, size)
    network.eval()(picture)
    for layer, _ in found:
        layer._forward_pre_hooks.clear()
    return found


def as_it_is(layer: Layer, maps: Tensor) -> Run:
    """The layer, on its input in the memory format that it has in the network."""
    return partial(layer, maps)


def directly(layer: Layer, maps: Tensor) -> Run:
    """By PyTorch, on the same input."""

    def run() -> Tensor:
        with use_backend("eager"):
            result: Tensor = layer(maps)
        return result

    return run


def channels_first(layer: Layer, maps: Tensor) -> Run:
    """By PyTorch on a contiguous input."""
    return directly(layer, maps.contiguous())


def all_channels_last(layer: Layer, maps: Tensor) -> Run:
    """By PyTorch with input and weights channels last."""
    last = copy.deepcopy(layer).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return directly(last, maps.contiguous(memory_format=torch.channels_last))


def matrix_products(layer: Layer, maps: Tensor) -> Run:
    """By PyTorch, with 1 x 1 kernels as products of matrices."""
    if isinstance(layer, nn.ConvTranspose2d) or layer.weight.shape[2:].numel() > 1:
        return directly(layer, maps)
    if layer.stride != (1, 1) or layer.groups > 1:
        return directly(layer, maps)
    weight, last = layer.weight[:, :, 0, 0], maps.movedim(1, -1)
    return lambda: nn.functional.linear(last, weight, layer.bias).movedim(-1, 1)


def onnxruntime(layer: Layer, maps: Tensor) -> Run:
    """By ONNX Runtime, which takes maps channels first."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(_exported(layer, maps), options, ["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: maps.contiguous().numpy()}
    return lambda: torch.from_numpy(session.run(None, given)[0])


def openvino(layer: Layer, maps: Tensor) -> Run:
    """By OpenVINO, likewise."""
    import openvino as ov

    core = ov.Core()
    options = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(_exported(layer, maps)), "CPU", options)
    request, given = compiled.create_infer_request(), maps.contiguous().numpy()
    return lambda: torch.from_numpy(request.infer([given], share_inputs=True)[0])


WAYS: Mapping[str, Callable[[Layer, Tensor], Run]] = {
    "as it is": as_it_is,
    "directly": directly,
    "channels first": channels_first,
    "weights channels last": all_channels_last,
    "1 x 1 as matrix products": matrix_products,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def _exported(layer: Layer, maps: Tensor) -> bytes:
    file = BytesIO()
    torch.onnx.export(layer, (maps.contiguous(),), file, dynamo=False)  # type: ignore[arg-type]
    return file.getvalue()


def compare(layers: list[tuple[Layer, Tensor]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each layer by each way that is installed.

    Raises:
        RuntimeError: a way gives other numbers.
    """
    ways = {n: way for n, way in WAYS.items() if n not in LIBRARIES or find_spec(n)}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for layer, maps in layers:
        jobs = {name: way(layer, maps) for name, way in ways.items()}
        expected = jobs["as it is"]()
        for name, run in jobs.items():
            difference = float((run() - expected).abs().max() / expected.abs().max())
            if difference > DIFFERENCE:
                raise RuntimeError(f"{name}, {layer}: {difference:.1e} from the layer's numbers")
        for name, seconds in alternate(dict(_repeated(jobs)), rounds, time.process_time).items():
            found[name].append(statistics.median(seconds))
    return found


def _repeated(jobs: Mapping[str, Run]) -> Iterator[tuple[str, Callable[[], None]]]:
    def repeat(run: Run) -> None:
        for _ in range(3):
            run()

    for name, run in jobs.items():
        yield name, partial(repeat, run)


def main() -> None:
    """Measure, print a line for each network and way, and write `RESULTS`."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--size", type=int, default=256, help="edge of the picture, in pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in LIBRARIES:
        if not find_spec(name):
            print(f"{name} is left out: pip install {name}")
    found: dict[str, Any] = {"size": options.size}
    with torch.inference_mode():
        for name in options.networks:
            layers = layers_of(NETWORKS[name](), options.size)
            seconds = compare(layers, options.rounds)
            whole = {way: sum(each) for way, each in seconds.items()}
            found[name] = {way: round(one / whole["as it is"], 3) for way, one in whole.items()}
            print(f"{name}, {len(layers)} convolutions: {found[name]}", flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(str(error))
