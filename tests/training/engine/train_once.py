"""Train one run, for tests that kill the process."""

from __future__ import annotations

import json
from pathlib import Path

import ignite.distributed as idist

from training.data import load_source, open_dataset
from training.engine.run_folder import RunFolder
from training.tasks.segmentation import SegmentationRecipe, train_segmentation


def train_once(data: str, run: str, settings: str) -> None:
    """Train from the start to the end, or on from the last checkpoint."""
    recipe = SegmentationRecipe.model_validate({"data": data, **json.loads(settings)})
    folder = RunFolder(Path(run))
    with idist.one_rank_first():
        source = load_source(open_dataset(data), folder.data)
    train_segmentation(source, recipe, folder, resume=folder.checkpoint.exists())
