"""What calls cost, from the shapes of image and network.

The factors are upper bounds of measured peaks (`tests/api/test_costs.py` measures them again).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection

from torch import nn

from api.budget import Cost
from caps_med.images import MedicalImage
from caps_med.images.blocks import ENTRIES
from caps_med.inference import Model, ShownMap
from caps_med.inference.passes import (
    pass_positions,
    slices_of_pass,
    takes_windows,
    total_positions,
)
from caps_med.inference.refinement import FITTED
from caps_med.inference.suitability import WINDOW
from caps_med.inference.uncertainty_maps import PROBABILITIES
from caps_med.layers import kernel_bytes
from caps_med.networks import (
    CapsuleNetwork,
    ClassificationNetwork,
    SegmentationNetwork,
    SynthesisNetwork,
)

_FLOAT = 4
#: Bytes of a pass over those of its capsules: votes, copies and what convolutions need.
PASS_FACTOR = 3
#: Bytes per position of the convolutions that a network does not list among its layers: at least,
#: and for each of the widest channels at full size, as many times as a pass holds them.
UNLISTED_LAYERS, UNLISTED_BYTES, UNLISTED_FACTOR = 1024, 32, 2
#: Copies of the votes of a layer by unit routing, while they are brought to length one.
UNIT_COPIES = 4
#: Copies of the whole image that preparation makes, and of a channel of the answer while it is
#: assembled and brought back to the image's own voxels: of a part of it where the network takes
#: slices.
INPUT_COPIES, OUTPUT_COPIES = 4, 4
#: Of a block of a part, arrays of each class while labels and their certainty are read off it, and
#: others, among them the entropy, which an answer's numbers hold the mean of.
CLASS_COPIES, ENTROPY_COPIES = 4, 5
#: Bytes of a voxel of a slice's image while its percentiles are taken, for each byte of its type.
SORTED_COPIES = 3
#: Bytes of a voxel of the labels, and while the objects of one are counted: their numbers, masks.
LABEL_BYTES, OBJECT_BYTES = 2, 6
#: Bytes of a voxel while labels are refined: the most probable of each, and which are decided anew.
REFINED_BYTES = 3
#: Bytes of a voxel while the largest components are found: masks, numbers, one map of a class.
COMPONENT_BYTES = 16
#: Copies of the intensities that are refined by, and of the probabilities of those voxels that are
#: fitted to, or decided in one block.
REFINED_COPIES, FITTED_COPIES = 2, 8
#: Bytes of each pixel of a slice while its statistics are taken.
STATISTICS = 40
#: Bytes of each class and position while the votes of views are counted, and flipped slices.
VOTE_BYTES = 4 + 2 * _FLOAT
#: Copies of an answer: its arrays, and their encoded form.
ANSWER_COPIES = 2
#: Routing iterations whose couplings are kept, at most.
MOST_ITERATIONS = 10
#: Bytes of anything that does not depend on sizes.
FIXED = 16 * 2**20
#: Bytes of importing MONAI's sliding window, which the first image that takes windows causes.
IMPORTED, WINDOWS_IMPORT = "monai.inferers", 320 * 2**20


def segmentation(
    model: Model,
    image: MedicalImage,
    refined: bool = False,
    disagreement: bool = False,
    maps: Collection[ShownMap] = PROBABILITIES,
    tta: bool = False,
) -> Cost:
    """Segment an image: an answer of labels and maps, which may be refined.

    Args:
        disagreement: whether the views of `Segmenter.views` are segmented, and their votes counted.
        maps: those that the answer keeps.
        tta: whether the answer is the mean over mirror images.

    Raises:
        InvalidParameter: `tta`, and the model has learned from no mirror images.
    """
    segmenter = model.segmenter.with_tta(tta)
    network = segmenter.network
    classes = network.out_channels
    grid = _grid(model, image)
    voxels = math.prod(image.spatial_shape)
    disagreement = disagreement or "disagreement" in maps
    part = max(math.prod(grid), voxels)
    if network.spatial_dims == 2 and not disagreement:
        part = part * min(grid[0], slices_of_pass(network, grid[1:])) // grid[0]
    reading = (OUTPUT_COPIES - 1) * classes * _FLOAT * part
    reading += (CLASS_COPIES * classes + ENTROPY_COPIES) * _FLOAT * min(part, ENTRIES)
    working = max(reading, _background_and_pass(network, grid)) + classes * _FLOAT * part
    working += STATISTICS * min(math.prod(grid[1:]), WINDOW**2) + OBJECT_BYTES * voxels
    if tta:  # a mirror image, the answer to it, and the sum
        working += (network.in_channels + 2 * classes) * _FLOAT * pass_positions(network, grid)
    if disagreement:
        working += VOTE_BYTES * max(2, classes) * math.prod(grid) + OUTPUT_COPIES * _FLOAT * voxels
    working += _normalized(model, image, grid)
    return Cost(
        held=FIXED + ANSWER_COPIES * voxels * (LABEL_BYTES + _map_bytes(maps, classes)),
        working=max(working, _refining(model, image, classes)) if refined else working,
        positions=segmenter.passes_over(disagreement) * total_positions(network, grid),
    )


def uncertainty(model: Model, image: MedicalImage) -> Cost:
    """Segment an image and its mirror images, count their votes, and describe its capsules."""
    once = segmentation(model, image, disagreement=True)
    described = features(model, image, kept=False)
    return Cost(
        held=once.held,
        working=max(once.working, described.working),
        positions=once.positions + described.positions,
    )


def synthesis(model: Model, labels: MedicalImage, count: int = 1) -> Cost:
    """Synthesize `count` images of a label map."""
    network = model.network
    channels = network.image_channels if isinstance(network, SynthesisNetwork) else 1
    grid = _grid(model, labels)
    voxels = math.prod(labels.spatial_shape)
    working = OUTPUT_COPIES * channels * _FLOAT * max(math.prod(grid), voxels)
    windowed = isinstance(network, SynthesisNetwork) and network.windowed
    return Cost(
        held=FIXED + ANSWER_COPIES * count * voxels * channels * _FLOAT,
        working=working + _prepared(model, labels, grid) + _one_pass(network, grid, windowed),
        positions=count * total_positions(network, grid),
    )


def classification(model: Model, image: MedicalImage) -> Cost:
    """Classify an image: what a pass takes does not depend on the image's size."""
    grid = _grid(model, image)
    return Cost(
        held=FIXED,
        working=_prepared(model, image, grid)
        + _one_picture(model.network)
        + STATISTICS * min(math.prod(grid[1:]), WINDOW**2),
        positions=total_positions(model.network, grid),
    )


def features(
    model: Model, image: MedicalImage, layer: str | None = None, kept: bool = True
) -> Cost:
    """The capsules of one slice, which is processed whole.

    Args:
        layer: only this one is in the answer.
        kept: whether the answer holds them, and not only numbers.
    """
    network = model.network
    grid = _whole(model, image)
    positions = math.prod(_padded(network, grid))
    held = positions * _layer_bytes(network, layer) if kept else 0
    return Cost(
        held=FIXED + round(2.2 * held),  # with lengths, and once more encoded
        working=_prepared(model, image, _grid(model, image))
        + round(positions * _pass_bytes(network))
        + _kernels(network, kept=False),
        positions=total_positions(network, grid),
    )


def inspection(model: Model, image: MedicalImage) -> Cost:
    """Classify a picture and keep the capsules of all layers, the first maps and all couplings."""
    once = classification(model, image)
    network, grid = model.network, _grid(model, image)
    maps = _maps(network)
    if network.explored.layers:  # the children of the class capsules, in each iteration
        below, last = network.explored.layers[-2:]
        children = below.types * math.prod(-(-edge // below.stride) for edge in grid[1:])
        maps += MOST_ITERATIONS * children * last.types * _FLOAT
    return Cost(
        held=FIXED + round(2.2 * maps),  # and once more encoded
        working=once.working,
        positions=2 * once.positions,  # the coupling coefficients of all iterations
    )


def drawing(model: Model, count: int) -> Cost:
    """`count` images from poses of a class capsule, by the decoder alone."""
    network = model.network
    channels = network.in_channels if isinstance(network, ClassificationNetwork) else 1
    size = math.prod(network.image_size) if isinstance(network, ClassificationNetwork) else 1
    capsules = network.layers[-1].types * network.layers[-1].atoms if network.layers else 0
    each = _FLOAT * (2 * channels * size + 2 * capsules + UNLISTED_LAYERS)
    return Cost(
        held=FIXED + ANSWER_COPIES * count * each,
        working=count * each,
        positions=size * (1 + count // 16),
    )


def manipulation(model: Model, image: MedicalImage, count: int) -> Cost:
    """Reconstructions of one slice with `count` shifts of an atom."""
    once = features(model, image, kept=False)
    network = model.network
    images = SegmentationNetwork, ClassificationNetwork
    channels = network.in_channels if isinstance(network, images) else 1
    size = math.prod(_padded(network, _whole(model, image))) * channels * _FLOAT
    return Cost(
        held=FIXED + 2 * ANSWER_COPIES * (count + 1) * size,
        working=once.working * 3 // 2,  # the capsules of the last layer once more, masked
        positions=once.positions * (1 + count // 4),
    )


def interpolation(model: Model, labels: MedicalImage, steps: int, with_features: bool) -> Cost:
    """Images between two seeds, and the last layer's capsules of each."""
    images = synthesis(model, labels, steps)
    if not with_features:
        return images
    last = model.layers[-1].name if model.layers else None
    each = features(model, labels, last)
    return Cost(
        held=images.held + steps * each.held,
        working=max(images.working, each.working),
        positions=images.positions + steps * each.positions,
    )


def _grid(model: Model, image: MedicalImage) -> tuple[int, int, int]:
    """(slices, rows, columns) as the network takes them."""
    card = model.bundle.card
    if card.classification:
        return 1, *card.classification.pictures.size
    return card.preprocessing.grid(image)


def _whole(model: Model, image: MedicalImage) -> tuple[int, int, int]:
    """What is processed whole: one slice, by a 3-D network the volume."""
    depth, rows, columns = _grid(model, image)
    return (1 if model.network.spatial_dims == 2 else depth), rows, columns


def _padded(network: CapsuleNetwork, grid: tuple[int, int, int]) -> tuple[int, ...]:
    depth, *size = grid
    flat = network.spatial_dims == 2
    axes = [-(-n // network.divisor) * network.divisor for n in (size if flat else grid)]
    return (depth, *axes) if flat else tuple(axes)


def _prepared(model: Model, image: MedicalImage, grid: tuple[int, int, int]) -> int:
    """Bytes of preparing all slices: normalized, resampled, joined with their neighbours."""
    voxels = len(image.array) * math.prod(image.spatial_shape)
    around = 2 * model.bundle.card.preprocessing.neighbours + 1
    joined = 2 * around * _FLOAT * len(image.array) * math.prod(grid) if around > 1 else 0
    return INPUT_COPIES * _FLOAT * voxels + 2 * _FLOAT * math.prod(grid) + joined


def _normalized(model: Model, image: MedicalImage, grid: tuple[int, int, int]) -> int:
    """Bytes of a segmentation's slices: percentiles are taken, blocks scaled, the result resampled
    where the spacing is another, and continued at both ends for the neighbours.
    """
    preparation, channels = model.bundle.card.preprocessing, len(image.array)
    sorted_bytes = SORTED_COPIES * image.array.itemsize + 1
    each = _FLOAT + (0 if preparation.normalization.window else sorted_bytes)
    own, given = (sorted(n for n in sizes if n > 1) for sizes in (grid, image.spatial_shape))
    resampled = own != given
    copies = 2 * resampled + (preparation.neighbours > 0)
    continued = math.prod(grid) + 2 * preparation.neighbours * math.prod(grid[1:])
    return channels * (each * math.prod(image.spatial_shape) + copies * _FLOAT * continued)


def _refining(model: Model, image: MedicalImage, classes: int) -> int:
    """Bytes of refining labels, which follows the passes; its answer is the copy that is held."""
    voxels, channels = math.prod(image.spatial_shape), len(image.array)
    each = REFINED_BYTES + channels * (REFINED_COPIES * _FLOAT + image.array.itemsize)
    fitting = each * voxels + FITTED_COPIES * classes * _FLOAT * min(voxels, max(FITTED, ENTRIES))
    if model.bundle.card.largest_components is None:
        return fitting
    return max(fitting, (COMPONENT_BYTES + _FLOAT * classes) * voxels)


def _map_bytes(maps: Collection[ShownMap], classes: int) -> int:
    """Bytes of a voxel of the maps that an answer keeps; from probabilities another may follow."""
    return _FLOAT * sum(classes + 1 if name == "probabilities" else 1 for name in maps)


def _background_and_pass(network: CapsuleNetwork, grid: tuple[int, int, int]) -> int:
    """Bytes of the largest pass, and of the capsules of the background of a volume of slices."""
    known = grid[0] > 1 and network.spatial_dims == 2
    background = known * pass_positions(network, grid) * _layer_bytes(network)
    return _one_pass(network, grid) + round(background)


def _one_pass(network: CapsuleNetwork, grid: tuple[int, int, int], windowed: bool = True) -> int:
    """Bytes of the largest pass over slices, in windows where it may and must be."""
    importing = windowed and takes_windows(network, grid) and IMPORTED not in sys.modules
    passing = round(pass_positions(network, grid, windowed) * _pass_bytes(network))
    return passing + _kernels(network, grid[0] > 1) + importing * WINDOWS_IMPORT


def _kernels(network: CapsuleNetwork, kept: bool) -> int:
    """Bytes of the kernels of convolutions by tiles: of all layers for a volume, else of one."""
    sizes = kernel_bytes(network)
    return sum(sizes) if kept else max(sizes, default=0)


def _one_picture(network: CapsuleNetwork) -> int:
    """Bytes of classifying a picture: maps, votes, and a convolution's weights in another order."""
    votes = network.vote_count if isinstance(network, ClassificationNetwork) else 0
    ordered = max((weights.numel() for weights in network.parameters()), default=0)
    return round(PASS_FACTOR * (_maps(network) + _FLOAT * votes) + _FLOAT * ordered)


def _maps(network: CapsuleNetwork) -> float:
    """Bytes of all maps of a picture; what a network does not list is no larger than its stem."""
    shown = network.explored
    if not isinstance(shown, ClassificationNetwork):
        return 0
    listed = sum(
        math.prod(-(-edge // info.stride) for edge in shown.image_size) * info.types * info.atoms
        for info in shown.layers
    )
    halved = shown.stem.out_channels * math.prod(shown.image_size) if shown.stem.halvings else 0
    return _FLOAT * (listed + halved) + UNLISTED_LAYERS * math.prod(shown.stem.out_size)


def _pass_bytes(network: CapsuleNetwork) -> float:
    """Bytes of a pass per position of the input: capsules, votes and what is not listed."""
    listed = PASS_FACTOR * _listed_bytes(network)
    votes = UNIT_COPIES * _FLOAT * network.explored.unit_votes
    return listed + votes + UNLISTED_FACTOR * _unlisted_bytes(network)


def _layer_bytes(network: CapsuleNetwork, layer: str | None = None) -> float:
    """Bytes of the capsules of all layers, or of one, per position of the input."""
    listed = _listed_bytes(network, layer)
    return listed + _unlisted_bytes(network) if layer is None or not listed else listed


def _listed_bytes(network: CapsuleNetwork, layer: str | None = None) -> float:
    """Bytes of the capsules that a network shows, of all layers or of one, per position."""
    sizes = (
        info.types * info.atoms * _FLOAT / info.stride**network.spatial_dims
        for info in network.layers
        if layer in (None, info.name)
    )
    return float(sum(sizes))


def _unlisted_bytes(network: CapsuleNetwork) -> int:
    """Bytes per position of the convolutions of a network that shows no or not all layers.

    The first of a generator is at a coarse scale; that of a network with layers is one of them.
    """
    if network.layers and network.explored.lists_all:
        return 0
    if network.layers and (held := network.explored.decoder_channels):
        return round(_FLOAT * held)
    kind = nn.modules.conv._ConvNd
    convolutions = [one for one in network.explored.modules() if isinstance(one, kind)]
    channels = [one.in_channels for one in convolutions[-1:]]
    if isinstance(network, SegmentationNetwork) and not network.layers:
        channels += [one.out_channels for one in convolutions[:1]]
    return max(UNLISTED_LAYERS, *(UNLISTED_BYTES * n for n in channels))
