"""What the capsules at one point of a slice hold, and where their votes go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.inference.features import Features
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.networks import CapsuleNetwork
from caps_med.routing import couplings

#: Positions kept on each side of the point: more than any kernel reaches, and even, so that
#: strided layers keep their step.
_MARGIN = 8


@dataclass(frozen=True, eq=False)
class Point:
    """The capsules of one layer at one point.

    Attributes:
        layer: its name.
        pose: `[J, A]`.
        next_layer: the layer above; None above the last one.
        couplings: `[J, J above]`, the coupling coefficients towards the layer above that routing
            ends with; None above the last layer.
    """

    layer: str
    pose: NDArray[np.float32]
    next_layer: str | None
    couplings: NDArray[np.float32] | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = None if self.couplings is None else self.couplings.tolist()
        return {
            "layer": self.layer,
            "pose": self.pose.tolist(),
            "lengths": np.linalg.norm(self.pose, axis=1).tolist(),
            "next_layer": self.next_layer,
            "couplings": found,
        }


class Listener:
    """Keeps what enters the capsule layer above `layer` while the network runs.

    Used as a context around the forward pass.
    """

    def __init__(self, network: CapsuleNetwork, layer: str) -> None:
        names = [info.name for info in network.layers]
        above = names.index(layer) + 1
        self._infos = {info.name: info for info in network.layers}
        self.layer, self.name = layer, names[above] if above < len(names) else None
        self._module = None if self.name is None else network.get_submodule(self.name)
        self._input: Tensor | None = None
        self._remove: Callable[[], None] | None = None

    def __enter__(self) -> Listener:
        if self._module is not None:
            self._remove = self._module.register_forward_pre_hook(self._keep).remove
        return self

    def __exit__(self, *_: object) -> None:
        if self._remove:
            self._remove()

    def _keep(self, _: torch.nn.Module, inputs: tuple[Tensor]) -> None:
        self._input = inputs[0]

    def point(self, features: Features, row: int, column: int, depth: int | None) -> Point:
        """The capsules at a pixel of the slice, once the network has run.

        Args:
            features: hold the layer.
            row, column: in pixels of the slice as the network sees it.
            depth: the slice, of a 3-D network.

        Raises:
            InvalidParameter: the pixel is outside.
        """
        info, capsules = self._infos[self.layer], features.layers[self.layer]
        r, c = row // info.stride, column // info.stride
        if min(row, column) < 0 or r >= capsules.shape[2] or c >= capsules.shape[3]:
            size = tuple(s * info.stride for s in capsules.shape[2:])
            raise InvalidParameter(f"row={row}, column={column}: the slice is {size}")
        pixel = [row, column] if depth is None else [depth, row, column]
        return Point(self.layer, capsules[:, :, r, c], self.name, self._couplings(pixel))

    def _couplings(self, pixel: Sequence[int]) -> NDArray[np.float32] | None:
        layer, entered = self._module, self._input
        if self.name is None or entered is None:
            return None
        if not isinstance(layer, (ConvCapsule, DeconvCapsule)):
            return None
        above = self._infos[self.name]
        below = self._stride_below(layer, above.stride)
        at = [p // above.stride for p in pixel]
        for axis, p in enumerate(pixel, start=3):
            start = max(0, p // below // 2 * 2 - _MARGIN)
            length = min(2 * _MARGIN + 2, entered.shape[axis] - start)
            entered = entered.narrow(axis, start, length)
            at[axis - 3] -= start * below // above.stride
        with torch.inference_mode():
            found = couplings(layer.votes(entered), layer.bias, layer.routing)
        for position in reversed(at):
            found = found[..., position]
        there = found[0, : self._infos[self.layer].types]  # those of skip connections follow
        return np.asarray(there.float().cpu().numpy(), dtype=np.float32)

    @staticmethod
    def _stride_below(layer: ConvCapsule | DeconvCapsule, above: int) -> int:
        return above * 2 if isinstance(layer, DeconvCapsule) else above // layer.stride
