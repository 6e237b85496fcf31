"""Write imported models into the model repository."""

from __future__ import annotations

from pathlib import Path

from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    write_bundle,
)
from caps_med.bundles.metadata import checked_statement
from caps_med.errors import InvalidBundle
from caps_med.images import Normalization
from caps_med.importers.imported import Imported

#: How the published SegCaps code scales a CT, in Hounsfield units.
HOUNSFIELD = Normalization(window=(-1024, 3072))


def publish(
    imported: Imported,
    repository: ModelRepository,
    name: str,
    command: str,
    foreground: str = "foreground",
    normalization: Normalization = HOUNSFIELD,
    license: str | None = None,
    input_description: str | None = None,
) -> Bundle:
    """Write an imported model as the next version of `name`.

    Args:
        imported: from `read_segcaps` or `read_capspix2pix`.
        repository: the target.
        name: of the model.
        command: the import as it was typed, for the record.
        foreground: name of the one class.
        normalization: how images were scaled in its training; unused by a generator.
        license: of the weights, which the file does not state either.
        input_description: the images that the model takes, in words.

    Raises:
        InvalidParameter: the name, the licence or the description is not valid.
    """
    statement = checked_statement(license, input_description)
    segments = imported.name == "SegCaps"
    recipe = {
        "file": imported.file,
        "sha256": imported.sha256,
        "unused tensors": {key: list(shape) for key, shape in imported.unused.items()},
        "warnings": list(imported.warnings),
    }
    paper = "LaLonde & Bagci 2018" if segments else "Bass et al. 2019"
    card = ModelCard(
        task="segmentation" if segments else "synthesis",
        network=NetworkSpec(name=imported.name, arguments=dict(imported.arguments)),
        labels={0: "background", 1: foreground},
        normalization=normalization,
        description=f"{imported.name} ({paper}) imported from {imported.file}",
        **statement.model_dump(),
        provenance=WeightsProvenance(
            command=command, data=f"not stated: trained elsewhere ({paper}'s code)", recipe=recipe
        ),
    )
    return write_bundle(repository, name, imported.network, card)


def import_bundle(folder: Path | str, repository: ModelRepository, name: str) -> Bundle:
    """Copy an exported bundle folder as the next version of `name`, its weights bit by bit.

    Its configs are not evaluated: the network comes from the closed registry, the weights from
    the safetensors file, whose checksum is verified.

    Raises:
        InvalidBundle: not a bundle of caps_med, or an inconsistent one.
        InvalidParameter: the name is not valid.
    """
    repository.check_name(name)
    folder = Path(folder)
    if not folder.is_dir():
        raise InvalidBundle(f"{folder} is not a bundle folder")
    given = Bundle(folder.name, 1, folder)
    network = given.load_network()
    half = given.metadata.weights.dtype == "float16"
    return write_bundle(repository, name, network, given.card, half)
