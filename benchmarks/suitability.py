"""How often images that suit a model, and images that do not, are told to be unlike its training.

    python -m benchmarks.suitability --colin27 /usr/share/mricron/templates --label-maps DIR \\
        --hippocampus DIR --out benchmarks/results/suitability.json

``--colin27`` has ``ch2bet.nii.gz`` and ``ch2.nii.gz`` of Debian's package mricron-data: a head that
no model was trained on, without and with its skull. ``--label-maps`` are whole heads with
FreeSurfer ids, ``--hippocampus`` images cropped around one hippocampus. Boxes are cut out of the
slices of the first head so that tissue reaches all their edges, halves so that it reaches one.
With ``--write`` the statistics of the training are computed first, as ``caps-med train
segmentation`` does, and written into the cards of the built-in models; else the cards are taken as
they are.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import caps_med
from benchmarks.brain_tissue import NORMALIZATIONS, SCHEME
from benchmarks.options import benchmark_parser
from caps_med import samples
from caps_med.images import MedicalImage, one_slice, read_image
from caps_med.inference import Model
from caps_med.inference.suitability import (
    less_certain,
    own_slices,
    training_statistics,
    unlike_training,
)
from training.data.mni152 import load_mni152
from training.data.prepare import Preparation
from training.data.samples import Source
from training.labelmaps.phantoms import axon_phantom
from training.randomization import Randomization
from training.randomization.data import open_label_maps
from training.randomization.source import load_random_source
from training.tasks.segmentation import SegmentationRecipe

#: Images by their names.
Images = dict[str, MedicalImage]
Floats = NDArray[np.float32]
PHANTOMS = 24
#: Parts of Colin27's slices: a box of 90 x 110 mm within the brain, and the right half.
PARTS = {"box": np.s_[:, 45:135, 50:160], "half": np.s_[:, :90]}


def training_sources(label_maps: Path) -> Iterator[tuple[str, Source | list[Any]]]:
    """The data of each built-in segmentation model, as near as they can be had again."""
    yield "brain-t1-tissue", load_mni152()
    preparation = Preparation(normalization=NORMALIZATIONS["ranks"], spacing_mm=(1.0, 1.0))
    data = open_label_maps(label_maps, [SCHEME])
    yield "brain-tissue", load_random_source(data, Randomization(), preparation, 192)
    yield "axon-segmentation", [phantom(case) for case in range(PHANTOMS)]


def phantom(case: int) -> MedicalImage:
    """A picture of simulated axons."""
    return MedicalImage(np.rint(axon_phantom(7, case).image * 255).astype(np.uint8), format="png")


def write_statistics(label_maps: Path) -> None:
    """Compute the statistics of each model's training, and write them into its card."""
    for name, source in training_sources(label_maps):
        model = caps_med.load_model(name)
        if isinstance(source, list):
            slices = itertools.chain.from_iterable(
                own_slices(model.segmenter.prepare(image).slices) for image in source
            )
            found = training_statistics(slices)
        else:
            recipe = SegmentationRecipe.model_validate({"data": "", "seed": 0})
            found = recipe.card_values(model.network, source)["statistics"]
        assert found is not None  # noqa: S101 - the data show something
        write_into_card(model, found.model_dump(mode="json"), "statistics")


def write_into_card(model: Model, value: object, *keys: str) -> None:
    """Write a JSON value into the metadata of a model, at these keys of its card."""
    path = model.bundle.path / "configs" / "metadata.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    *outer, last = ("caps_med", *keys)
    section = document
    for key in outer:
        section = section[key]
    section[last] = value
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(model.bundle.name, ".".join(keys), value)


def changed(image: MedicalImage, change: Callable[[Floats], Floats]) -> MedicalImage:
    """The image with other intensities; what is 0 stays 0."""
    values = image.array.astype(np.float32)
    top = float(values.max())
    return image.with_array(np.where(values > 0, change(values / top) * top, 0), kind="image")


def slices_of(image: MedicalImage, step: int = 8) -> Iterator[MedicalImage]:
    """Axial slices of the middle half of a head, each as a volume of one."""
    depth = image.spatial_shape[2]
    for z in range(depth // 4, 3 * depth // 4, step):
        yield one_slice(image, z, "axial")


def heads(folder: Path) -> dict[str, Images]:
    """Colin27 without and with skull, as it is and as other scanners may show it."""
    rng = np.random.default_rng(0)
    found: dict[str, Images] = {}
    for title, file in (("brain", "ch2bet.nii.gz"), ("head with skull", "ch2.nii.gz")):
        image = read_image(folder / file)
        looks: Mapping[str, Callable[[Floats], Floats]] = {
            "as it is": lambda x: x,
            "gamma .8": lambda x: x**0.8,
            "gamma 1.25": lambda x: x**1.25,
            "noise 3 %": lambda x: np.abs(x + rng.normal(0, 0.03, x.shape)),
        }
        shown = {name: changed(image, look) for name, look in looks.items()}
        shown |= {f"slice {i}": one for i, one in enumerate(slices_of(image))}
        found[title] = shown
        inverted = changed(image, lambda x: 1.02 - x)
        found[f"inverted {title}"] = {"volume": inverted} | {
            f"slice {i}": one for i, one in enumerate(slices_of(inverted))
        }
        slices = list(slices_of(image))
        for part, place in PARTS.items():
            found[f"{part} of a {title}"] = {
                f"slice {i}": MedicalImage(one.array[place], one.affine, format="nifti")
                for i, one in enumerate(slices)
            }
    return found


def others(hippocampus: Path) -> dict[str, Images]:
    """Images that show no whole head."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:200, :240]
    files = sorted((hippocampus / "imagesTr").glob("*.nii.gz"))[:20]
    drawn = {"noise": rng.normal(120, 40, (200, 240)), "gradient": (y + x) / 2}
    return {
        "cropped hippocampus": {file.name: read_image(file) for file in files},
        "axons": {f"phantom {case}": phantom(1000 + case) for case in range(12)},
        "digit and clothing": {
            path.name: read_image(path) for path in (samples.DIGIT, samples.CLOTHING)
        },
        "grey photographs": photographs(),
        "noise, a gradient": {name: as_image(pixels) for name, pixels in drawn.items()},
        "one value": {"empty": as_image(np.zeros((64, 64))), "full": as_image(np.ones((64, 64)))},
    }


def photographs() -> Images:
    """Grey photographs."""
    import skimage.data

    found = {name: getattr(skimage.data, name)() for name in ("camera", "coins", "page")}
    found["astronaut"] = skimage.data.astronaut().mean(-1)
    return {name: as_image(pixels) for name, pixels in found.items()}


def as_image(pixels: NDArray[Any]) -> MedicalImage:
    """A grey picture."""
    return MedicalImage(pixels.clip(0, 255).astype(np.uint8)[None], format="png")


def own_samples() -> dict[str, Images]:
    """The samples that come along, by the model that they suit."""
    found: dict[str, Images] = {}
    for name, sample in samples.SAMPLES.items():
        if sample.kind == "image":
            found.setdefault(sample.model, {})[name] = read_image(sample.path)
    found["brain-tissue"] = found["brain-t1-tissue"]
    return found


#: Model -> groups that suit it; all others do not. What a model of any contrast makes of an
#: inverted head is what it is for.
SUITABLE = {
    "brain-t1-tissue": ("samples", "brain", "half of a brain"),
    "brain-tissue": (
        "samples", "brain", "head with skull", "inverted brain", "inverted head with skull",
        "half of a brain", "half of a head with skull",
    ),
    "axon-segmentation": ("samples", "axons"),
}  # fmt: skip


def is_told(model: Model, image: MedicalImage) -> bool:
    """Whether the model warns of the image."""
    segmenter = model.segmenter
    if unlike_training(segmenter.card, segmenter.prepare(image).slices):
        return True
    if segmenter.card.refined_entropy is None:
        return False
    return bool(less_certain(segmenter.card, model.segment(image).mean_entropy))


def main() -> None:
    """Count warnings, group by group."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--colin27", type=Path, default=Path("/usr/share/mricron/templates"))
    parser.add_argument("--label-maps", type=Path, help="Needed with --write.")
    parser.add_argument("--hippocampus", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.write:
        write_statistics(options.label_maps)
    groups, own = heads(options.colin27) | others(options.hippocampus), own_samples()
    result: dict[str, dict[str, dict[str, object]]] = {}
    for name, suitable in SUITABLE.items():
        model = caps_med.load_model(name)
        result[name] = {}
        for group, images in {"samples": own[name], **groups}.items():
            told = [title for title, image in images.items() if is_told(model, image)]
            result[name][group] = {
                "suits": group in suitable, "images": len(images), "told": len(told),
            }  # fmt: skip
            print(f"{name:18s} {group:26s} {'suits' if group in suitable else '':6s}"
                  f"{len(told)} of {len(images)} told {told[:4]}", flush=True)  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
