"""The capsules of every layer for one slice."""

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

from caps_med.drafts import check_place, draft_of, make_folder, write_whole
from caps_med.errors import LayerNotFound
from caps_med.images import MedicalImage, chosen_slice, encode_image
from caps_med.inference.capsule_montage import capsule_montage
from caps_med.inference.passes import check_wanted, input_of_slice
from caps_med.inference.progress import count_steps
from caps_med.inference.provenance import AnswerProvenance
from caps_med.networks import CapsuleNetwork, LayerInfo

FloatArray = NDArray[np.float32]

#: What `Features.save` writes into a folder: arrays, contact sheet, statistics.
FOLDER_FILES = ("features.npz", "capsules.png", "statistics.json")


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """Capsules by layer, in order of computation.

    Attributes:
        layers: layer name -> `[J, A, H, W]`; H and W are the slice's over the layer's stride,
            rounded up.
        provenance: model, version and preprocessing.
        size: rows and columns of the slice at the network's spacing.
        classes: names of the capsule types of the last layer, if they are classes and it is
            among the layers.
        warnings: assumptions about the image or label map, and differences from those of the
            training.
    """

    layers: Mapping[str, FloatArray]
    provenance: AnswerProvenance
    size: tuple[int, int]
    classes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def lengths(self, layer: str) -> FloatArray:
        """Capsule lengths `[J, *S]` of one layer."""
        return np.asarray(np.linalg.norm(self.layers[layer], axis=1), dtype=np.float32)

    def arrays(self) -> dict[str, FloatArray]:
        """The arrays of the npz file: every layer, and ``lengths/<layer>``."""
        return {**self.layers, **{f"lengths/{name}": self.lengths(name) for name in self.layers}}

    def statistics(self) -> dict[str, Any]:
        """Types, atoms and size of each layer, mean and maximum length of each capsule type."""
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
        """A picture of all capsule lengths: one row per layer, brighter is longer."""
        return capsule_montage({name: self.lengths(name) for name in self.layers}, self.classes)

    def __repr__(self) -> str:
        """The layers and their sizes, on one line."""
        sizes = (f"{name} {' x '.join(map(str, x.shape))}" for name, x in self.layers.items())
        return f"<Features: {', '.join(sizes)}>"

    def _repr_png_(self) -> bytes:
        """The contact sheet, for notebooks."""
        return encode_image(self.contact_sheet(), "png")

    def save(self, path: str | Path) -> None:
        """Write one ``.npz`` file, or a folder of features, contact sheet and statistics.

        Raises:
            InvalidParameter: no such file or folder can be written, for example a folder in the
                place of a file; the message says why.
        """
        path = Path(path)
        if path.suffix.lower() == ".npz":
            check_place(path)
            self._save_arrays(path)
            return
        make_folder(path)
        arrays, sheet, numbers = (path / name for name in FOLDER_FILES)
        self._save_arrays(arrays)
        self.contact_sheet().save(sheet)
        statistics = {
            "provenance": self.provenance.as_dict(),
            "warnings": list(self.warnings),
            "layers": self.statistics(),
        }
        write_whole(numbers, (json.dumps(statistics, indent=2) + "\n").encode())

    def _save_arrays(self, path: Path) -> None:
        with draft_of(path) as draft, draft.open("wb") as file:
            np.savez_compressed(file, **self.arrays())  # type: ignore[arg-type]  # the names are no options


class FeatureExplorer:
    """Compute a network's capsules for one slice of an image or label map.

    Args:
        network: in evaluation mode.
        provenance: of every answer.
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
        """The capsules of one slice; a 3-D network is given the whole volume.

        Args:
            slices: `[D, C, H, W]`, prepared for the network.
            capsules: computes the network's capsules from a padded batch of one.
            layer: only this layer.
            slice: None for the middle one.

        Raises:
            LayerNotFound: the network has no such layer; the message lists those it has.
            InvalidParameter: there is no such slice.
            InputTooLarge: the slice is too large to be processed whole.
        """
        self.check_layer(layer)
        at = chosen_slice(len(slices), slice)
        advance = count_steps(1)
        with torch.inference_mode():
            found = capsules(input_of_slice(self.network, slices, at))
        advance(1)
        layers = {
            info.name: self._of_slice(found[info.name], at, slices.shape[2:], info)
            for info in self.network.layers
            if layer in (None, info.name)
        }
        rows, columns = slices.shape[2:]
        return Features(layers, self.provenance, (rows, columns))

    def _of_slice(
        self, capsules: Tensor, at: int, sizes: torch.Size, info: LayerInfo
    ) -> FloatArray:
        """`[J, A, H, W]` of one slice, without padding."""
        check_wanted()
        if self.network.spatial_dims == 3:
            explored = self.network.explored
            capsules = capsules[:, :, :, explored.nearest_position(info, at, capsules.shape[3])]
        if self.network.divisor == 1:  # nothing is padded, and pixels may have been repeated
            rows, columns = capsules.shape[3:]
        else:
            rows, columns = (-(-size // info.stride) for size in sizes)
        return np.ascontiguousarray(capsules[0, ..., :rows, :columns].float().cpu().numpy())

    def check_layer(self, layer: str | None) -> None:
        """Raise `LayerNotFound` if the network has no capsule layer of that name."""
        names = [info.name for info in self.network.layers]
        if layer is not None and layer not in names:
            raise LayerNotFound(f"no layer {layer!r}: must be one of {', '.join(names)}")
