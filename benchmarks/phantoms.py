"""The picture of axon phantoms in the docs: ``python -m benchmarks.phantoms``.

One row per geometry: the label map and four appearances; below, one parameter at two extremes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from training.labelmaps.phantoms import AxonAppearance, AxonGeometry, axon_phantom

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "axon-phantoms.png"
#: Parameters at both ends of a range wider than the default.
ENDS = {
    "photons": ((6.0, 6.0), (200.0, 200.0)),
    "psf": ((0.5, 0.5), (2.0, 2.0)),
    "out_of_focus": ((0, 0), (6, 6)),
    "haze": ((0.0, 0.0), (0.5, 0.5)),
    "bouton_brightness": ((1.0, 1.0), (3.0, 3.0)),
}


def main() -> None:
    """Draw and write the picture."""
    rows = []
    for case in range(3):
        repeats = [axon_phantom(0, case, repeat) for repeat in range(4)]
        rows.append([repeats[0].label[0].astype(np.float32), *(one.image[0] for one in repeats)])
    for end in (0, 1):
        rows.append(
            [
                axon_phantom(0, 2, appearance=_appearance(name, ends[end])).image[0]
                for name, ends in ENDS.items()
            ]
        )
    grid = np.concatenate([np.concatenate([_framed(x) for x in row], 1) for row in rows])
    Image.fromarray(np.rint(grid * 255).astype(np.uint8)).save(PICTURE, optimize=True)
    geometry = AxonGeometry()
    print(f"{PICTURE}: default geometry {geometry}; last two rows: {', '.join(ENDS)}")


def _appearance(name: str, values: tuple[float, float]) -> AxonAppearance:
    return replace(AxonAppearance(), **{name: values})  # type: ignore[arg-type]


def _framed(picture: np.ndarray) -> np.ndarray:
    return np.pad(picture, 2, constant_values=1.0)


if __name__ == "__main__":
    main()
