"""Images that are adapted to the model that a job starts from, before it is trained."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from api.jobs.files import JobFiles, read_json
from api.jobs.job import Job
from caps_med.drafts import write_durably
from caps_med.errors import CapsMedError
from caps_med.images import encode_image, read_image
from caps_med.inference import load_model
from caps_med.inference.applied import ImageReader
from training.data.stacks import LIMITS
from training.engine.progress import noted
from training.engine.run_folder import RunFolder

#: What the progress of a job calls it.
PHASE = "adapting channels"


def adapt_images(job: Job, models: Path, files: JobFiles) -> None:
    """Write the images of `JobFiles.to_adapt` as the model takes them that the job starts from.

    Those that an earlier start of the job has written are written alike once more.

    Args:
        job: runs in the present folder.

    Raises:
        CapsMedError: an image is not as the model takes it, and the message names its file; or the
            model is gone.
    """
    listed = read_json(files.to_adapt)
    if not listed or job.options.start_from is None:
        return
    images = [Path(job.data) / image for image in listed["images"]]
    reader = load_model(job.options.start_from, models, "cpu", LIMITS).image_reader
    for image in noted(RunFolder(Path(job.run_folder)), images, PHASE, len(images)):
        if image.exists():
            _adapt(image, reader)


def _adapt(path: Path, reader: ImageReader[Any]) -> None:
    """Replace a file, which may be one with that of the project, by an adapted one."""
    try:
        image = reader.match_channels(read_image(path, kind="image", limits=LIMITS))
        lossy = image.format == "jpeg"
        target = path.with_suffix(".png") if lossy else path
        content = encode_image(image, "png" if lossy else image.format)
    except CapsMedError as error:
        named = copy.copy(error)
        named.args = (f"{Path(*path.parts[1:]).as_posix()}: {error}",)
        raise named from error
    write_durably(target, content)
    if target != path:
        path.unlink()
