"""What each arm is trained on: real images, synthesized ones, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.tstr import data
from caps_med.images import MedicalImage
from caps_med.inference import Model
from training.data import Sample

#: From a generator's name to the model.
ModelOf = Callable[[str], Model]

#: What tables call the ablation.
PLAIN = "CapsPix2Pix without capsules"
#: Synthetic images for each that is drawn of a real one, where they are mixed.
BESIDE_REAL = 3

#: Synthesized images of every arm and repetition have seeds of their own from here on.
_FIRST_SEED = 1_000_000


@dataclass(frozen=True)
class Arm:
    """One row of the table.

    Attributes:
        title: what is learned from.
        real: whether the real images are among it.
        generator: which one synthesizes; None for real images alone.
        labels: label maps that are synthesized from: ``real`` or ``new``.
        more: whether as many further real images as others have synthetic ones are added: how far
            synthetic images could lead at best.
    """

    title: str
    real: bool = False
    generator: str | None = None
    labels: str = "new"
    more: bool = False


ARMS: Mapping[str, Arm] = {
    "real": Arm("real", real=True),
    "caps-real": Arm("CapsPix2Pix, real labels", generator="capspix2pix", labels="real"),
    "caps-new": Arm("CapsPix2Pix, new labels", generator="capspix2pix"),
    "plain-real": Arm(f"{PLAIN}, real labels", generator="capspix2pix-plain", labels="real"),
    "plain-new": Arm(f"{PLAIN}, new labels", generator="capspix2pix-plain"),
    "pix2pix-real": Arm("pix2pix, real labels", generator="pix2pix", labels="real"),
    "pix2pix-new": Arm("pix2pix, new labels", generator="pix2pix"),
    "spade-real": Arm("SPADE, real labels", generator="spade", labels="real"),
    "spade-new": Arm("SPADE, new labels", generator="spade"),
    "real+caps": Arm("real + CapsPix2Pix", True, "capspix2pix"),
    "real+plain": Arm(f"real + {PLAIN}", True, "capspix2pix-plain"),
    "real+pix2pix": Arm("real + pix2pix", True, "pix2pix"),
    "real+spade": Arm("real + SPADE", True, "spade"),
    "oracle": Arm("real + as many further real images", real=True, more=True),
}


@dataclass(frozen=True)
class Sizes:
    """How many images there are: real ones, synthetic ones (`BESIDE_REAL` times that), tested."""

    real: int = 8
    synthetic: int = 100
    tested: int = 64


def samples_of(
    arm: Arm, sizes: Sizes, seed: int, model_of: ModelOf, new: int = data.NEW
) -> list[Sample]:
    """What an arm learns from in one repetition, new label maps being those of the seed `new`.

    Where real and synthetic images are mixed, the real ones are repeated until a quarter of all is
    real: of 8 beside 300, a network would hardly see the real ones.
    """
    real = data.real_samples(data.REAL, sizes.real) if arm.real else []
    count = BESIDE_REAL * sizes.synthetic if arm.real else sizes.synthetic
    if arm.more:
        return [*real, *data.real_samples(data.MORE, count)]
    if arm.generator is None:
        return real
    labels = _label_maps(arm.labels, count, sizes.real, new)
    added = synthesized(model_of(arm.generator), labels, seed)
    return [*real * max(1, round(count / BESIDE_REAL / max(1, len(real)))), *added]


def synthesized(model: Model, labels: Sequence[np.ndarray], seed: int) -> list[Sample]:
    """One image of each label map, every one with a noise vector of its own."""
    first = _FIRST_SEED * (1 + seed)
    found = []
    for number, label in enumerate(labels):
        picture = MedicalImage(label, kind="labels", format="npy")
        image = model.synthesize(picture, seed=first + number).array
        found.append(data.synthetic_sample(np.asarray(image, np.float32), label))
    return found


def _label_maps(which: str, count: int, real: int, new: int) -> list[np.ndarray]:
    if which == "new":
        return [data.label_map(new, case) for case in range(count)]
    return [data.label_map(data.REAL, case % real) for case in range(count)]
