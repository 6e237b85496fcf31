"""How widely the images that are drawn from label maps vary."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

Amount = Annotated[FiniteFloat, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Change = Annotated[float, Field(ge=0, lt=1)]
Range = tuple[Amount, Amount]


class Randomization(BaseModel):
    """Ranges of the generator's random values; the defaults are close to SynthSeg's.

    Lengths are in millimetres, of label maps without a spacing in pixels. Intensities are on a
    scale where means lie in 0..1.

    Attributes:
        rotation: maximum angle about each axis, in radians.
        scaling, shear: maximum relative change of each axis.
        elastic: largest standard deviation of the displacements.
        elastic_spacing: distance of the points at which displacements are drawn.
        flip_columns, flip_rows: probability of a flip, left-right and top-bottom.
        shift: how far the field of view may leave the label map's labelled box.
        anywhere: share of slices taken anywhere, not only through the labels to be segmented.
        other_planes: share of slices cut in the two other planes than the one that is trained for.
        mean, deviation: range of the mean and of the standard deviation of a label's Gaussian.
        related: share of images in which the labels of one class have similar means, as the
            tissues of a real image do.
        bias: largest standard deviation of the bias field's logarithm.
        bias_points: points per axis at which the bias field is drawn.
        resolution: range of the pixel size that is simulated.
        thickness: range of the slice thickness that is simulated (slices of volumes only).
        noise: largest standard deviation of noise at the simulated resolution.
        gamma: standard deviation of the logarithm of gamma.
        masked: share of images in which all that is outside is black, as after skull stripping;
            only if the labels name what is `outside`.
        margin: range of the distance from the inner labels at which the mask ends.
        plain_background: share of images whose background is a constant.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rotation: Amount = 0.26
    scaling: Change = 0.2
    shear: Amount = 0.03
    elastic: Amount = 4.0
    elastic_spacing: Annotated[FiniteFloat, Field(gt=0)] = 25.0
    flip_columns: Share = 0.5
    flip_rows: Share = 0.0
    shift: Amount = 15.0
    anywhere: Share = 0.1
    other_planes: Share = 0.4
    mean: Range = (0.1, 0.9)
    deviation: Range = (0.01, 0.1)
    related: Share = 0.6
    bias: Amount = 0.6
    bias_points: Annotated[int, Field(ge=2, le=32)] = 4
    resolution: Range = (1.0, 4.0)
    thickness: Range = (1.0, 6.0)
    noise: Amount = 0.05
    gamma: Amount = 0.4
    masked: Share = 0.5
    margin: Range = (0.5, 10.0)
    plain_background: Share = 0.3

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for name in ("mean", "deviation", "resolution", "thickness", "margin"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} must rise, got {low:g} to {high:g}")
        return self
