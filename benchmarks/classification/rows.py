"""What is trained: the rows of the tables, their variants, and one cell for each seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Overrides = Mapping[str, Any]

SEEDS = (0, 1, 2)
#: Shifts of two pixels for every network, as published; clothes are mirrored, too.
_MIRRORED: Overrides = {"shift": 2, "flip": 0.5}
_ERASED: Overrides = {**_MIRRORED, "erase": 0.5}
_SHIFTED: Overrides = {"shift": 2}
_AFFINE: Overrides = {"shift": 2, "rotation": 15, "zoom": 0.1}
_MEAN: Overrides = {"weight_average": 0.999}
_LONG: Overrides = {"epochs": 100}
#: Of the trainings on clothes: half as many steps as the default of 128, on a GPU in half the time.
_LARGE: Overrides = {"batch_size": 256}


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        data: ``fashion`` or ``mnist10k``.
        name: of the row.
        network: as ``--network`` takes it.
        recipe: recipe values of all variants.
        variants: name -> further recipe values. **The mean validation accuracy of the seeds
            chooses one; only that one's answers to the test images are scored.**
        seeds: of each variant.
        kept: whether the weights of the first seed are kept.
    """

    data: str
    name: str
    network: str
    recipe: Overrides = field(default_factory=dict)
    variants: Mapping[str, Overrides] = field(default_factory=lambda: {"": {}})
    seeds: tuple[int, ...] = SEEDS
    kept: bool = False

    @property
    def cells(self) -> Iterator[Cell]:
        """One training for each variant and seed."""
        for variant in self.variants:
            for seed in self.seeds:
                yield Cell(self, variant, seed)


@dataclass(frozen=True)
class Cell:
    """One training."""

    row: Row
    variant: str
    seed: int

    @property
    def name(self) -> str:
        """Unique; also that of its model."""
        parts = [self.row.data, self.row.name, self.variant, str(self.seed)]
        return "-".join(part for part in parts if part)

    @property
    def recipe(self) -> dict[str, Any]:
        """Its recipe values."""
        chosen = {**self.row.recipe, **self.row.variants[self.variant]}
        return {"network": self.row.network, "seed": self.seed, **chosen}

    @property
    def kept(self) -> bool:
        """Whether its weights are kept."""
        return self.row.kept and self.seed == self.row.seeds[0]


def _capsnets() -> Iterator[Row]:
    """Sabour et al. 2017, table 1: iterations of routing, with and without reconstruction."""
    for iterations in (1, 3):
        for weight, what in ((0.0, "plain"), (0.392, "reconstruction")):
            yield Row(
                "mnist10k",
                f"capsnet-{iterations}-{what}",
                "capsnet",
                {
                    "epochs": 30,
                    "iterations": iterations,
                    "reconstruction_weight": weight,
                    "augmentation": _SHIFTED,
                    **_MEAN,
                },
            )


def _clothes(epochs: int, **more: Overrides) -> dict[str, Any]:
    return {
        "recipe": {"epochs": epochs, "augmentation": _MIRRORED, **_LARGE, **_MEAN},
        "variants": {"mirrored": {}, "erased": {"augmentation": _ERASED}, **more},
    }


_DIGITS = {"shifted": {"augmentation": _SHIFTED}, "affine": {"augmentation": _AFFINE}}

ROWS: tuple[Row, ...] = (
    Row("fashion", "efficient", "efficient", **_clothes(40, long=_LONG), kept=True),
    Row(
        "fashion", "capsnet", "capsnet",
        {"epochs": 16, "augmentation": _MIRRORED, **_LARGE, **_MEAN},
        {
            "": {},
            "long": {"epochs": 60},
            "erased": {"epochs": 60, "augmentation": _ERASED},
        },
    ),
    Row("fashion", "cnn", "cnn", **_clothes(40, long=_LONG)),
    Row("fashion", "resnet", "resnet", **_clothes(20)),
    Row("mnist10k", "efficient", "efficient", {"epochs": 100, **_MEAN}, _DIGITS),
    Row("mnist10k", "cnn", "cnn", {"epochs": 100, **_MEAN}, _DIGITS),
    *_capsnets(),
    Row(
        "mnist10k", "matrix", "matrix",
        {"epochs": 30, "batch_size": 64, "augmentation": _SHIFTED, **_MEAN},
        {"": {}, "affine": {"epochs": 50, "augmentation": _AFFINE}},
    ),
    # the built-in model `digits`: its reconstructions are looked at
    Row(
        "mnist10k", "small-capsnet", "capsnet",
        {
            "epochs": 80, "reconstruction_weight": 5, "augmentation": {"shift": 1}, **_MEAN,
            "arguments": {"width": 128, "primary_types": 8},
        },
        seeds=(0,), kept=True,
    ),
)  # fmt: skip
