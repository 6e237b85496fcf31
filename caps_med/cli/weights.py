"""``caps-med import`` and ``caps-med export``: weights from and for other projects."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from caps_med.cli.options import (
    InputDescription,
    License,
    ModelName,
    Models,
    console,
    is_given,
    say,
    say_warnings,
)
from caps_med.errors import InvalidParameter
from caps_med.wording import counted

if TYPE_CHECKING:
    from caps_med.bundles import Bundle, ModelRepository
    from caps_med.importers import Imported

import_app = typer.Typer(
    no_args_is_help=True,
    help="Import trained weights of the published projects, or an exported bundle.",
)

Name: TypeAlias = Annotated[str, typer.Option(help="Name of the new model.")]
Foreground: TypeAlias = Annotated[
    str, typer.Option(help="Name of the foreground class, such as lung or axon.")
]

Variant: TypeAlias = Literal["r3", "r1"]
Noise: TypeAlias = Literal["input", "broadcast", "broadcast_conv", "broadcast_latent", "dropout"]
Output: TypeAlias = Literal["sigmoid", "tanh"]
Format: TypeAlias = Literal["bundle", "onnx", "torch"]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(import_app, name="import")
    app.command("export")(export)


@import_app.command("segcaps")
def import_segcaps(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Keras weights, .h5 or .hdf5.")],
    name: Name,
    variant: Annotated[
        Variant, typer.Option(help="Variant of SegCaps; the file does not say which.")
    ] = "r3",
    window: Annotated[
        tuple[float, float],
        typer.Option(
            help="Intensities, in Hounsfield units, that were scaled to 0 and 1 in training."
        ),
    ] = (-1024, 3072),
    percentiles: Annotated[
        bool,
        typer.Option(
            "--percentiles", help="Scale each image by its own percentiles instead of --window."
        ),
    ] = False,
    foreground: Foreground = "foreground",
    license: License = None,
    input_description: InputDescription = None,
    models: Models = None,
) -> None:
    """Import the published SegCaps (LaLonde & Bagci 2018), R3 or R1, from its Keras weights.

    Example: caps-med import segcaps lung.hdf5 --name lung-ct --foreground lung
    """
    from caps_med.images import Normalization
    from caps_med.importers import publish, read_segcaps

    repository = _repository(models, name)
    if not (percentiles or -math.inf < window[0] < window[1] < math.inf):
        raise InvalidParameter(
            f"--window {window[0]:g} {window[1]:g}: the second number must be larger than the "
            "first, and both finite"
        )
    scale = Normalization() if percentiles else Normalization(window=window)
    imported = read_segcaps(file, variant)
    bundle = publish(
        imported,
        repository,
        name,
        _typed(context),
        ("background", foreground),
        scale,
        license,
        input_description,
    )
    _report(imported, bundle)


@import_app.command("capspix2pix")
def import_capspix2pix(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="State dict of the generator: .pt, .pth or .safetensors.")
    ],
    name: Name,
    noise_source: Annotated[
        Noise | None,
        typer.Option(
            help="Where the noise enters; inferred from the file's layers, and checked if given."
        ),
    ] = None,
    noise_size: Annotated[
        int | None,
        typer.Option(help="Length of the noise vector z; only needed for 'broadcast'.", min=1),
    ] = None,
    image_size: Annotated[
        str | None,
        typer.Option(
            help="Image size as HEIGHTxWIDTH; only needed for 'input', and only if it is not "
            "square."
        ),
    ] = None,
    output: Annotated[
        Output, typer.Option(help="Activation function of the last layer.")
    ] = "sigmoid",
    foreground: Foreground = "foreground",
    license: License = None,
    input_description: InputDescription = None,
    models: Models = None,
) -> None:
    """Import the published CapsPix2Pix generator (Bass et al. 2019) from its state dict.

    Example: caps-med import capspix2pix ModelG_best.pt --name axons --foreground axon
    """
    from caps_med.importers import publish, read_capspix2pix

    repository = _repository(models, name)
    imported = read_capspix2pix(
        file,
        noise_source,
        noise_size,
        _size(image_size) if image_size else None,
        output,
    )
    bundle = publish(
        imported,
        repository,
        name,
        _typed(context),
        ("background", foreground),
        license=license,
        input_description=input_description,
    )
    _report(imported, bundle)


@import_app.command("capsnet")
def import_capsnet(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Keras weights, .h5 or .hdf5.")],
    name: Name,
    routings: Annotated[
        int,
        typer.Option(
            help="Number of routing iterations; the file does not store it.", min=1, max=20
        ),
    ] = 3,
    labels: Annotated[
        str, typer.Option(help="Names of the classes, in order, separated by commas.")
    ] = "0,1,2,3,4,5,6,7,8,9",
    license: License = None,
    input_description: InputDescription = None,
    models: Models = None,
) -> None:
    """Import a CapsNet (Sabour et al. 2017) from the weights of CapsNet-Keras.

    Example: caps-med import capsnet trained_model.h5 --name digits
    """
    from caps_med.importers import EIGHT_BITS, publish, read_capsnet

    repository = _repository(models, name)
    imported = read_capsnet(file, routings)
    names = [label.strip() for label in labels.split(",")]
    bundle = publish(
        imported, repository, name, _typed(context), names, EIGHT_BITS, license, input_description
    )
    _report(imported, bundle)


def _typed(context: typer.Context) -> str:
    """The command as typed, without the folders of this machine."""
    words = ["caps-med", "import", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        value = context.params.get(name)
        if name == "models" or not is_given(context, name):
            continue
        if parameter.param_type_name == "option":
            words.append(parameter.opts[0])
        if value is not True:  # of a switch
            values = value if isinstance(value, tuple) else (value,)
            words += [one.name if isinstance(one, Path) else f"{one}" for one in values]
    return shlex.join(words)


@import_app.command("bundle")
def import_bundle(
    folder: Annotated[Path, typer.Argument(help="Folder written by `caps-med export`.")],
    name: Name,
    models: Models = None,
) -> None:
    """Import an exported bundle folder; the weights stay exactly the same.

    Example: caps-med import bundle exported/lung-ct --name lung-ct
    """
    from caps_med import importers

    bundle = importers.import_bundle(folder, _repository(models, name), name)
    say(f"{folder} -> {bundle.reference}, {bundle.metadata.weights.sha256}")


def export(
    model: ModelName,
    format: Annotated[
        Format, typer.Option(help="MONAI bundle, ONNX model or torch.export program.")
    ],
    out: Annotated[Path, typer.Option(help="Output folder (bundle) or file (onnx, torch).")],
    models: Models = None,
) -> None:
    """Export a model for other tools: MONAI, ONNX Runtime, torch.export.

    Example: caps-med export --model brain-t1-tissue --format onnx --out tissue.onnx
    """
    from caps_med.bundles import ModelRepository
    from caps_med.bundles.export import export_model

    bundle = ModelRepository(models).find(model)
    with console.status(f"exporting {bundle.reference}"):
        export_model(bundle, format, out)
    say(f"{bundle.reference} -> {out}")


def _repository(models: Path | None, name: str) -> ModelRepository:
    """The repository, after checking the new model's name."""
    from caps_med.bundles import ModelRepository

    repository = ModelRepository(models)
    repository.check_name(name)
    return repository


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise InvalidParameter(f"--image-size {text!r}: must be HEIGHTxWIDTH, such as 256x320")
    return int(height), int(width)


def _report(imported: Imported, bundle: Bundle) -> None:
    count = sum(parameter.numel() for parameter in imported.network.parameters())
    say(f"{imported.file} -> {bundle.reference}: {imported.name}, {count:,} parameters")
    if imported.unused:
        unused = counted(len(imported.unused), "tensor")
        say(f"unused by the forward pass: {unused}")
        for name, shape in imported.unused.items():
            say(f"  {name} {list(shape)}")
    say_warnings(imported.warnings)
