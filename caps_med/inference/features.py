"""What each capsule sees: the capsules of every layer for one slice."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import LayerNotFound
from caps_med.images import MedicalImage, chosen_slice
from caps_med.inference.capsule_montage import capsule_montage
from caps_med.inference.passes import as_maps, check_whole, device_of, pad_to
from caps_med.inference.provenance import AnswerProvenance
from caps_med.networks import CapsuleNetwork

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Features:
    """Capsules by layer, in order of computation.

    Attributes:
        layers: layer name -> `[J, A, H, W]`, the slice's size over the layer's stride, rounded up.
        provenance: where they came from.
    """

    layers: Mapping[str, FloatArray]
    provenance: AnswerProvenance

    def lengths(self, layer: str) -> FloatArray:
        """Capsule lengths `[J, *S]` of one layer."""
        return np.asarray(np.linalg.norm(self.layers[layer], axis=1), dtype=np.float32)

    def arrays(self) -> dict[str, FloatArray]:
        """What the npz form holds: every layer, and ``lengths/<layer>``."""
        return {**self.layers, **{f"lengths/{name}": self.lengths(name) for name in self.layers}}

    def statistics(self) -> dict[str, Any]:
        """Per layer: types, atoms, size, and the mean and largest length of each capsule type."""
        return {name: self._layer_statistics(name) for name in self.layers}

    def _layer_statistics(self, name: str) -> dict[str, Any]:
        types, atoms, *size = self.layers[name].shape
        lengths = self.lengths(name).reshape(types, -1)
        return {
            "types": types,
            "atoms": atoms,
            "size": size,
            "mean_length": [round(float(v), 6) for v in lengths.mean(1)],
            "max_length": [round(float(v), 6) for v in lengths.max(1)],
        }

    def contact_sheet(self) -> MedicalImage:
        """A picture of all capsule lengths, a row a layer, brighter for longer."""
        return capsule_montage({name: self.lengths(name) for name in self.layers})

    def save(self, path: str | Path) -> None:
        """Write ``NAME.npz``, or into a folder: ``features.npz``, ``capsules.png``, statistics."""
        path = Path(path)
        if path.suffix == ".npz":
            np.savez_compressed(path, **self.arrays())  # type: ignore[arg-type]
            return
        path.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path / "features.npz", **self.arrays())  # type: ignore[arg-type]
        self.contact_sheet().save(path / "capsules.png")
        statistics = {"provenance": self.provenance.as_dict(), "layers": self.statistics()}
        (path / "statistics.json").write_text(json.dumps(statistics, indent=2) + "\n")


class FeatureExplorer:
    """Read a network's capsules for one slice of an image or label map.

    Args:
        network: in evaluation mode.
        provenance: put into every answer.
    """

    def __init__(self, network: CapsuleNetwork, provenance: AnswerProvenance) -> None:
        self.network, self.provenance = network, provenance

    def __call__(
        self,
        slices: Tensor,
        capsules: Callable[[Tensor], OrderedDict[str, Tensor]],
        layer: str | None = None,
        slice: int | None = None,
    ) -> Features:
        """The capsules of one slice; a 3-D network sees the whole volume for it.

        Args:
            slices: `[D, C, H, W]`, as the network's input is prepared.
            capsules: from a padded batch of one to the network's capsules.
            layer: this layer alone.
            slice: None for the middle one.

        Raises:
            LayerNotFound: the network has no such layer; the message lists those it has.
            InvalidParameter: there is no such slice.
            InputTooLarge: the capsules would not fit the memory.
        """
        self.check_layer(layer)
        at = chosen_slice(len(slices), slice)
        flat = self.network.spatial_dims == 2
        maps = as_maps(self.network, slices[at : at + 1] if flat else slices)
        check_whole(maps)
        with torch.inference_mode():
            found = capsules(pad_to(maps.to(device_of(self.network)), self.network.divisor))
        strides = {info.name: info.stride for info in self.network.layers}
        layers = {
            name: _cropped(
                value if flat else value[:, :, :, at // strides[name]],
                slices.shape[2:],
                strides[name],
            )
            for name, value in found.items()
            if layer in (None, name)
        }
        return Features(layers, self.provenance)

    def check_layer(self, layer: str | None) -> None:
        """Refuse a name that is none of the network's capsule layers."""
        names = [info.name for info in self.network.layers]
        if layer is not None and layer not in names:
            raise LayerNotFound(f"no layer {layer!r}: there is {', '.join(names)}")


def _cropped(capsules: Tensor, sizes: torch.Size, stride: int) -> FloatArray:
    rows, columns = (-(-size // stride) for size in sizes)
    return np.ascontiguousarray(capsules[0, ..., :rows, :columns].float().cpu().numpy())
