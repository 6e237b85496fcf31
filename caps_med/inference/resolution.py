"""Whether a volume has the resolution on which a model was trained."""

from __future__ import annotations

from caps_med.bundles import ModelCard
from caps_med.images import SliceStack

#: Voxels longer than this many times those of the training show its structures otherwise: on
#: Colin27 the fluid around the brain grows by a fifth where the slices alone are twice as thick.
COARSE = 1.2

#: What comes of it, for labels that are found in an image and for an image of a label map.
_FOUND = (
    "thin structures come out too large; compare their volumes between images of one resolution "
    "only"
)
_SYNTHETIC = "borders come out in steps, and thin structures are missing"


def coarser_than_training(card: ModelCard, stack: SliceStack) -> tuple[str, ...]:
    """A warning for a volume whose voxels are much longer than those of the model's training.

    Such a voxel averages over several tissues. If these are bright and dark, the average looks
    like a tissue in between, however finely the slice is resampled: thin structures grow. Volumes
    computed from probabilities instead of labels grow just as much (see
    ``docs/results/models.md``).
    """
    if stack.spacing is None or stack.slice_mm is None or card.spacing_mm is None:
        return ()
    have = (*stack.spacing, stack.slice_mm)
    trained = (*card.spacing_mm, card.slice_mm or stack.slice_mm)
    if all(mm <= COARSE * of for mm, of in zip(have, trained, strict=True)):
        return ()
    known = trained if card.slice_mm else card.spacing_mm
    then = _FOUND if card.takes_images else _SYNTHETIC
    return (
        f"the voxels are {_mm(have[: len(known)])} (rows, columns{', slices' * (len(known) > 2)}), "
        f"those of the training were {_mm(known)}: {then}",
    )


def _mm(lengths: tuple[float, ...]) -> str:
    return " x ".join(f"{length:.3g}" for length in lengths) + " mm"
