"""The capsules at one point of a slice, and their couplings to the layer above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from caps_med.arguments import whole_number
from caps_med.errors import InvalidParameter
from caps_med.inference.features import Features
from caps_med.inference.hooks import of_this_thread
from caps_med.inference.inspection import ROUTED_WHOLE, by_position
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.networks import CapsuleNetwork
from caps_med.routing import couplings

#: Positions kept on each side of the point: larger than any kernel's radius, and even, so that
#: strides stay aligned.
_MARGIN = 8


@dataclass(frozen=True, eq=False)
class Point:
    """The capsules of one layer at one point.

    Attributes:
        layer: the layer's name.
        pose: `[J, A]`.
        next_layer: the layer above; None for the last one.
        couplings: `[J, J above]`, the coupling coefficients after the last routing iteration; None
            for the last layer.
        warnings: see `Features`.
    """

    layer: str
    pose: NDArray[np.float32]
    next_layer: str | None
    couplings: NDArray[np.float32] | None
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = None if self.couplings is None else self.couplings.tolist()
        return {
            "layer": self.layer,
            "pose": self.pose.tolist(),
            "lengths": np.linalg.norm(self.pose, axis=1).tolist(),
            "next_layer": self.next_layer,
            "couplings": found,
            "warnings": list(self.warnings),
        }


class InputRecorder:
    """Context manager that records the input of the capsule layer above `layer` on this thread."""

    def __init__(self, network: CapsuleNetwork, layer: str) -> None:
        names = [info.name for info in network.layers]
        above = names.index(layer) + 1
        self._network, self._infos = network.explored, {info.name: info for info in network.layers}
        self.layer, self.name = layer, names[above] if above < len(names) else None
        self._module = None if self.name is None else self._network.get_submodule(self.name)
        self._input: Any = None
        self._remove: Callable[[], None] | None = None

    def __enter__(self) -> InputRecorder:
        if self._module is not None:
            hook = of_this_thread(self._keep)
            self._remove = self._module.register_forward_pre_hook(hook).remove
        return self

    def __exit__(self, *_: object) -> None:
        if self._remove:
            self._remove()

    def _keep(self, _: torch.nn.Module, inputs: tuple[Any]) -> None:
        self._input = inputs[0]

    def point(self, features: Features, row: int, column: int, depth: int | None) -> Point:
        """The capsules at a pixel of the slice, after the network has run.

        Args:
            features: of this layer.
            row, column: in the slice at the network's spacing.
            depth: the slice, for a 3-D network.

        Raises:
            InvalidParameter: the pixel is outside the slice.
        """
        info, capsules = self._infos[self.layer], features.layers[self.layer]
        rows, columns = features.size
        row, column = whole_number("row", row), whole_number("column", column)
        if not (0 <= row < rows and 0 <= column < columns):
            raise InvalidParameter(
                f"row={row}, column={column}: must be 0 to {rows - 1} and 0 to {columns - 1} in "
                "this slice"
            )
        r, c = (
            self._network.nearest_position(info, pixel, count)
            for pixel, count in zip((row, column), capsules.shape[2:], strict=True)
        )
        found: NDArray[np.float32] | None
        if isinstance(self._module, ROUTED_WHOLE):
            with torch.inference_mode():
                last = self._module.coupling_steps(self._input)[-1, 0]
            found = by_position(last, capsules.shape)[:, :, r, c]
        else:
            found = self._couplings([row, column] if depth is None else [depth, row, column])
        return Point(self.layer, capsules[:, :, r, c], self.name, found, features.warnings)

    def _couplings(self, pixel: Sequence[int]) -> NDArray[np.float32] | None:
        layer, maps = self._module, self._input
        if self.name is None or maps is None:
            return None
        if not isinstance(layer, (ConvCapsule, DeconvCapsule)):
            return None
        above = self._infos[self.name]
        below = self._stride_below(layer, above.stride)
        position = [p // above.stride for p in pixel]
        # normalized votes depend on all positions
        axes = enumerate(pixel, start=3) if layer.vote_norm is None else ()
        for axis, p in axes:
            start = max(0, p // below // 2 * 2 - _MARGIN)
            length = min(2 * _MARGIN + 2, maps.shape[axis] - start)
            maps = maps.narrow(axis, start, length)
            position[axis - 3] -= start * below // above.stride
        with torch.inference_mode():
            found = couplings(layer.votes(maps), layer.bias, layer.routing)
        for index in reversed(position):
            found = found[..., index]
        own = found[0, : self._infos[self.layer].types]  # skip connections come after them
        return np.asarray(own.float().cpu().numpy(), dtype=np.float32)

    @staticmethod
    def _stride_below(layer: ConvCapsule | DeconvCapsule, above: int) -> int:
        return above * 2 if isinstance(layer, DeconvCapsule) else above // layer.stride
