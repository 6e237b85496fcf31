"""Axon phantoms: simulated two-photon images of axons with boutons, with exact labels.

The setting of Bass et al. 2019 (CapsPix2Pix) without any download. A geometry is drawn first:
branching centrelines (persistent random walks), a radius that varies along them, boutons. The label
map follows from the geometry alone. The appearance is then drawn: brightness along the axons,
out-of-focus fibres and spots in the background, uneven illumination, the microscope's point-spread
function, gain, photon (Poisson) and read-out (Gaussian) noise. One geometry can be given many
appearances: repeats of a label map, with which the diversity of synthetic images is compared.

Everything follows from the seed and the numbers of the case and the repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, signal
from skimage.measure import block_reduce

from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, write_image

Floats = NDArray[np.float32]
Range = tuple[float, float]

LABELS = {0: "background", 1: "axon"}
#: Smallest edge of an image in pixels.
SMALLEST = 32
#: Labels and fluorescence are drawn at this multiple of the resolution, for smooth edges.
_OVERSAMPLING = 2


@dataclass(frozen=True)
class AxonGeometry:
    """Parameters of growth: lengths in pixels, angles in radians, ranges sampled uniformly.

    Attributes:
        axons: number in a field of 128 x 128 pixels; proportional to the edge of a larger one.
        radius: of an axon.
        taper: standard deviation of the logarithm of the radius along an axon.
        stiffness: correlation length of the direction.
        wander: standard deviation of the change of direction over that length.
        branch_every: mean length between branches.
        branch_angle: between a branch and its parent.
        bouton_every: mean length between boutons.
        bouton_radius: in units of the axon's radius.
    """

    axons: tuple[int, int] = (1, 3)
    radius: Range = (1.0, 1.8)
    taper: float = 0.2
    stiffness: float = 20.0
    wander: float = 0.25
    branch_every: float = 140.0
    branch_angle: Range = (0.5, 1.2)
    bouton_every: float = 28.0
    bouton_radius: Range = (1.6, 2.6)


@dataclass(frozen=True)
class AxonAppearance:
    """Parameters of a two-photon image: ranges sampled uniformly, once per image.

    Attributes:
        brightness: fluorescence of the axons.
        bouton_brightness: in units of the axon's.
        unevenness: standard deviation of the logarithm of the brightness along an axon.
        psf: standard deviation of the lateral point-spread function, in pixels.
        out_of_focus: number of unlabelled fibres outside the focal plane.
        defocus: standard deviation of their blur, in pixels.
        spots: number of unlabelled bright spots (autofluorescent granules) in 128 x 128 pixels.
        haze: fluorescence of the tissue.
        vignette: relative loss of light from the brightest place to the darkest.
        photons: per pixel at a fluorescence of one.
        read_noise: standard deviation, in photons.
        gain: of the detector; the result is clipped at one.
    """

    brightness: Range = (0.45, 1.0)
    bouton_brightness: Range = (1.2, 2.0)
    unevenness: float = 0.25
    psf: Range = (0.7, 1.2)
    out_of_focus: tuple[int, int] = (0, 4)
    defocus: Range = (2.0, 5.0)
    spots: tuple[int, int] = (0, 14)
    haze: Range = (0.05, 0.25)
    vignette: Range = (0.0, 0.5)
    photons: Range = (15.0, 80.0)
    read_noise: Range = (0.5, 2.0)
    gain: Range = (0.6, 1.1)


class Fibres(NamedTuple):
    """Points along centrelines, half a pixel apart.

    Attributes:
        points: ``[N, 2]``, (row, column).
        radius: ``[N]``, in pixels.
        along: ``[N]``, position along the fibre in pixels; those of fibres do not overlap.
        bouton: ``[N]``, 1 at the centre of a bouton, 0 outside.
    """

    points: Floats
    radius: Floats
    along: Floats
    bouton: Floats


class Phantom(NamedTuple):
    """Image float32 ``[1, H, W]`` in [0, 1] and label uint8 ``[1, H, W]``."""

    image: Floats
    label: NDArray[np.uint8]


def axon_phantom(
    seed: int,
    case: int,
    repeat: int = 0,
    size: int = 128,
    geometry: AxonGeometry | None = None,
    appearance: AxonAppearance | None = None,
) -> Phantom:
    """One image with its label map.

    Args:
        seed, case: determine the geometry.
        repeat: with them, determines the appearance.
        size: edge in pixels.
        geometry, appearance: parameters of both.

    Raises:
        InvalidParameter: `size` below 32.
    """
    if size < SMALLEST:
        raise InvalidParameter(f"size={size}: must be at least {SMALLEST}")
    fibres = draw_axons(np.random.default_rng([seed, case]), size, geometry or AxonGeometry())
    rng = np.random.default_rng([seed, case, repeat, 1])
    image = render_image(fibres, rng, size, appearance or AxonAppearance())
    return Phantom(image, render_labels(fibres, size))


def axon_phantoms(
    count: int, seed: int = 0, size: int = 128, repeats: int = 1
) -> Iterator[tuple[str, Phantom]]:
    """Name and phantom of `count` geometries, each with `repeats` appearances."""
    digits = max(4, len(str(count - 1)))
    for case in range(count):
        for repeat in range(repeats):
            suffix = f"-look{repeat}" if repeats > 1 else ""
            yield f"axons-{case:0{digits}}{suffix}", axon_phantom(seed, case, repeat, size)


def write_phantom(folder: Path, name: str, phantom: Phantom) -> None:
    """Write ``images/NAME.png`` and ``labels/NAME.png``, both 8 bits deep."""
    for kind, array in (("images", np.rint(phantom.image * 255)), ("labels", phantom.label)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        picture = MedicalImage(array=array.astype(np.uint8), format="png")
        write_image(picture, folder / kind / f"{name}.png")


def draw_axons(rng: np.random.Generator, size: int, geometry: AxonGeometry) -> Fibres:
    """Draw at least one axon, with its branches, through the central part of the field."""
    count = max(1, round(rng.integers(geometry.axons[0], geometry.axons[1] + 1) * size / 128))
    fibres: list[Fibres] = []
    for _ in range(count):
        middle = rng.uniform(0.2, 0.8, 2) * size
        heading = rng.uniform(0, 2 * np.pi)
        radius = rng.uniform(*geometry.radius)
        for side in (0.0, np.pi):
            _grow(rng, fibres, middle, heading + side, radius, size, geometry)
    return _join(fibres)


def _grow(
    rng: np.random.Generator,
    fibres: list[Fibres],
    start: NDArray[np.float64],
    heading: float,
    radius: float,
    size: int,
    geometry: AxonGeometry,
    generation: int = 0,
) -> None:
    """Append a fibre, up to where it leaves the field, and its branches."""
    points, headings = _walk(rng, start, heading, size, geometry)
    if len(points) < 4:
        return
    length = len(points)
    bouton = _boutons(rng, length, geometry)
    swell = 1 + bouton * (rng.uniform(*geometry.bouton_radius) - 1)
    widths = radius * np.exp(geometry.taper * _smooth_noise(rng, length, geometry.stiffness))
    along = np.arange(length) / 2
    fibres.append(Fibres(*(x.astype(np.float32) for x in (points, widths * swell, along, bouton))))
    if generation == 2:
        return
    for place in np.flatnonzero(rng.uniform(size=length) < 0.5 / geometry.branch_every):
        turn = rng.uniform(*geometry.branch_angle) * rng.choice((-1, 1))
        _grow(rng, fibres, points[place], headings[place] + turn, 0.85 * radius, size, geometry,
              generation + 1)  # fmt: skip


def _walk(
    rng: np.random.Generator,
    start: NDArray[np.float64],
    heading: float,
    size: int,
    geometry: AxonGeometry,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points half a pixel apart, up to the edge of the field, and the direction at each."""
    steps = 6 * size
    curvature = _smooth_noise(rng, steps, geometry.stiffness) * geometry.wander
    headings = heading + np.cumsum(curvature) / geometry.stiffness
    moves = 0.5 * np.stack([np.sin(headings), np.cos(headings)], 1)
    points = start + np.cumsum(moves, 0)
    outside = np.flatnonzero(((points < -4) | (points > size + 4)).any(1))
    end = outside[0] if len(outside) else steps
    return points[:end], headings[:end]


def _boutons(rng: np.random.Generator, length: int, geometry: AxonGeometry) -> NDArray[np.float64]:
    """``[length]``, 1 at the centre of each bouton, falling to 0 over the axon's width."""
    middles = (rng.uniform(size=length) < 0.5 / geometry.bouton_every).astype(float)
    width = 2.0 * geometry.radius[1]
    bumps = np.asarray(ndimage.gaussian_filter1d(middles, width) * width * np.sqrt(2 * np.pi))
    return np.asarray(np.clip(bumps, 0.0, 1.0))


def _smooth_noise(rng: np.random.Generator, length: int, scale: float) -> NDArray[np.float64]:
    """Gaussian noise ``[length]`` of unit variance and correlation length `scale` pixels."""
    kept = np.exp(-1 / (2 * scale))
    white = rng.standard_normal(length) * np.sqrt(1 - kept**2)
    white[0] = rng.standard_normal()
    return np.asarray(signal.lfilter([1.0], [1.0, -kept], white))


def _join(fibres: list[Fibres]) -> Fibres:
    """Concatenate fibres, shifting `along` so that none overlap."""
    offsets = np.cumsum([0, *(fibre.along[-1] + 1000 for fibre in fibres[:-1])])
    shifted = [f._replace(along=f.along + o) for f, o in zip(fibres, offsets, strict=True)]
    return Fibres(
        *(np.concatenate(parts).astype(np.float32) for parts in zip(*shifted, strict=True))
    )


def render_labels(fibres: Fibres, size: int) -> NDArray[np.uint8]:
    """Label map ``[1, size, size]``: pixels at least half covered by a fibre."""
    inside = _stamp(fibres, np.ones(len(fibres.radius), np.float32), size) > 0
    return (_shrink(inside.astype(np.float32)) >= 0.5).astype(np.uint8)[None]


def render_image(
    fibres: Fibres, rng: np.random.Generator, size: int, appearance: AxonAppearance
) -> Floats:
    """Image ``[1, size, size]`` in [0, 1] of fibres in front of a random background."""
    light = rng.uniform(*appearance.brightness) * _fluorescence(fibres, rng, size, appearance)
    light = ndimage.gaussian_filter(light, rng.uniform(*appearance.psf))
    light = light + _background(rng, size, appearance)
    light = light * _vignette(rng, size, rng.uniform(*appearance.vignette))
    photons = rng.uniform(*appearance.photons)
    counts = rng.poisson(light * photons).astype(np.float64)
    counts += rng.normal(0, rng.uniform(*appearance.read_noise), light.shape)
    return _float32(np.clip(counts / photons * rng.uniform(*appearance.gain), 0, 1))[None]


def _fluorescence(
    fibres: Fibres, rng: np.random.Generator, size: int, appearance: AxonAppearance
) -> Floats:
    """Emission of the fibres before the optics: brighter boutons, uneven along each fibre."""
    noise = _smooth_noise(rng, int(2 * fibres.along[-1]) + 2, 15.0)
    uneven = np.exp(appearance.unevenness * noise[(2 * fibres.along).astype(int)])
    boutons = 1 + fibres.bouton * (rng.uniform(*appearance.bouton_brightness) - 1)
    return _shrink(_stamp(fibres, (uneven * boutons).astype(np.float32), size))


def _background(rng: np.random.Generator, size: int, appearance: AxonAppearance) -> Floats:
    """Haze, out-of-focus fibres and spots."""
    cloud = ndimage.gaussian_filter(rng.standard_normal((size, size)), size / 10, mode="reflect")
    background = rng.uniform(*appearance.haze) * (1 + 0.5 * cloud / max(cloud.std(), 1e-6))
    far = AxonGeometry(axons=(1, 1), radius=(1.0, 2.5), branch_every=1e9)
    for _ in range(rng.integers(appearance.out_of_focus[0], appearance.out_of_focus[1] + 1)):
        fibre = draw_axons(rng, size, far)
        shape = _shrink(_stamp(fibre, np.ones(len(fibre.radius), np.float32), size))
        blurred = ndimage.gaussian_filter(shape, rng.uniform(*appearance.defocus))
        background = background + rng.uniform(0.3, 1.0) * blurred
    count = round(rng.integers(appearance.spots[0], appearance.spots[1] + 1) * (size / 128) ** 2)
    spots = np.zeros((size, size))
    np.add.at(spots, tuple(rng.integers(0, size, (2, count))), rng.uniform(0.5, 4.0, count))
    background = background + ndimage.gaussian_filter(spots, rng.uniform(0.7, 1.3))
    return _float32(np.clip(background, 0, None))


def _vignette(rng: np.random.Generator, size: int, loss: float) -> Floats:
    """Illumination: 1 at the brightest place, 1 - loss at the darkest."""
    rows, columns = np.mgrid[:size, :size] / size - rng.uniform(0.2, 0.8, (2, 1, 1))
    distance = rows**2 + columns**2
    return _float32(1 - loss * distance / distance.max())


def _stamp(fibres: Fibres, values: Floats, size: int) -> Floats:
    """Oversampled maximum over the points, each a disc of its radius and value."""
    canvas = np.zeros((size * _OVERSAMPLING,) * 2, np.float32)
    reach = int(np.ceil(fibres.radius.max() * _OVERSAMPLING)) + 1
    offsets = np.indices((2 * reach + 1,) * 2).reshape(2, -1).T - reach
    centres = fibres.points * _OVERSAMPLING
    pixels = np.floor(centres).astype(int)[:, None] + offsets
    distance = np.hypot(*np.moveaxis(pixels + 0.5 - centres[:, None], -1, 0))
    near = distance <= fibres.radius[:, None] * _OVERSAMPLING
    near &= ((pixels >= 0) & (pixels < size * _OVERSAMPLING)).all(-1)
    painted = np.broadcast_to(values[:, None], near.shape)[near]
    np.maximum.at(canvas, tuple(pixels[near].T), painted)
    return canvas


def _float32(values: Any) -> Floats:  # noqa: ANN401 - SciPy has no types
    return np.asarray(values, dtype=np.float32)


def _shrink(canvas: Floats) -> Floats:
    """From the oversampled grid to pixels."""
    return _float32(block_reduce(canvas, _OVERSAMPLING, np.mean))
