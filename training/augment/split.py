"""Training images and test images of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.wording import listed
from training.augment.config import NAMED, AugmentConfig
from training.data import Dataset, open_dataset
from training.data.check.check import image_digest
from training.data.reading import read_image_of
from training.data.samples import HELD_OUT
from training.labelmaps.originals import Originals, read_originals
from training.progress import tracked

#: Fewest groups to test on, and to train on.
_LEAST_TEST, _LEAST_TRAINING = 2, 3


@dataclass(frozen=True)
class Parts:
    """The data of a run.

    Attributes:
        dataset: the training images of generator, judge and segmenters.
        originals: their label maps.
        test: the test images of the segmenters; None where the benefit is not measured.
    """

    dataset: Dataset
    originals: Originals
    test: Dataset | None

    @property
    def cases(self) -> dict[str, dict[str, str]]:
        """The cases of both parts, with their groups."""
        parts = {"training": self.dataset, "test": self.test}
        return {
            part: {case.name: case.grouped for case in data.cases}
            for part, data in parts.items()
            if data is not None
        }


def test_groups(dataset: Dataset) -> frozenset[str]:
    """Every fifth group, at least two, evenly spaced; none of data without cases."""
    groups = dataset.groups
    count = max(_LEAST_TEST, len(groups) // HELD_OUT) if groups else 0
    return frozenset(groups[(2 * k + 1) * len(groups) // (2 * count)] for k in range(count))


def split(config: AugmentConfig, whole: Dataset, training: Dataset) -> Parts:
    """The training and test images.

    Args:
        config: says whether and on what images segmenters are tested.
        whole: all of the data.
        training: the data without the test images.

    Raises:
        InvalidParameter: too few groups to set some aside, or test images that are among the data.
        InvalidInput: the data cannot be read, or test images have labels that the others lack.
    """
    test = _test(config, whole, training)
    originals = read_originals(training)
    if test is not None:
        _require_known(test, originals)
    return Parts(training, originals, test)


def _test(config: AugmentConfig, whole: Dataset, training: Dataset) -> Dataset | None:
    """See `split`."""
    if not config.holds_out_test:
        test = open_dataset(Path(config.test)) if config.train_segmenter and config.test else None
        if test is not None:
            _require_unseen(test.require_complete(), training)
        return test
    if len(training.groups) < _LEAST_TRAINING:
        apart = len(whole.groups) - len(training.groups)
        raise InvalidParameter(
            f"--train-segmenter: {len(whole.groups)} independent cases are too few to set "
            f"{apart} aside; give separate labelled images for the comparison: --test DIR"
        )
    return whole.subset(set(whole.groups) - set(training.groups))


def _require_known(test: Dataset, originals: Originals) -> None:
    """Refuse test images that no segmenter of the training images can be scored on."""
    known = {0}.union(*(np.unique(one.label.array).tolist() for one in originals.maps))
    for case in tracked(test.cases, "reading the test images"):
        _, label, _ = test.read_with_ids(case, known=known)
        unknown = sorted(set(np.unique(label.array).tolist()) - known)
        if unknown and not case.segments:  # which are known by their names
            raise InvalidInput(
                f"--train-segmenter: {case.label}, which the segmenters are to be tested on, has "
                f"the label {unknown[0]}, which no image to train on has: label it in others, too, "
                "or test on images without it: --test DIR"
            )


def _require_unseen(test: Dataset, training: Dataset) -> None:
    known = _images(training)
    if seen := sorted(name for image, name in _images(test).items() if image in known):
        raise InvalidParameter(
            f"--test {test.data}: {listed(seen, NAMED)} belong to --data {training.data}, or are "
            "copies of images there, from which generator, judge and segmenters are trained: give "
            "images that are not part of it"
        )


def _images(dataset: Dataset) -> dict[bytes, str]:
    """What tells the images of a data set from others, and the cases that they belong to.

    Images of one value, such as the outermost slices of a volume, are alike without being copies.
    """
    cases = tracked(dataset.cases, "comparing images")
    images = ((case.name, read_image_of(case)) for case in cases)
    return {image_digest(image): name for name, image in images if np.ptp(image.array)}
