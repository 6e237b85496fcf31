"""Classified images as training takes them: decoded once, kept as bytes.

Every image is read once, preprocessed as at inference, and written into one array of bytes, which
the system keeps in memory and all processes share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from caps_med.bundles.metadata import ClassificationSpec
from caps_med.disk import reserve
from caps_med.errors import CapsMedError, InvalidInput
from caps_med.preprocessing import PicturePreprocessing, unit_pictures
from caps_med.wording import counted
from training.atomic import refilled, write_text
from training.data.cases import given_folds
from training.data.classified.dataset import ClassifiedDataset
from training.data.classified.images import ClassifiedImage, groups_with_copies
from training.data.classified.split import folds_of, hold_out_share, strata_of
from training.data.samples import check_fold
from training.progress import PREPARING, tracked

if TYPE_CHECKING:
    from torch import Tensor

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Pictures:
    """Some of the images, with their classes.

    Attributes:
        pictures: ``[N, C, H, W]`` of all images, 255 for 1.
        targets: ``[N, J]`` of all images, 1 for the classes of an image.
        indices: of those that are meant.
    """

    pictures: Bytes
    targets: Bytes
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, positions: Sequence[int]) -> tuple[Bytes, Bytes]:
        """Pictures ``[B, C, H, W]`` and targets ``[B, J]`` of some positions among these."""
        chosen = self.indices[positions]
        return np.asarray(self.pictures[chosen]), self.targets[chosen]

    @property
    def chosen_targets(self) -> Bytes:
        """Targets of all of these, ``[len(self), J]``."""
        return self.targets[self.indices]


@dataclass(frozen=True, eq=False)
class ClassifiedSource:
    """Images of one size with their classes, some of them held out.

    Attributes:
        pictures, targets: see `Pictures`.
        names, groups: of each image.
        held_out_indices: of the images for validation.
        classes: names of the classes.
        exclusive: whether each image belongs to exactly one.
        preparation: how an image becomes a picture.
        given_folds: the groups held out in each fold of a cross-validation that the data give, or
            of an image without a group its name.
    """

    name: str
    pictures: Bytes
    targets: Bytes
    names: Sequence[str]
    groups: Sequence[str]
    held_out_indices: NDArray[np.int64]
    classes: tuple[str, ...]
    exclusive: bool
    preparation: PicturePreprocessing
    description: str
    seed: int = 0
    given_folds: tuple[frozenset[str], ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """For other processes, which open the file of the pictures: they may be many gigabytes."""
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        if isinstance(self.pictures, np.memmap):
            state["pictures"] = Path(str(self.pictures.filename))
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """See `__getstate__`."""
        vars(self).update(state)
        if isinstance(file := state["pictures"], Path):
            vars(self)["pictures"] = np.load(file, mmap_mode="r")

    @cached_property
    def training(self) -> Pictures:
        """The images to train on."""
        mask = np.ones(len(self.pictures), bool)
        mask[self.held_out_indices] = False
        return Pictures(self.pictures, self.targets, np.flatnonzero(mask))

    @cached_property
    def validation(self) -> Pictures:
        """The images held out."""
        return Pictures(self.pictures, self.targets, self.held_out_indices)

    @property
    def held_out(self) -> frozenset[str]:
        """Names of the images held out."""
        return frozenset(self.names[i] for i in self.held_out_indices)

    @property
    def labels(self) -> Mapping[int, str]:
        """Class index -> name."""
        return dict(enumerate(self.classes))

    @property
    def summary(self) -> str:
        """What there is to learn from, in one line."""
        return (
            f"{counted(len(self.training), 'image')} to train on, {len(self.validation)} held "
            f"out, classes {', '.join(self.classes)}"
        )

    def some_of_training(self, count: int) -> Iterator[Tensor]:
        """At most `count` training images ``[C, H, W]`` in [0, 1], evenly spaced."""
        import torch

        indices = self.training.indices
        for place in range(min(count, len(indices))):
            index = indices[place * len(indices) // min(count, len(indices))]
            yield unit_pictures(torch.from_numpy(np.array(self.pictures[index])))

    def training_name(self, index: int) -> str:
        """Name of a training image, for messages."""
        return self.names[int(self.training.indices[index])]

    def card_values(self) -> dict[str, Any]:
        """What a model card says about the data."""
        return {
            "labels": self.labels,
            "classification": ClassificationSpec(
                pictures=self.preparation, exclusive=self.exclusive
            ),
        }

    def holding_out(self, names: Collection[str]) -> Self:
        """The same images, divided otherwise; as they are if some lack, or a group would be split.

        Args:
            names: of the images to hold out.
        """
        indices = [i for i, name in enumerate(self.names) if name in names]
        held_out = {self.groups[i] for i in indices} - {""}
        learned = {self.groups[i] for i in set(range(len(self.names))).difference(indices)}
        if len(indices) < len(names) or held_out & learned:
            return self
        return replace(self, held_out_indices=np.array(indices, np.int64))

    def folds(self, count: int) -> list[Self]:
        """The parts of a cross-validation.

        They are those that the data give, if there are as many. Else each image is held out once.

        Raises:
            InvalidParameter: there are fewer images or patients than folds, or the data give a fold
                that holds out none, or all.
        """
        if len(self.given_folds) == count > 1:
            return [self._given(number) for number in range(count)]
        folds = folds_of(strata_of(self.targets), self.groups, count, self.seed)
        return [replace(self, held_out_indices=np.flatnonzero(folds == k)) for k in range(count)]

    def _given(self, number: int) -> Self:
        fold = self.given_folds[number]
        pairs = zip(self.groups, self.names, strict=True)
        held_out = np.array([(group or name) in fold for group, name in pairs])
        check_fold(number + 1, len(self.given_folds), int(held_out.sum()), len(held_out))
        return replace(self, held_out_indices=np.flatnonzero(held_out))


def load_classified(
    dataset: ClassifiedDataset,
    store: Path,
    preparation: PicturePreprocessing,
    validation: float,
    seed: int,
    *,
    keep_classes: bool = True,
) -> ClassifiedSource:
    """The images of a data set but for its test part.

    Args:
        store: folder of the prepared array; reused if it was made of the same files in the same
            way.
        validation: share of the images that is held out if the data set has no validation part.
        seed: of that choice.
        keep_classes: see `hold_out_share`.

    Raises:
        InvalidInput: there are no images, or one cannot be read.
    """
    images = dataset.of("train", "validation", None)
    if not images:
        raise InvalidInput(f"{dataset.root}: no images outside the test part")
    pictures, groups = _prepared(dataset, images, store, preparation)
    targets = dataset.targets(images)
    published = np.array([image.part == "validation" for image in images])
    held_out = (
        published
        if published.any()
        else hold_out_share(strata_of(targets), groups, validation, seed, keep_classes=keep_classes)
    )
    if held_out.all() or not held_out.any():
        raise InvalidInput(f"{dataset.root}: too few images to hold some out; add images")
    return ClassifiedSource(
        name=dataset.name,
        pictures=pictures,
        targets=targets,
        names=[image.name for image in images],
        groups=groups,
        held_out_indices=np.flatnonzero(held_out),
        classes=dataset.classes,
        exclusive=dataset.exclusive,
        preparation=preparation,
        description=f"{len(images)} images of {dataset.name} in {len(dataset.classes)} classes",
        seed=seed,
        given_folds=given_folds(
            (group or image.name, image.folds) for image, group in zip(images, groups, strict=True)
        ),
    )


def _digest(images: Sequence[ClassifiedImage]) -> str:
    """A hash of which images there are, in which order."""
    listed = "\n".join(f"{i.image.path} {i.image.index} {i.image}" for i in images)
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()


def _prepared(
    dataset: ClassifiedDataset,
    images: Sequence[ClassifiedImage],
    store: Path,
    preparation: PicturePreprocessing,
) -> tuple[Bytes, list[str]]:
    """The array of all pictures and their groups, with copies where they were prepared with them.

    The manifest is written last and so marks them complete.
    """
    manifest, file = store / "manifest.json", store / "pictures.npy"
    made_of = {
        "preparation": preparation.model_dump(mode="json"),
        "files": dataset.fingerprint(),
        "images": _digest(images),
    }
    known = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else {}
    groups: list[str] = known.pop("groups", [image.group for image in images])
    if known != made_of:
        groups = groups_with_copies(images)
        with refilled(store, manifest):
            shape = (len(images), preparation.channels, *preparation.size)
            pictures = np.lib.format.open_memmap(file, "w+", np.uint8, shape)
            reserve(file)
            for number, image in enumerate(tracked(images, PREPARING)):
                try:
                    pictures[number] = preparation(dataset.read(image))
                except CapsMedError as error:
                    raise InvalidInput(f"{image.image}: {error}") from error
            pictures.flush()
            write_text(manifest, json.dumps({**made_of, "groups": groups}))
    found: Bytes = np.load(file, mmap_mode="r")
    return found, groups
