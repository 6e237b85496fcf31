"""Random images as what a segmentation network is trained and validated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, get_args

import numpy as np
import torch

from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, Plane
from caps_med.wording import counted
from training.data.prepare import Preparation
from training.data.samples import Sample, Source, hold_out
from training.pictures.sheet import Thumbnail, case_sheet
from training.randomization.batches import RandomBatches
from training.randomization.config import Randomization
from training.randomization.data import LabelMapData
from training.randomization.generator import RandomImages
from training.randomization.label_maps import LabelMaps

#: Images that are drawn for validation of a held-out label map, by spatial dimensions.
DRAWN = {2: 12, 3: 2}
#: Largest edge of a slice that is drawn for validation.
LARGEST = 256
#: Images on the contact sheet.
SHOWN = 16


@dataclass(frozen=True)
class Drawing:
    """How random images become a network's input; all but the maps and the size.

    Attributes:
        randomization: ranges of the random values.
        preparation: geometry and normalization of the network's input.
        slice_mm: distance between the slices of volumes; None for pictures.
    """

    randomization: Randomization
    preparation: Preparation
    slice_mm: float | None

    def images(self, maps: LabelMaps, size: tuple[int, ...]) -> RandomImages:
        """A generator of images of `size`."""
        return RandomImages(
            maps, self.randomization, size,
            spacing=self.preparation.spacing_mm or 1.0,
            slice_mm=self.slice_mm,
            normalization=self.preparation.normalization,
            planes=self._planes(maps),
            neighbours=self.preparation.neighbours,
        )  # fmt: skip

    def _planes(self, maps: LabelMaps) -> tuple[float, float, float]:
        if maps.pictures:
            return 1.0, 0.0, 0.0
        other = self.randomization.other_planes / 2
        own = 1 - self.randomization.other_planes
        planes = get_args(Plane)
        first, second, third = (own if p == self.preparation.plane else other for p in planes)
        return first, second, third


class DrawnSamples(Sequence[Sample]):
    """Images drawn once, the same in every run: a few of each label map, one map after another."""

    def __init__(self, drawing: Drawing, maps: LabelMaps, size: tuple[int, ...], each: int) -> None:
        self.images, self.each = drawing.images(maps, size), each
        self.maps, self._kept = len(maps), dict[int, Sample]()

    def __len__(self) -> int:
        return self.maps * self.each

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - integers only
        if index not in self._kept:
            generator = torch.Generator().manual_seed(index)
            chosen = torch.tensor([index // self.each])
            with torch.autocast("cpu", enabled=False):  # whoever asks for them first
                image, label = self.images(generator, 1, chosen)
            self._kept[index] = {"image": image[0].numpy(), "label": label[0].numpy()}
        return self._kept[index]


@dataclass(frozen=True, kw_only=True)
class RandomSource(Source):
    """A `Source` whose training images are drawn by `batches`, and its validation images once.

    Attributes:
        maps: all label maps, on the CPU.
        names: of the label maps.
        drawing: how images are drawn from them.
    """

    maps: LabelMaps = field(repr=False)
    names: tuple[str, ...]
    drawing: Drawing

    @property
    def trained_on(self) -> list[int]:
        """Numbers of the label maps that are not held out; of a single one, that one."""
        if len(self.names) == 1:
            return [0]
        return [k for k, name in enumerate(self.names) if name not in self.held_out]

    @property
    def summary(self) -> str:
        """What there is to learn from, in one line."""
        held = len(self.names) - len(self.trained_on)
        return (
            f"random images of {counted(len(self.trained_on), 'label map')} to train on, {held} "
            f"held out, labels {', '.join(self.labels.values())}"
        )

    def training_name(self, index: int) -> str:
        """Name of a label map to train on, for messages."""
        return self.names[self.trained_on[index]]

    def batches(
        self, crop: int, batch: int, steps: int, seed: int, rank: int, device: torch.device
    ) -> RandomBatches:
        """Batches of `crop` pixels, drawn on `device`."""
        images = self.drawing.images(self.maps.to(device), (crop,) * self.spatial_dims)
        return RandomBatches(images, self.trained_on, steps, batch, seed, rank)

    def sheet(self, count: int = SHOWN, seed: int = 0) -> MedicalImage:
        """A picture of random training images, each with and without its labels, to look at."""
        size = self.samples[0]["image"].shape[1:]
        images = self.drawing.images(self.maps, size)
        batches = RandomBatches(images, self.trained_on, count, 1, seed)
        ids = np.array(list(self.labels))
        tiles = []
        for drawn in batches:
            image, label = (drawn[key][0, drawn[key].shape[1] // 2] for key in ("image", "label"))
            if self.spatial_dims == 3:
                image, label = image[len(image) // 2], label[len(label) // 2]
            pixels = np.repeat((image.numpy() * 255).round().astype(np.uint8)[..., None], 3, -1)
            name = self.training_name(int(drawn["index"][0]))
            tiles.append(Thumbnail(name, pixels, ids[label.numpy()]))
        return case_sheet(tiles, {})

    def folds(self, count: int) -> list[Self]:
        """See `Source.folds`.

        Raises:
            InvalidParameter: there are fewer label maps than folds.
        """
        if len(self.names) < count:
            raise InvalidParameter(
                f"folds={count}: at most {len(self.names)} are possible, one per label map"
            )
        return super().folds(count)


def load_random_source(
    data: LabelMapData, randomization: Randomization, preparation: Preparation, crop: int
) -> RandomSource:
    """The label maps as a `RandomSource`; every fifth is held out, the last of two to four.

    Args:
        data: has been checked.
        crop: edge of the volumes that are drawn for validation.

    Raises:
        InvalidInput: a label map contains nothing to segment.
        InvalidParameter: volumes in another plane than the axial one.
    """
    if preparation.spatial_dims == 3 and preparation.plane != "axial":
        raise InvalidParameter(
            f"preparation.plane={preparation.plane}: volumes that are drawn from label maps are "
            "axial; leave it out"
        )
    spacing, dims = data.spacing_mm, preparation.spatial_dims
    if spacing is not None:
        preparation = preparation.model_copy(
            update={"spacing_mm": preparation.spacing_mm or (min(spacing[1:]),) * 2}
        )
    wanted = [i for label in data.scheme.labels.values() for i in label.ids]
    stacks = [one for one in data.stacks if np.isin(one.labels, wanted).any()]
    maps = LabelMaps.from_arrays(
        [one.labels for one in stacks], [one.spacing or (1.0, 1.0, 1.0) for one in stacks],
        data.scheme,
    )  # fmt: skip
    names = tuple(one.name for one in stacks)
    slice_mm = preparation.slice_mm or (spacing[0] if spacing else None)
    drawing = Drawing(randomization, preparation, slice_mm if dims == 3 else None)
    size = (crop,) * 3 if dims == 3 else (_edge(maps, preparation),) * 2
    each = DRAWN[dims]
    groups = [name for name in names for _ in range(each)]
    if len(names) == 1:  # other images of the same label map
        groups = [names[0]] * (each // 2) + [f"{names[0]}, other images"] * (each - each // 2)
    return RandomSource(
        name=data.name,
        samples=DrawnSamples(drawing, maps, size, each),
        groups=groups,
        held_out=hold_out(groups),
        labels=data.scheme.names,
        plane=None if spacing is None else preparation.plane,
        spacing_mm=preparation.spacing_mm,
        slice_mm=slice_mm,
        resample_slices=preparation.slice_mm is not None,
        normalization=preparation.normalization,
        description=f"images of random contrast drawn from {len(names)} label maps of {data.name}",
        spatial_dims=dims,
        neighbours=preparation.neighbours,
        maps=maps,
        names=names,
        drawing=drawing,
    )


def _edge(maps: LabelMaps, preparation: Preparation) -> int:
    """A multiple of 16 that holds any label map's labels, at most `LARGEST`."""
    extent = float(((maps.head[:, 1] - maps.head[:, 0]) * maps.spacing)[:, 1:].max())
    pixels = extent / min(preparation.spacing_mm or (1.0,))
    return int(min(LARGEST, -(-pixels // 16) * 16 + 16))
