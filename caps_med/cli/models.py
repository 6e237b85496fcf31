"""``caps-med models``: list, show, verify; promote, remove, rename, copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

import caps_med
from caps_med.cli.options import AsJson, Models, console, errors, say, say_json
from caps_med.cli.tables import print_table
from caps_med.wording import counted, listed

if TYPE_CHECKING:
    from caps_med.inference import Model
    from caps_med.inference.parameters import LayerParameters

models_app = typer.Typer(no_args_is_help=True, help="List, verify and manage models.")

Name: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="Name of the model, as `caps-med models list` shows it, or of one version: NAME@3."
    ),
]
NewName: TypeAlias = Annotated[str, typer.Argument(help="New name; no model may have it yet.")]
#: Most labels and scores of a model that the list shows; `show` has all.
_LABELS, _SCORES = 4, 1


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(models_app, name="models")


@models_app.command("list")
def list_models(as_json: AsJson = False, models: Models = None) -> None:
    """List all models, each in the version that its name refers to.

    If there are many, only the first labels and scores are listed; `caps-med models show` and
    --json give all of them.

    Example: caps-med models list
    """
    from caps_med.bundles import ModelRepository

    bundles = ModelRepository(models).list()
    if models is not None and not models.is_dir():
        say(f"note: there is no folder {models}: only the built-in models are listed", errors)
    if as_json:
        say_json([bundle.as_dict() for bundle in bundles])
        return
    rows = [
        (
            bundle.reference,
            bundle.card.task,
            listed([*bundle.card.labels.values()], _LABELS),
            listed([f"{n} {v:g}" for n, v in bundle.card.shown_scores], _SCORES),
        )
        for bundle in bundles
    ]
    print_table(console, ("model", "task", "labels", "scores"), rows)


@models_app.command("show")
def show_model(
    name: Name,
    as_json: AsJson = False,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers",
            help="Also list all layers that have weights, with their numbers of parameters.",
        ),
    ] = False,
    models: Models = None,
) -> None:
    """Show the input, labels, scores, origin and capsule layers of a model.

    Examples:
      caps-med models show brain-t1-tissue
      caps-med models show digits --layers
    """
    from caps_med.inference.passes import device_of
    from caps_med.routing import active_backend

    loaded = caps_med.load_model(name, models)
    routing = active_backend(device_of(loaded.network))
    if as_json:
        say_json(_shown(loaded, routing))
        return
    card = loaded.bundle.card
    say(f"{loaded.bundle.reference}: {card.description or card.task}")
    say(f"takes: {card.input_description or 'not stated'}")
    say(f"labels: {', '.join(f'{i} {label}' for i, label in card.labels.items())}")
    if card.task == "segmentation":
        say(f"channels: {', '.join(card.shown_channels)}")
    for score, value in card.shown_scores:
        say(f"{score}: {value:g}")
    if card.fitted_temperature is not None:
        say(f"temperature: {card.fitted_temperature:g}, fitted on held-out images")
    say(f"preprocessing: {loaded.provenance.preprocessing}")
    if card.tta_views > 1:
        say(f"test-time augmentation: {card.tta_views} views, with --tta")
    if card.refine is not None:
        kept = ", largest components" if card.largest_components else ""
        say(f"refined by: {card.refine}{kept}, unless --refine none")
    say(f"routing here: {routing}")
    say(f"trained by: {card.provenance.command} (seed {card.provenance.seed})")
    say(f"data: {card.provenance.data}")
    say(f"licence: {card.license}; sha256 {loaded.provenance.weights_sha256}")
    rows = [(one.name, str(one.types), str(one.atoms), str(one.stride)) for one in loaded.layers]
    numbers = ("capsule types", "atoms", "stride")
    print_table(console, ("layer", *numbers), rows, right=numbers)
    if layers:
        _print_parameters(loaded)


def _parameters(model: Model) -> list[LayerParameters]:
    from caps_med.inference.parameters import parameters_of

    return parameters_of(model.network)


def _print_parameters(model: Model) -> None:
    """Print the layers with weights, like the summary of a Keras model."""
    found = _parameters(model)
    rows = [(one.name, one.type, ", ".join(one.shapes), f"{one.parameters:,}") for one in found]
    total = sum(one.parameters for one in found)
    rows.append(("all", "", "", f"{total:,}"))
    print_table(
        console, ("weights of", "type", "shapes", "parameters"), rows, right=("parameters",)
    )


def _shown(model: Model, routing: str) -> dict[str, Any]:
    return {
        **model.bundle.as_dict(),
        "preprocessing": model.provenance.preprocessing,
        "routing": routing,
        "layers": [dict(info.__dict__) for info in model.layers],
        "parameters": [dict(one.__dict__) for one in _parameters(model)],
    }


@models_app.command("promote")
def promote_model(
    version: Annotated[
        str, typer.Argument(metavar="NAME@VERSION", help="Model and version, such as my-organ@3.")
    ],
    models: Models = None,
) -> None:
    """Make a model's name refer to this version: a candidate, or an earlier version.

    Newer versions remain available as NAME@VERSION.

    Example: caps-med models promote my-organ@3
    """
    from caps_med.bundles import ModelRepository

    bundle = ModelRepository(models).promote(version)
    say(f"{bundle.name} is now {bundle.reference}")


@models_app.command("verify")
def verify_model(name: Name, as_json: AsJson = False, models: Models = None) -> None:
    """Verify the checksum of a model, and that its weights match its network.

    Example: caps-med models verify brain-t1-tissue
    """
    loaded = caps_med.load_model(name, models)
    found = loaded.bundle
    if as_json:
        sha256 = loaded.provenance.weights_sha256
        say_json({"name": found.name, "version": found.version, "weights_sha256": sha256})
    else:
        say(f"{found.reference}: valid, {loaded.provenance.weights_sha256}")


@models_app.command("remove")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    models: Models = None,
) -> None:
    """Delete a model with all its versions, or a single version.

    Example: caps-med models remove my-organ@1
    """
    from caps_med.bundles import ModelRepository
    from caps_med.bundles.manage import removable, remove_versions

    repository = ModelRepository(models)
    versions = removable(repository, name)
    names = ", ".join(bundle.reference for bundle in versions)
    if not yes:
        typer.confirm(f"Delete {names} from {repository.root}?", abort=True)
    remove_versions(versions)
    say(f"removed {names}")


@models_app.command("rename")
def rename(name: Name, new_name: NewName, models: Models = None) -> None:
    """Rename a model with all its versions.

    Example: caps-med models rename my-organ liver
    """
    from caps_med.bundles import ModelRepository
    from caps_med.bundles.manage import rename_model

    repository = ModelRepository(models)
    renamed = rename_model(repository, name, new_name)
    say(f"{name} -> {new_name}, {counted(len(renamed), 'version')}")


@models_app.command("copy")
def copy(name: Name, new_name: NewName, models: Models = None) -> None:
    """Copy the version that a model's name refers to, or NAME@VERSION, to a new model.

    The copy is version 1 of the new model.

    Example: caps-med models copy brain-t1-tissue@4 my-tissue
    """
    from caps_med.bundles import ModelRepository
    from caps_med.bundles.manage import copy_model

    repository = ModelRepository(models)
    source = repository.find(name)
    copied = copy_model(repository, source.reference, new_name)
    say(f"{source.reference} -> {copied.reference}")
