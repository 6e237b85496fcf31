"""The package of the fourth task as an environment has it, and images to count."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from caps_med.images import MedicalImage, encode_image

HERE = Path(__file__).parent


def install(project: Path, folder: Path) -> None:
    """What an installer writes beside the modules of a project, without building a wheel."""
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name, version = described["name"], described["version"]
    information = folder / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (information / "METADATA").write_text(text)
    lines = []
    for group, points in described["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (information / "entry_points.txt").write_text("\n".join(lines))


def write_images(folder: Path, count: int = 24) -> None:
    """Images with 0 to 5 bright squares apart from one another, and their list."""
    folder.mkdir()
    rng, lines = np.random.default_rng(0), ["image,count"]
    for number in range(count):
        pixels = rng.integers(0, 20, (1, 24, 24)).astype(np.uint8)
        for place in rng.permutation(9)[: number % 6]:
            row, column = 8 * (place // 3) + 2, 8 * (place % 3) + 2
            pixels[:, row : row + 4, column : column + 4] = 220
        image = MedicalImage(pixels, format="png")
        (folder / f"{number}.png").write_bytes(encode_image(image, "png"))
        lines.append(f"{number}.png,{number % 6}")
    (folder / "counts.csv").write_text("\n".join(lines) + "\n")
