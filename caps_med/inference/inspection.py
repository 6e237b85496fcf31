"""The intermediate results of a classification network between an image and its classes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from caps_med.inference.applied import Shown
from caps_med.inference.hooks import of_this_thread
from caps_med.inference.passes import device_of
from caps_med.inference.provenance import AnswerProvenance
from caps_med.layers.attention import SelfAttentionCapsules
from caps_med.layers.dense import DenseCapsules
from caps_med.layers.matrix import ClassMatrixCapsules
from caps_med.networks import ClassificationNetwork, MatrixCapsules, capsule_lengths

FloatArray = NDArray[np.float32]

#: Layers that route the capsules of all positions to one capsule a class.
ROUTED_WHOLE = (DenseCapsules, SelfAttentionCapsules, ClassMatrixCapsules)


@dataclass(frozen=True, eq=False)
class Inspection:
    """The intermediate results of a network for one picture; those that it lacks are left out.

    Attributes:
        input: `[C, H, W]`, the picture as input of the network.
        kernels: `[O, C, h, w]` of the first convolution.
        maps: `[O, H, W]`, the output of the first convolution, before the nonlinearity.
        layers: layer name -> capsules `[J, A, H, W]`, in order of computation; empty for
            convolutional networks.
        lengths: layer name -> `[J, H, W]`, the capsules' lengths, or for matrix capsules their
            activations.
        couplings: name of the layer below the class capsules -> `[T, I, J, H, W]`, the coupling
            coefficients of its capsule types I to the classes J in each routing iteration T.
        provenance: model, version and preprocessing.
        warnings: assumptions about the image, and differences from the training images.
    """

    input: FloatArray
    kernels: FloatArray
    maps: FloatArray
    layers: Mapping[str, FloatArray]
    lengths: Mapping[str, FloatArray]
    couplings: Mapping[str, FloatArray]
    provenance: AnswerProvenance
    warnings: tuple[str, ...] = ()

    def arrays(self) -> dict[str, FloatArray]:
        """The arrays of an npz file."""
        return {
            "input": self.input,
            "convolution/kernels": self.kernels,
            "convolution/maps": self.maps,
            **self.layers,
            **{f"lengths/{name}": array for name, array in self.lengths.items()},
            **{f"couplings/{name}": array for name, array in self.couplings.items()},
        }


def inspect(
    network: ClassificationNetwork, shown: Shown, provenance: AnswerProvenance
) -> Inspection:
    """Compute all intermediate results for one picture.

    For an ensemble, these are the first member's, as in `Model.features`.
    """
    member = network.explored
    assert isinstance(member, ClassificationNetwork)  # noqa: S101 - a member is of its kind
    image = shown.slices.to(device_of(network))
    convolution = next(m for m in member.modules() if isinstance(m, nn.Conv2d))
    with torch.inference_mode(), _Seen(convolution, _routing_layer(member)) as seen:
        found = member.capsules(image) if member.layers else OrderedDict[str, Tensor]()
        if not member.layers:
            member.classify(image)
        active = member.activations(image) if isinstance(member, MatrixCapsules) else {}
        steps = seen.coupling_steps()
    layers = {name: _array(capsules[0]) for name, capsules in found.items()}
    lengths = {
        name: _array(active.get(name, capsule_lengths(capsules))[0])
        for name, capsules in found.items()
    }
    couplings = {}
    if steps is not None:
        below = member.layers[-2].name
        shape = layers[below].shape
        couplings[below] = np.stack([by_position(step[0], shape) for step in steps])
    return Inspection(
        input=_array(shown.slices[0]),
        kernels=_array(convolution.weight),
        maps=_array(seen.maps[0]),
        layers=layers,
        lengths=lengths,
        couplings=couplings,
        provenance=provenance,
        warnings=shown.warnings,
    )


def by_position(couplings: Tensor, shape: Sequence[int]) -> FloatArray:
    """Couplings `[I * positions, J]` of capsules with a shape `[I, A, H, W]` as `[I, J, H, W]`.

    Layers that route all positions take them type by type, then position by position.
    """
    types, _, rows, columns = shape
    return _array(couplings.unflatten(0, (types, rows, columns)).movedim(-1, 1))


def _routing_layer(network: ClassificationNetwork) -> nn.Module | None:
    return network.get_submodule(network.layers[-1].name) if network.layers else None


@dataclass
class _Seen:
    """Context manager that records the first convolution's output and the routing layer's input
    on this thread.
    """

    convolution: nn.Module
    routing: nn.Module | None
    maps: Any = None
    capsules: Any = None
    _hooks: list[Any] = field(default_factory=list)

    def __enter__(self) -> _Seen:
        maps, capsules = of_this_thread(self._keep_maps), of_this_thread(self._keep_capsules)
        self._hooks.append(self.convolution.register_forward_hook(maps))
        if self.routing is not None:
            self._hooks.append(self.routing.register_forward_pre_hook(capsules))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def coupling_steps(self) -> Tensor | None:
        """``[T, B, I, J]``; None if capsules are not routed."""
        if not isinstance(self.routing, ROUTED_WHOLE):
            return None
        return self.routing.coupling_steps(self.capsules)

    def _keep_maps(self, _: nn.Module, inputs: tuple[Any, ...], maps: Tensor) -> None:
        self.maps = maps

    def _keep_capsules(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.capsules = inputs[0]


def _array(tensor: Tensor) -> FloatArray:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
