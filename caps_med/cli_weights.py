"""The subcommands that bring weights in and take models out: `caps-med import` and `export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from caps_med.bundles import Bundle, ModelRepository
    from caps_med.importers import Imported

import_app = typer.Typer(
    no_args_is_help=True,
    help="Bring trained weights along: of the published projects, or a bundle.",
)
console, errors = Console(), Console(stderr=True)

Name = Annotated[str, typer.Option("--name", help="Name of the model to write.")]
Models = Annotated[
    Path | None, typer.Option(envvar="CAPS_MED_MODELS", help="Model repository to write to.")
]
Foreground = Annotated[str, typer.Option(help="What the one class is: lung, axon, ...")]
License = Annotated[str, typer.Option(help="Licence of the weights.")]


class Variant(StrEnum):
    """The routing of a published SegCaps."""

    r3 = "r3"
    r1 = "r1"


class Noise(StrEnum):
    """Where the noise enters a published CapsPix2Pix."""

    input = "input"
    broadcast = "broadcast"
    broadcast_conv = "broadcast_conv"
    broadcast_latent = "broadcast_latent"
    dropout = "dropout"


class Output(StrEnum):
    """The last nonlinearity of a published CapsPix2Pix."""

    sigmoid = "sigmoid"
    tanh = "tanh"


class Format(StrEnum):
    """What a model can be exported as."""

    bundle = "bundle"
    onnx = "onnx"
    torch = "torch"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(import_app, name="import")
    app.command("export")(export)


@import_app.command("segcaps")
def import_segcaps(
    file: Annotated[Path, typer.Argument(help="Keras weights, .h5 or .hdf5.")],
    name: Name,
    variant: Annotated[Variant, typer.Option(help="The file cannot say.")] = Variant.r3,
    window: Annotated[
        tuple[float, float],
        typer.Option(help="Intensities that were scaled to 0 and 1; upstream's Hounsfield units."),
    ] = (-1024, 3072),
    percentiles: Annotated[
        bool, typer.Option("--percentiles", help="Scale each image by its percentiles instead.")
    ] = False,
    foreground: Foreground = "foreground",
    license: License = "not stated",
    models: Models = None,
) -> None:
    """The published SegCaps (LaLonde & Bagci 2018), R3 or R1, from its Keras weights.

    Example: caps-med import segcaps lung.hdf5 --name lung-ct --foreground lung
    """
    from caps_med.errors import InvalidParameter
    from caps_med.images import Normalization
    from caps_med.importers import publish, read_segcaps

    repository = _repository(models, name)
    if not (percentiles or window[0] < window[1]):
        raise InvalidParameter(f"--window {window[0]:g} {window[1]:g}: the second must be larger")
    scale = Normalization() if percentiles else Normalization(window=window)
    imported = read_segcaps(file, variant.value)
    command = f"caps-med import segcaps {file.name} --name {name} --variant {variant.value}"
    bundle = publish(imported, repository, name, command, foreground, scale, license)
    _report(imported, bundle)


@import_app.command("capspix2pix")
def import_capspix2pix(
    file: Annotated[Path, typer.Argument(help="Generator's state dict: .pt, .pth, .safetensors.")],
    name: Name,
    noise_source: Annotated[
        Noise | None, typer.Option(help="The file's layers tell; checked if given.")
    ] = None,
    noise_size: Annotated[
        int | None, typer.Option(help="Length of z; only 'broadcast' needs it said.", min=1)
    ] = None,
    image_size: Annotated[
        str | None, typer.Option(help="HEIGHTxWIDTH of 'input', if it is not square.")
    ] = None,
    output: Annotated[Output, typer.Option(help="The file cannot say.")] = Output.sigmoid,
    foreground: Foreground = "foreground",
    license: License = "not stated",
    models: Models = None,
) -> None:
    """The published CapsPix2Pix generator (Bass et al. 2019) from its PyTorch state dict.

    Example: caps-med import capspix2pix ModelG_best.pt --name axons --foreground axon
    """
    from caps_med.importers import publish, read_capspix2pix

    repository = _repository(models, name)
    imported = read_capspix2pix(
        file,
        noise_source.value if noise_source else None,
        noise_size,
        _size(image_size) if image_size else None,
        output.value,
    )
    told = f" --noise-size {noise_size}" if noise_size else ""
    command = f"caps-med import capspix2pix {file.name} --name {name}{told}"
    bundle = publish(imported, repository, name, command, foreground, license=license)
    _report(imported, bundle)


@import_app.command("bundle")
def import_bundle(
    folder: Annotated[Path, typer.Argument(help="Folder that 'caps-med export' wrote.")],
    name: Name,
    models: Models = None,
) -> None:
    """A model of caps_med from an exported bundle folder, its weights bit by bit.

    Example: caps-med import bundle exported/lung-ct --name lung-ct
    """
    from caps_med import importers

    bundle = importers.import_bundle(folder, _repository(models, name), name)
    console.print(f"{folder} -> {bundle.reference}, {bundle.metadata.weights.sha256}")


def export(
    model: Annotated[str, typer.Option("--model", help="Model, or one version of it: name@3.")],
    format: Annotated[Format, typer.Option(help="MONAI bundle, ONNX or torch.export program.")],
    out: Annotated[Path, typer.Option("--out", help="Folder (bundle) or file to write.")],
    models: Annotated[Path | None, typer.Option(envvar="CAPS_MED_MODELS")] = None,
) -> None:
    """Write a model for other tools: MONAI, ONNX Runtime, torch.export.

    Example: caps-med export --model brain-t1-tissue --format onnx --out tissue.onnx
    """
    from caps_med.bundles import ModelRepository
    from caps_med.bundles.export import export_model

    bundle = ModelRepository(models).find(model)
    with console.status(f"exporting {bundle.reference}"):
        export_model(bundle, format.value, out)
    console.print(f"{bundle.reference} -> {out}")


def _repository(models: Path | None, name: str) -> ModelRepository:
    """The repository, once the name is known to be one that can be written."""
    from caps_med.bundles import ModelRepository

    repository = ModelRepository(models)
    repository.check_name(name)
    return repository


def _size(text: str) -> tuple[int, int]:
    from caps_med.errors import InvalidParameter

    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise InvalidParameter(f"--image-size {text!r}: give HEIGHTxWIDTH, like 256x320")
    return int(height), int(width)


def _report(imported: Imported, bundle: Bundle) -> None:
    count = sum(parameter.numel() for parameter in imported.network.parameters())
    console.print(f"{imported.file} -> {bundle.reference}: {imported.name}, {count:,} parameters")
    if imported.unused:
        console.print(f"{len(imported.unused)} tensors that the forward pass never uses:")
        for name, shape in imported.unused.items():
            console.print(f"  {name} {list(shape)}", highlight=False, markup=False)
    for warning in imported.warnings:
        errors.print(f"note: {warning}")
