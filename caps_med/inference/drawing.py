"""Reconstruct images from given poses of a class capsule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from caps_med.arguments import checked_index
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference.passes import device_of
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.strip import rows_of, tiled
from caps_med.networks import ClassificationNetwork

FloatArray = NDArray[np.float32]
#: The atoms of a class capsule.
Pose: TypeAlias = Sequence[float] | FloatArray

#: Poses per call; sixteen atoms, each shifted eleven times, are 176.
MAX_POSES = 256
#: No capsule has atoms near this.
MAX_ATOM = 1000.0


@dataclass(frozen=True, eq=False)
class Drawing:
    """Reconstructions `[N, C, H, W]` in [0, 1], one for each pose."""

    reconstructions: FloatArray
    provenance: AnswerProvenance

    def strip(self) -> MedicalImage:
        """The reconstructions side by side; channels that are not colours below each other."""
        return tiled(rows_of(list(self.reconstructions)))


def check_decoder(network: ClassificationNetwork, provenance: AnswerProvenance) -> None:
    """Raise `InvalidParameter` if a network cannot reconstruct images."""
    if network.reconstructs:
        return
    fix = "train it with --set reconstruction_weight=0.392"
    if not network.layers:
        fix = "it has no capsules; choose a model of a capsule network"
    raise InvalidParameter(f"{provenance.model} cannot reconstruct images: {fix}")


def draw(
    network: ClassificationNetwork,
    capsule: int,
    poses: Sequence[Pose],
    provenance: AnswerProvenance,
) -> Drawing:
    """Decode poses `[N, A]` of one class capsule, with all other capsules set to zero.

    Raises:
        InvalidParameter: the network has no decoder, or no such capsule; there are no poses or more
            than `MAX_POSES`; the number of atoms is not the network's, or an atom is not finite or
            beyond `MAX_ATOM`.
    """
    check_decoder(network, provenance)
    capsule = checked_index("capsule", capsule, network.out_channels)
    if not 1 <= len(poses) <= MAX_POSES:
        raise InvalidParameter(f"{len(poses)} poses: must be 1 to {MAX_POSES}")
    atoms = network.layers[-1].atoms
    for pose in poses:
        if len(pose) != atoms:
            raise InvalidParameter(f"a pose of {len(pose)} atoms: the capsules have {atoms}")
        if not all(math.isfinite(atom) and abs(atom) <= MAX_ATOM for atom in pose):
            raise InvalidParameter(f"poses: each atom must be from -{MAX_ATOM:g} to {MAX_ATOM:g}")
    with torch.inference_mode():
        given = torch.from_numpy(np.array(poses, np.float32)).to(device_of(network))
        capsules = given.new_zeros(len(poses), network.out_channels, atoms)
        capsules[:, capsule] = given
        present = given.new_zeros(capsules.shape[:2])
        present[:, capsule] = 1
        drawn = network.reconstruct(capsules, present).float().cpu().numpy()
    return Drawing(drawn, provenance)
