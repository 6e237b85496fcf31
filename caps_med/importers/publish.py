"""Write imported models into the model repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    write_bundle,
)
from caps_med.bundles.metadata import ClassificationSpec, checked_statement
from caps_med.bundles.tasks import Task
from caps_med.errors import InvalidBundle, InvalidParameter
from caps_med.images import Normalization
from caps_med.importers.imported import Imported
from caps_med.networks import CapsuleNetwork, ClassificationNetwork
from caps_med.preprocessing import PicturePreprocessing
from caps_med.wording import counted

#: What each network does, and whose code its weights come from.
_SOURCES: Mapping[str, tuple[Task, str]] = {
    "SegCaps": ("segmentation", "LaLonde & Bagci 2018"),
    "CapsPix2Pix": ("synthesis", "Bass et al. 2019"),
    "CapsNet": ("classification", "Sabour et al. 2017, CapsNet-Keras"),
}
#: How the published SegCaps code scales a CT, in Hounsfield units.
HOUNSFIELD = Normalization(window=(-1024, 3072))
#: How CapsNet-Keras scales pictures of 8 bits.
EIGHT_BITS = Normalization(window=(0, 255))


def publish(
    imported: Imported,
    repository: ModelRepository,
    name: str,
    command: str,
    labels: Sequence[str] = ("background", "foreground"),
    normalization: Normalization = HOUNSFIELD,
    license: str | None = None,
    input_description: str | None = None,
) -> Bundle:
    """Write an imported model as the next version of `name`.

    Args:
        imported: from `read_segcaps`, `read_capspix2pix` or `read_capsnet`.
        repository: the target.
        name: of the model.
        command: the import command as typed, for the record.
        labels: names of the classes, including a segmentation's background.
        normalization: how images were scaled in its training; unused by a generator.
        license: of the weights, which is not stored in the file either.
        input_description: the images that the model takes, in words.

    Raises:
        InvalidParameter: the name, the licence or the description is invalid, there are more or
            fewer names than classes, or a class has no name or the same name as another.
    """
    statement = checked_statement(license, input_description)
    task, paper = _SOURCES[imported.name]
    network = imported.network
    if isinstance(network, ClassificationNetwork) and len(labels) != network.out_channels:
        raise InvalidParameter(
            f"{counted(len(labels), 'name')} for {network.out_channels} classes: give one name for "
            "each class"
        )
    if len(set(labels)) < len(labels) or not all(labels):
        raise InvalidParameter(
            f"names of the classes, {', '.join(labels)}: give each class a name of its own"
        )
    recipe = {
        "file": imported.file,
        "sha256": imported.sha256,
        "unused tensors": {key: list(shape) for key, shape in imported.unused.items()},
        "warnings": list(imported.warnings),
    }
    card = ModelCard(
        task=task,
        network=NetworkSpec(name=imported.name, arguments=dict(imported.arguments)),
        labels=dict(enumerate(labels)),
        normalization=normalization,
        classification=_pictures(network, normalization),
        description=f"{imported.name} ({paper}) imported from {imported.file}",
        **statement.model_dump(),
        provenance=WeightsProvenance(
            command=command, data=f"not stated: trained elsewhere ({paper}'s code)", recipe=recipe
        ),
    )
    return write_bundle(repository, name, imported.network, card)


def _pictures(network: CapsuleNetwork, normalization: Normalization) -> ClassificationSpec | None:
    if not isinstance(network, ClassificationNetwork):
        return None
    rows, columns = network.image_size
    pictures = PicturePreprocessing(
        size=(rows, columns), channels=network.in_channels, normalization=normalization
    )
    return ClassificationSpec(pictures=pictures)


def import_bundle(folder: Path | str, repository: ModelRepository, name: str) -> Bundle:
    """Copy an exported bundle folder as the next version of `name`, with identical weights.

    Its configs are not evaluated: the network comes from the closed registry, the weights from
    the safetensors file, whose checksum is verified.

    Raises:
        InvalidBundle: not a bundle of caps_med, or an inconsistent one.
        InvalidParameter: the name is invalid.
    """
    repository.check_name(name)
    folder = Path(folder)
    if not (folder / "configs" / "metadata.json").is_file():
        raise InvalidBundle(
            f"{folder} is not a bundle folder, which has configs/metadata.json: write one with "
            "`caps-med export --format bundle`"
        )
    given = Bundle(folder.name, 1, folder)
    network = given.load_network()
    half = given.metadata.weights.dtype == "float16"
    return write_bundle(repository, name, network, given.card, half)
