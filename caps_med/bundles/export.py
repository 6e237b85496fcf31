"""Models for other tools: MONAI bundle folders, ONNX and `torch.export` programs.

`torch.export` rather than TorchScript: PyTorch 2.13 deprecates `torch.jit.script` and
`torch.jit.trace` in favour of it, and a `.pt2` program checks the sizes it is given.
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from caps_med.bundles.bundle import CANDIDATE, Bundle
from caps_med.bundles.drafts import copy_writable
from caps_med.bundles.onnx_sizes import Mode, take_any_size
from caps_med.errors import InvalidParameter
from caps_med.extras import require_extra
from caps_med.networks import (
    CapsuleNetwork,
    ClassificationNetwork,
    SegmentationNetwork,
    SynthesisNetwork,
)

Format = Literal["bundle", "onnx", "torch"]
Inputs = tuple[Tensor, ...]

#: The model card, in the metadata of an ONNX file and the extra files of a `.pt2` archive.
CARD = "caps_med.json"
#: In multiples of the divisor; any other sizes would trace the same program.
_TRACED_SIZE = (2, 3, 2)
_AXES = {2: ("height", "width"), 3: ("x", "y", "z")}


def export_model(bundle: Bundle, format: Format, out: Path | str) -> Path:
    """Write a model for another tool.

    - ``"bundle"``: a MONAI bundle folder, with `models/model.pt` beside the safetensors.
    - ``"onnx"``: one file; any batch size, height and width: padding and cropping are inside.
    - ``"torch"``: a `torch.export` program, `.pt2`; any batch size, heights and widths in multiples
      of 8 from 16 (of 16 from 32 for the U-Net).

    A CapsPix2Pix with dense noise and a classification network keep their fixed size; Pix2Pix and
    SPADE take 256 x 256. Nothing is left behind on failure.

    Args:
        bundle: the model.
        format: one of the above.
        out: the file or folder to write, which must not exist.

    Returns:
        `out`.

    Raises:
        InvalidParameter: an unknown format, or `out` exists.
        InvalidBundle: the model is inconsistent.
        MissingExtra: the packages for ONNX are not installed.
    """
    writers: dict[str, Callable[[Bundle, Path], None]] = {
        "bundle": _write_bundle,
        "onnx": _write_onnx,
        "torch": _write_torch,
    }
    if format not in writers:
        raise InvalidParameter(f"format={format!r}: must be one of {get_args(Format)}")
    out = Path(out)
    if out.exists():
        raise InvalidParameter(f"--out {out} exists: choose another name, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=out.parent) as draft:
        path = Path(draft) / out.name
        writers[format](bundle, path)
        path.rename(out)
    return out


def export_program(network: CapsuleNetwork, inputs: Inputs | None = None) -> Any:  # noqa: ANN401
    """The network as a `torch.export.ExportedProgram` for any batch, height and width.

    Args:
        network: in eval mode.
        inputs: the inputs for tracing, with a batch size of at least 2; None uses zeros.
    """
    inputs = example_inputs(network) if inputs is None else inputs
    with _without_cache():
        return torch.export.export(
            network, inputs, dynamic_shapes=tuple(_dynamic(network).values())
        )


def example_inputs(network: CapsuleNetwork) -> Inputs:
    """A batch of two zero inputs of `network`."""
    spatial = _fixed_size(network) or tuple(
        network.divisor * edge for edge in _TRACED_SIZE[: network.spatial_dims]
    )
    if isinstance(network, SynthesisNetwork):
        label = torch.zeros(2, network.label_channels, *spatial)
        return label, torch.zeros(2, network.noise_size)
    if isinstance(network, (SegmentationNetwork, ClassificationNetwork)):
        return (torch.zeros(2, network.in_channels, *spatial),)
    raise InvalidParameter(
        f"network={type(network).__name__}: networks of this kind cannot be exported"
    )


def _dynamic(network: CapsuleNetwork) -> dict[str, dict[int, Any]]:
    """Input name -> its dynamic axes."""
    batch = torch.export.Dim("batch")
    maps: dict[int, Any] = {0: batch}
    if _fixed_size(network) is None:
        names = _AXES[network.spatial_dims]
        dims = (torch.export.Dim(f"{name}_over_{network.divisor}", min=2) for name in names)
        maps |= {axis: network.divisor * dim for axis, dim in enumerate(dims, start=2)}
    if isinstance(network, SynthesisNetwork):
        return {"label": maps, "z": {0: batch}}
    return {"image": maps}


def _fixed_size(network: CapsuleNetwork) -> tuple[int, ...] | None:
    if isinstance(network, ClassificationNetwork):
        return network.image_size
    return network.traced_size if isinstance(network, SynthesisNetwork) else None


def _write_torch(bundle: Bundle, path: Path) -> None:
    program = export_program(bundle.load_network())
    with path.open("wb") as file:  # PyTorch warns of a path that does not end in .pt2
        torch.export.save(program, file, extra_files={CARD: _card(bundle)})


def _write_onnx(bundle: Bundle, path: Path) -> None:
    require_extra("export", "export to ONNX")  # torch.onnx names another package
    network = bundle.load_network()
    with _quiet(), _without_cache():
        program = torch.onnx.export(
            export_program(network),
            input_names=list(_dynamic(network)),
            output_names=["image" if isinstance(network, SynthesisNetwork) else "lengths"],
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx gave no program")
    program.model.metadata_props[CARD] = _card(bundle)
    model = program.model_proto
    if _fixed_size(network) is None:
        mode: Mode = "edge" if isinstance(network, SegmentationNetwork) else "constant"
        model = take_any_size(
            model, network.divisor, _AXES[network.spatial_dims], mode,
            twice=network.normalizes_coarsest,
        )  # fmt: skip
    path.write_bytes(model.SerializeToString())


@contextmanager
def _without_cache() -> Iterator[None]:
    """Disable PyTorch's cache of operations' output shapes: with dynamic sizes, a lookup takes
    longer than the computation, and an export twice as long.
    """
    import torch._dynamo.config as config  # imports the compiler

    with config.patch(fake_tensor_cache_enabled=False):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's messages about its own internals, and about torchvision, which is not
    used.
    """
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _write_bundle(bundle: Bundle, path: Path) -> None:
    network = bundle.load_network()
    copy_writable(bundle.path, path)
    (path / CANDIDATE).unlink(missing_ok=True)  # of its own repository
    torch.save(network.state_dict(), path / "models" / "model.pt")


def _card(bundle: Bundle) -> str:
    return json.dumps(bundle.as_dict())
