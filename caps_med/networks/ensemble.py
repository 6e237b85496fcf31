"""Several networks of one kind whose predictions are averaged."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.networks.base import SegmentationNetwork
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.single import SINGLE_NETWORKS, build_from

#: A hostile file must not ask for thousands of networks.
_LARGEST = 32


class Ensemble(SegmentationNetwork):
    """The folds of a cross-validation as one segmentation network.

    Its capsules are those of the first member: poses of different networks share no axes.

    Args:
        network: the members' name in the registry.
        members: how many there are, at most 32.
        arguments: of each member.

    Raises:
        InvalidParameter: the members are not segmentation networks, or too many.
    """

    def __init__(self, network: str, members: int, arguments: dict[str, Any]) -> None:
        super().__init__()
        if not 1 <= members <= _LARGEST:
            raise InvalidParameter(f"members={members}: must be 1 to {_LARGEST}")
        if network == "Ensemble":
            raise InvalidParameter("an ensemble of ensembles: list the networks themselves")
        built = [build_from(SINGLE_NETWORKS, network, arguments) for _ in range(members)]
        first = built[0]
        if not isinstance(first, SegmentationNetwork):
            raise InvalidParameter(f"network={network!r}: members must be segmentation networks")
        self.members = nn.ModuleList(built)
        self.spatial_dims, self.divisor, self.layers = (
            first.spatial_dims,
            first.divisor,
            first.layers,
        )
        self.in_channels, self.out_channels = first.in_channels, first.out_channels

    @sample_by_sample
    def forward(self, image: Tensor) -> Tensor:
        """The mean over the members, ``[B, out_channels, *S]``."""
        return torch.stack([member(image) for member in self.members]).mean(0)

    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """The first member's; see `SegmentationNetwork.capsules`."""
        found: OrderedDict[str, Tensor] = self._first.capsules(image)
        return found

    def check(self, image: Tensor) -> None:
        """See `CapsuleNetwork.check`."""
        self._first.check(image)

    @property
    def _first(self) -> SegmentationNetwork:
        first = self.members[0]
        assert isinstance(first, SegmentationNetwork)  # noqa: S101 - checked above
        return first
