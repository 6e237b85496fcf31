"""Several networks of one kind whose predictions are averaged."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.networks.base import CapsuleNetwork, SegmentationNetwork
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.classification import ClassificationNetwork
from caps_med.networks.single import SINGLE_NETWORKS, build_from

#: A hostile file must not ask for thousands of networks.
_LARGEST = 32

#: What an average needs the members to have in common.
_SHARED = ("spatial_dims", "in_channels", "out_channels", "image_size")

N = TypeVar("N", bound=CapsuleNetwork)


class Ensemble(SegmentationNetwork):
    """The folds of a cross-validation as one segmentation network.

    Its capsules are those of the first member: poses of different networks share no axes.

    Args:
        network: the members' name in the registry.
        members: how many there are, at most 32.
        arguments: of each member.
        own: individual arguments of each member, in order, which take precedence: a restarted
            fold may be a different network. None if all members are alike.

    Raises:
        InvalidParameter: the members are not segmentation networks, are too many, or differ in
            their inputs or outputs.
    """

    def __init__(
        self,
        network: str,
        members: int,
        arguments: dict[str, Any],
        own: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        built = _members(SegmentationNetwork, network, members, arguments, own)
        first = built[0]
        self.members = nn.ModuleList(built)
        self.spatial_dims, self.layers = first.spatial_dims, first.layers
        self.divisor = math.lcm(*(member.divisor for member in built))
        self.normalizes_coarsest = any(member.normalizes_coarsest for member in built)
        self.in_channels, self.out_channels = first.in_channels, first.out_channels

    @sample_by_sample
    def forward(self, image: Tensor) -> Tensor:
        """The mean over the members, ``[B, out_channels, *S]``."""
        return torch.stack([member(image) for member in self.members]).mean(0)

    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """The first member's capsules; see `SegmentationNetwork.capsules`."""
        found: OrderedDict[str, Tensor] = self._first.capsules(image)
        return found

    def check(self, image: Tensor) -> None:
        """See `CapsuleNetwork.check`."""
        self._first.check(image)

    @property
    def explored(self) -> CapsuleNetwork:
        """The first member."""
        return self._first

    @property
    def networks(self) -> list[SegmentationNetwork]:
        """The members."""
        return [member for member in self.members if isinstance(member, SegmentationNetwork)]

    @property
    def _first(self) -> SegmentationNetwork:
        return self.networks[0]


class ClassificationEnsemble(ClassificationNetwork):
    """The folds of a cross-validation as one classification network.

    As in `Ensemble`, its capsules and its reconstruction are those of the first member.

    Args:
        network: the members' name in the registry.
        members: how many there are, at most 32.
        arguments: of each member.
        own: see `Ensemble`.

    Raises:
        InvalidParameter: the members are not classification networks, are too many, or differ in
            their inputs or outputs.
    """

    def __init__(
        self,
        network: str,
        members: int,
        arguments: dict[str, Any],
        own: list[dict[str, Any]] | None = None,
    ) -> None:
        built = _members(ClassificationNetwork, network, members, arguments, own)
        first = built[0]
        super().__init__(first.in_channels, first.out_channels, first.image_size)
        del self.stem  # each member has its own
        self.members = nn.ModuleList(built)
        self.layers = first.layers

    def _classify(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Mean scores, and the class capsules of the first member."""
        answers = [member._classify(image) for member in self._networks]
        return torch.stack([scores for scores, _ in answers]).mean(0), answers[0][1]

    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """The first member's capsules; see `ClassificationNetwork.capsules`."""
        return self._networks[0].capsules(image)

    @property
    def vote_count(self) -> int:
        """That of the first member: its votes are freed before the next one casts its own."""
        return self._networks[0].vote_count

    def reconstruct(self, class_capsules: Tensor, present: Tensor) -> Tensor:
        """The first member's reconstruction; see `ClassificationNetwork.reconstruct`."""
        return self._networks[0].reconstruct(class_capsules, present)

    @property
    def explored(self) -> CapsuleNetwork:
        """The first member."""
        return self._networks[0]

    @property
    def reconstruction_size(self) -> tuple[int, ...]:
        """That of the first member."""
        return self._networks[0].reconstruction_size

    @property
    def reconstructs(self) -> bool:
        """Whether the first member has a decoder."""
        return self._networks[0].reconstructs

    @property
    def _networks(self) -> list[ClassificationNetwork]:
        return [m for m in self.members if isinstance(m, ClassificationNetwork)]


#: Kind of network -> what averages several of them.
ENSEMBLES: Mapping[type[CapsuleNetwork], type[CapsuleNetwork]] = {
    SegmentationNetwork: Ensemble,
    ClassificationNetwork: ClassificationEnsemble,
}


def is_ensemble(network: str) -> bool:
    """Whether a network of this name in the registry averages several."""
    return network in {kind.__name__ for kind in ENSEMBLES.values()}


def _members(
    kind: type[N],
    network: str,
    members: int,
    arguments: dict[str, Any],
    own: list[dict[str, Any]] | None,
) -> list[N]:
    """The networks of an ensemble, from untrusted arguments."""
    if not 1 <= members <= _LARGEST:
        raise InvalidParameter(f"members={members}: must be 1 to {_LARGEST}")
    if is_ensemble(network):
        raise InvalidParameter("an ensemble of ensembles: list the networks themselves")
    if own is not None and len(own) != members:
        raise InvalidParameter(f"own: {len(own)} entries for {members} members; give each one")
    each = [arguments | further for further in own or [{}] * members]
    built = [build_from(SINGLE_NETWORKS, network, one) for one in each]
    found = [member for member in built if isinstance(member, kind)]
    if len(found) < members:
        task = kind.__name__.removesuffix("Network").lower()
        raise InvalidParameter(f"network={network!r}: members must be {task} networks")
    for name in _SHARED:
        if len({getattr(member, name, None) for member in found}) > 1:
            raise InvalidParameter(f"own: the members must have the same {name}")
    return found
