"""Recipes planned from the data and the machine, as nnU-Net's are from its fingerprint.

Isensee et al. 2021 derive patch size, batch size, spacing and normalization from the data; so is
it done here, with capsules' memory in place of theirs, and slices with neighbours between slices
and volumes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, get_args

import torch

from caps_med.errors import InvalidParameter
from caps_med.images import Normalization, Plane
from caps_med.images.label_codes import have_sides
from caps_med.memory import free_memory
from training.data import Dataset, Preparation, Source, load_source
from training.data.check.card import Channel, DataCard, Intensities
from training.engine.recipe import CropRecipe
from training.randomization import Randomization
from training.randomization.data import LabelMapData
from training.randomization.source import load_random_source
from training.tasks.segmentation import SegmentationRecipe

#: Slices, slices with neighbours as channels, whole volumes.
DIMS = ("2d", "2.5d", "3d")

#: Bytes of a training step per position of a crop, measured with SegCaps at 512 x 512, see
#: docs/results/performance.md; MONAI's U-Net stays below. In 3-D capsules have 1.5 times the votes.
BYTES_A_POSITION = {2: 6_000, 3: 9_000}
#: Share of it that a step takes if votes are recomputed; the same measurement.
RECOMPUTED = 0.55
#: Share of the memory that a step may take.
MEMORY_SHARE = 0.4
#: Largest crop edge and batch by kind of device, in 2-D and in 3-D.
LARGEST_CROP = {("cpu", 2): 128, ("cuda", 2): 256, ("cpu", 3): 32, ("cuda", 3): 64}
LARGEST_BATCH = {"cpu": 4, "cuda": 16}
#: Smallest crop edge that is planned, in 2-D and in 3-D; that of a generator in 2-D, whose
#: discriminator needs it, and of images that are drawn from label maps.
SMALLEST_CROP, LARGER_CROP = {2: 48, 3: 32}, 64
#: Largest crop edge of pictures for a generator.
SYNTHESIS_CROP = 64
#: Epochs and steps per epoch by kind of device, in 2-D and in 3-D; on a CPU 4 to 20 minutes.
LENGTH = {
    ("cpu", 2): (50, 50),
    ("cuda", 2): (60, 100),
    ("cpu", 3): (50, 25),
    ("cuda", 3): (60, 100),
}
#: Of a training that starts from the weights of a model, by kind of device, where it is shorter.
CONTINUED = {"cpu": {"epochs": 25, "steps": 25}}
#: Slices that are this many pixels apart are not used as neighbours.
THICK = 3.0
#: With a smaller share of labelled voxels, half of the crops are drawn around labels.
RARE = 0.1
#: Of images drawn from label maps: their normalization, and epochs and steps, of which there are
#: more, since no image is seen twice.
RANDOM_NORMALIZATION = Normalization(ranks=True)
RANDOM_LENGTH = {"cpu": (50, 100), "cuda": (60, 400)}
#: Below this intensity an image is a CT in Hounsfield units.
AIR = -500
#: Black and white of 8 bits.
BYTES = (0.0, 255.0)


def plan_for(
    dataset: Dataset | LabelMapData,
    device: torch.device,
    dims: str | None = None,
    plane: Plane = "axial",
) -> dict[str, Any]:
    """`plan` for a data set; a registered one is trained on as it is. Of label maps alone, see
    `plan_random`.

    Raises:
        InvalidParameter: other `dims` than are possible.
    """
    if isinstance(dataset, LabelMapData):
        return plan_random(dataset, device, dims)
    if not dataset.card:
        return _registered(dataset, dims)
    card, sides = dataset.card.in_plane(plane), _have_sides(dataset, dataset.labels)
    return plan(card, device, dims, sides=sides)


def plan_synthesis_for(
    dataset: Dataset, device: torch.device, dims: str | None = None, plane: Plane = "axial"
) -> dict[str, Any]:
    """`plan_synthesis` for a data set, as `plan_for`."""
    if not dataset.card:
        return _registered(dataset, dims)
    return plan_synthesis(dataset.card.in_plane(plane), device, dims)


def plane_of(overrides: Mapping[str, Any]) -> Plane:
    """The plane that recipe values ask for; one that does not exist is refused with the recipe."""
    asked = _preparation(overrides).get("plane")
    return next((plane for plane in get_args(Plane) if plane == asked), "axial")


def dims_of(overrides: Mapping[str, Any]) -> str | None:
    """The one of `DIMS` that recipe values ask for; None if they leave it open."""
    asked = _preparation(overrides)
    if asked.get("spatial_dims") == 3:
        return "3d"
    return "2.5d" if asked.get("neighbours") else None


def _preparation(overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of a preparation that recipe values give, as such or as an object."""
    asked = overrides.get("preparation")
    if isinstance(asked, Preparation):
        return asked.model_dump(exclude_unset=True)
    return asked if isinstance(asked, Mapping) else {}


def load_segmentation(
    dataset: Dataset | LabelMapData, store: Path, recipe: SegmentationRecipe
) -> Source:
    """The labelled samples of a data set, or images drawn from label maps, as the recipe says."""
    if isinstance(dataset, LabelMapData):
        return load_random_source(
            dataset, recipe.randomization or Randomization(),
            recipe.preparation or Preparation(normalization=RANDOM_NORMALIZATION), recipe.crop,
        )  # fmt: skip
    return load_samples(dataset, store, recipe)


def load_samples(dataset: Dataset, store: Path, recipe: CropRecipe) -> Source:
    """The labelled samples of a data set, prepared as the recipe says."""
    return load_source(dataset, store, recipe.preparation)


def _have_sides(data: Dataset | LabelMapData, names: Mapping[int, str]) -> bool:
    """Whether labels have a side of the body, by their names, by their codes or by their places."""
    return have_sides(names.values(), data.codes.values()) or bool(data.sides)


def _registered(dataset: Dataset, dims: str | None) -> dict[str, Any]:
    if dims not in (None, "2d"):
        raise InvalidParameter(
            f"--dims {dims}: {dataset.name} consists of single slices; leave --dims out, or give 2d"
        )
    return {}


def plan(
    card: DataCard, device: torch.device, dims: str | None = None, *, sides: bool = False
) -> dict[str, Any]:
    """Recipe values for segmentation.

    Args:
        card: of the data set, its sizes and spacings in the plane of the slices.
        device: on which is trained.
        dims: ``2d``, ``2.5d`` or ``3d``; None chooses: pictures and thick slices alone (2d), slices
            with a neighbour on each side (2.5d), or volumes (3d) that are small, on a GPU also
            large ones.
        sides: whether labels are told apart by their side of the body, so that no crop may be
            mirrored left to right.
    """
    dims = _checked(dims, card) or _dims(card, device)
    spatial = 3 if dims == "3d" else 2
    crop = _crop(card, device, spatial)
    shares = {0: 0.0, **{each.label: each.share for each in card.classes}}  # some label all
    epochs, steps = LENGTH[device.type, spatial]
    return {
        "preparation": Preparation(
            normalization=normalization(card),
            spacing_mm=_spacing(card),
            slice_mm=_between(card) if spatial == 3 else None,
            **taken_as(dims),
        ),
        "crop": crop,
        **_batch(crop, spatial, device),
        "epochs": epochs,
        "steps": steps,
        "class_weights": _class_weights(list(shares.values())),
        "foreground": 0.5 if 1 - shares[0] < RARE else 0.0,
        "augmentation": {
            "flip_rows": 0.5 if card.kind == "pictures" else 0.0,
            **({"flip_columns": 0.0} if sides else {}),
        },
    }


def plan_random(
    data: LabelMapData, device: torch.device, dims: str | None = None
) -> dict[str, Any]:
    """Recipe values for images that are drawn from label maps.

    Volumes are learned in slices unless `dims` says otherwise.

    Raises:
        InvalidParameter: other `dims` than are possible.
    """
    taken_as(dims or "2d")
    if data.spacing_mm is None and dims not in (None, "2d"):
        raise InvalidParameter(f"--dims {dims}: the data are pictures, which have no neighbours")
    spatial = 3 if dims == "3d" else 2
    edges = [median(one.labels.shape[axis] for one in data.stacks) for axis in range(3)]
    smallest = LARGER_CROP if spatial == 2 else SMALLEST_CROP[3]
    crop = _crop_within(min(edges[-spatial:]), device, spatial, smallest)
    epochs, steps = RANDOM_LENGTH[device.type]
    sides = _have_sides(data, data.scheme.names)
    return {
        "preparation": Preparation(
            normalization=RANDOM_NORMALIZATION,
            slice_mm=data.spacing_mm[0] if data.spacing_mm and spatial == 3 else None,
            **taken_as(dims or "2d"),
        ),
        "randomization": Randomization(flip_columns=0.0) if sides else Randomization(),
        "crop": crop,
        **_batch(crop, spatial, device),
        "epochs": epochs,
        "steps": steps,
    }


def taken_as(dims: str) -> dict[str, Any]:
    """What a `Preparation` says of how volumes are taken.

    Raises:
        InvalidParameter: `dims` is none of `DIMS`.
    """
    if dims not in DIMS:
        raise InvalidParameter(f"--dims {dims}: must be one of {', '.join(DIMS)}")
    return {"spatial_dims": 3 if dims == "3d" else 2, "neighbours": 1 if dims == "2.5d" else 0}


def _checked(dims: str | None, card: DataCard) -> str | None:
    taken_as(dims or "2d")
    if card.kind == "pictures" and dims not in (None, "2d"):
        raise InvalidParameter(f"--dims {dims}: the data are pictures, which have no neighbours")
    return dims


def plan_synthesis(card: DataCard, device: torch.device, dims: str | None = None) -> dict[str, Any]:
    """Recipe values for synthesis: slices, and one intensity scale for all pictures.

    Volumes are synthesized slice by slice unless `dims` is ``3d``, which is for small ones: half of
    the atoms, and a discriminator of small patches.

    Segmentation brings every picture to its own percentiles. A generator has to learn how bright
    pictures are, so theirs stays what it is; and it learns their looks from crops of
    `SYNTHESIS_CROP` pixels, in a quarter of the time. Slices keep their distances.

    Raises:
        InvalidParameter: other `dims` than ``2d`` and ``3d``, or ``3d`` of pictures.
    """
    if dims not in (None, "2d", "3d"):
        raise InvalidParameter(f"--dims {dims}: images are synthesized in 2d or 3d")
    planned = plan(card, device, dims or "2d")
    preparation, crop = planned["preparation"], planned["crop"]
    shared = preparation.normalization.model_copy(update={"per_channel": False})
    preparation = preparation.model_copy(update={"normalization": shared, "slice_mm": None})
    if card.kind == "pictures" and card.channels and preparation.normalization.window is None:
        every = [channel.all for channel in card.channels]
        low, high = min(0, *(e.minimum for e in every)), max(e.maximum for e in every)
        window = BYTES if _of_bytes(every) else (low, high if high > low else low + 1)
        scale = Normalization(window=window)
        preparation = preparation.model_copy(update={"normalization": scale})
    if dims != "3d":
        crop = max(LARGER_CROP, crop)
        planned |= _batch(crop, 2, device)
    if card.kind == "pictures":
        crop = min(crop, SYNTHESIS_CROP)
    return {
        "preparation": preparation,
        "crop": crop,
        "batch_size": planned["batch_size"],
        "recompute_votes": planned["recompute_votes"],
        "augmentation": planned["augmentation"],
        **({"atoms": 8, "discriminator": "patch"} if dims == "3d" else {}),
    }


def normalization(card: DataCard) -> Normalization:
    """Of Hounsfield units a window, of masked heads the foreground's percentiles, else all's.

    Colours of 8 bits keep their scale. Channels that are no colours, such as the sequences of an
    MRI, have a scale each.
    """
    if not card.channels:
        return Normalization()
    every = [channel.all for channel in card.channels]
    if max(each.minimum for each in every) < AIR:
        return _window(card.channels[0])
    if len(every) == 3 and card.kind == "pictures" and _of_bytes(every):
        return Normalization(window=BYTES)
    separate = len(every) > 1 and not (len(every) == 3 and card.kind == "pictures")
    if card.kind == "volumes" and all(each.minimum == each.median == 0 for each in every):
        return Normalization(lower=None, upper=99.0, foreground_only=True, per_channel=separate)
    return Normalization(per_channel=separate)


def _of_bytes(every: Sequence[Intensities]) -> bool:
    """Whether intensities are those of 8 bits: whole numbers up to 255, and not only 0 and 1.

    Pictures of floats, mostly in [0, 1], would be black on the scale of bytes.
    """
    values = [v for each in every for v in each.model_dump(exclude={"mean", "std"}).values()]
    return min(values) >= 0 and 1 < max(values) <= BYTES[1] and all(v.is_integer() for v in values)


def _window(channel: Channel) -> Normalization:
    """The 0.5th to 99.5th percentile of the foreground over all cases, as in nnU-Net."""
    seen = channel.foreground or channel.all
    return Normalization(window=(seen.p0_5, max(seen.p99_5, seen.p0_5 + 1)))


def _dims(card: DataCard, device: torch.device) -> str:
    if card.spacing_mm is None:
        return "2d"
    between, row, column = card.spacing_mm.median
    if between > THICK * max(row, column):
        return "2d"
    least, most = min(card.sizes.median), max(card.sizes.median)
    small = least >= SMALLEST_CROP[3] and most <= LARGEST_CROP["cuda", 3]
    large = device.type == "cuda" and least >= LARGEST_CROP["cuda", 3]
    return "3d" if small or large else "2.5d"


def _spacing(card: DataCard) -> tuple[float, float] | None:
    if card.spacing_mm is None:
        return None
    _, row, column = card.spacing_mm.median
    return float(row), float(column)


def _between(card: DataCard) -> float | None:
    return None if card.spacing_mm is None else float(card.spacing_mm.median[0])


def _crop(card: DataCard, device: torch.device, spatial: int) -> int:
    """A multiple of 16 that fits into most images and into the device's limit.

    Around an image smaller than its crop there are zeros, which are not there when whole images
    are segmented.
    """
    edge = min(card.sizes.median[-spatial:])
    return _crop_within(edge, device, spatial, SMALLEST_CROP[spatial])


def _crop_within(edge: float, device: torch.device, spatial: int, smallest: int) -> int:
    return max(smallest, min(LARGEST_CROP[device.type, spatial], int(edge) // 16 * 16))


def _batch(crop: int, spatial: int, device: torch.device) -> dict[str, Any]:
    """The batch size; before it is made smaller for want of memory, votes are recomputed."""
    room = _memory(device) * MEMORY_SHARE / (crop**spatial * BYTES_A_POSITION[spatial])
    largest = LARGEST_BATCH[device.type]
    recompute = room < largest
    fits = int(room / RECOMPUTED if recompute else room)
    return {"batch_size": max(1, min(largest, fits)), "recompute_votes": recompute}


def _memory(device: torch.device) -> float:
    """Total bytes of the GPU, or free bytes of the machine."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(free_memory())


def _class_weights(shares: list[float]) -> tuple[float, ...]:
    """The inverse root of how often a class is seen, with mean one; of two classes, the second's
    in units of the first's. One that is never seen has the mean.
    """
    raw = [1 / math.sqrt(max(share, 1e-4)) if share else None for share in shares]
    seen = [weight for weight in raw if weight is not None]
    mean = sum(seen) / len(seen)
    weights = [1.0 if weight is None else weight / mean for weight in raw]
    if len(weights) == 2:
        return (round(weights[1] / weights[0], 3),)
    return tuple(round(weight, 3) for weight in weights)
