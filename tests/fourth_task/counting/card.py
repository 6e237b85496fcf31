"""What the metadata of a counting model say."""

from __future__ import annotations

from caps_med.bundles.tasks import Port, TaskDetails, TaskTraits
from caps_med.preprocessing import PicturePreprocessing


class CountingDetails(TaskDetails):
    """Of counting models.

    Attributes:
        pictures: how an image becomes the network's input.
        largest: the largest number in the training data.
    """

    pictures: PicturePreprocessing
    largest: int


TRAITS = TaskTraits(
    takes=Port("magnitude", "in_channels"),
    gives=Port("magnitude", "out_channels", spatial=False),
    fewest_labels=1,
    details=CountingDetails,
)
