"""How often generators tell that a label map is unlike those of their training.

    python -m benchmarks.suitability_synthesis --label-maps DIR --hippocampus DIR \\
        --out benchmarks/results/suitability-synthesis.json

``--label-maps`` are whole heads with FreeSurfer ids, ``--hippocampus`` labelled images cropped
around one hippocampus. With ``--write`` the statistics of the training are computed first, as
``caps-med train synthesis`` does, and written into the cards of the built-in generators; else the
cards are taken as they are, as is always that of `brain-synthesis`, whose training is not repeated
here. Of the hippocampi every second one makes the statistics, and the others
are asked about; of the template its held-out slices are, of the axons other simulated ones.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import caps_med
from benchmarks.colin27 import reference_tissue
from benchmarks.options import benchmark_parser
from benchmarks.suitability import Images, photographs, slices_of, write_into_card
from benchmarks.tstr.volumes.data import divided
from benchmarks.whole_head import freesurfer_head
from caps_med import samples
from caps_med.bundles import LabelMapStatistics
from caps_med.errors import CapsMedError
from caps_med.images import MedicalImage, encode_image, read_image
from caps_med.inference import Model
from caps_med.inference.label_suitability import training_label_statistics, unlike_training_labels
from caps_med.inference.suitability import own_slices
from training.data.mni152 import load_mni152
from training.labelmaps.phantoms import axon_phantom
from training.randomization.scheme import scheme_of

Ids = NDArray[np.integer]
#: Hippocampi that are read, and label maps of each group that are changed.
HIPPOCAMPI, CHANGED = 80, 12


def as_labels(ids: Ids, like: MedicalImage | None = None) -> MedicalImage:
    """Ids ``[*S]`` as a label map, with the geometry of another one or as a picture."""
    array = ids[None].astype(np.uint8)
    return like.with_array(array) if like else MedicalImage(array, kind="labels", format="png")


def other_heads(folder: Path, read: Callable[[Path], MedicalImage]) -> Images:
    """Volumes of other heads, as `read` gives their classes, and slices of them."""
    found: Images = {}
    for file in sorted(folder.glob("*.nii.gz"))[::3]:
        volume = read(file)
        found[file.name] = volume
        found |= {f"{file.name} {i}": one for i, one in enumerate(slices_of(volume, 24))}
    return found


def tissues_of(file: Path) -> MedicalImage:
    """A head's tissues alone."""
    labels = read_image(file, kind="labels")
    ids = labels.array[0]
    classes = scheme_of("freesurfer-tissue").classes(range(int(ids.max()) + 1))
    return as_labels(classes[ids], labels)


def colin27(folder: Path) -> Images:
    """Tissues of another head, by their intensities."""
    image = read_image(folder / "ch2bet.nii.gz")
    tissue = image.with_array(reference_tissue(image.array[0].astype(np.float32))[None])
    volume = as_labels(tissue.array[0], tissue.with_array(tissue.array, kind="labels"))
    return {"volume": volume} | {f"slice {i}": one for i, one in enumerate(slices_of(volume))}


def hippocampi(folder: Path, surroundings: bool) -> Images:
    """Label maps as they are, or with three classes of their surroundings by intensity."""
    found: Images = {}
    for file in sorted((folder / "labelsTr").glob("*.nii.gz"))[:HIPPOCAMPI]:
        labels = read_image(file, kind="labels")
        if surroundings:
            image = read_image(folder / "imagesTr" / file.name).array[0].astype(np.float32)
            outside = labels.array[0] == 0
            labels = as_labels(
                np.where(outside, 3 + divided(image, outside), labels.array[0]), labels
            )
        found[file.name] = labels
    return found


def axons(seed: int, count: int) -> Images:
    """Masks of simulated axons."""
    return {
        f"phantom {case}": as_labels(axon_phantom(seed, case).label[0]) for case in range(count)
    }


def training_axons() -> Images:
    """Masks of the simulated axons that `axon-synthesis` learned from: those not held out."""
    return {name: one for i, (name, one) in enumerate(axons(100, 240).items()) if i % 5 != 2}


def template(held_out: bool) -> Images:
    """Slices of the template's tissues."""
    source = load_mni152()
    slices = source.validation if held_out else source.training
    return {f"slice {i}": as_labels(one["label"][0]) for i, one in enumerate(slices)}


def by_model(options: Mapping[str, Path]) -> dict[str, tuple[Images, dict[str, Images]]]:
    """Model -> label maps of its training, and groups that suit it."""
    plain, rich = (hippocampi(options["hippocampus"], around) for around in (False, True))
    halves = [dict(list(images.items())[half::2]) for images in (plain, rich) for half in (0, 1)]
    learned = {**halves[0], **{f"{name} with surroundings": one for name, one in halves[2].items()}}
    return {
        "brain-t1-synthesis": (
            template(held_out=False),
            {
                "template": template(held_out=True),
                "other heads": other_heads(options["label_maps"], tissues_of),
                "Colin27": colin27(options["colin27"]),
            },
        ),
        "brain-synthesis": (
            {},
            {"whole heads": other_heads(options["label_maps"], freesurfer_head)},
        ),
        "axon-synthesis": (training_axons(), {"axons": axons(1007, 32)}),
        "hippocampus-synthesis": (
            learned,
            {"hippocampus": halves[1], "hippocampus with surroundings": halves[3]},
        ),
    }


def changes(count: int) -> Mapping[str, Callable[[Ids], Ids]]:
    """What makes a label map unsuitable for a model of `count` labels."""
    rng = np.random.default_rng(0)
    among = {"labels exchanged": lambda ids: np.where(ids > 0, ids % (count - 1) + 1, 0)}
    return (among if count > 2 else {}) | {
        "background and label exchanged": lambda ids: np.where(ids > 0, 0, 1),
        "enlarged four times": lambda ids: ids.repeat(4, 0).repeat(4, 1),
        "reduced four times": lambda ids: ids[::4, ::4],
        "labels at random": lambda ids: rng.integers(0, count, ids.shape),
    }


def changed(image: MedicalImage, change: Callable[[Ids], Ids]) -> MedicalImage:
    """The label map with other ids."""
    array = change(image.array[0])[None].astype(np.uint8)
    return MedicalImage(array, affine=image.affine, kind="labels", format=image.format)


def of_anything(count: int) -> dict[str, Images]:
    """Label maps of things that no generator here draws, with `count` levels."""
    cuts = [i / count for i in range(1, count)]
    levels = {
        name: as_labels(np.digitize(image.array[0], np.quantile(image.array[0], cuts)))
        for name, image in photographs().items()
    }
    return {
        "grey photographs in as many levels": levels,
        "one label": {str(i): as_labels(np.full((96, 96), i)) for i in range(count)},
    }


def is_told(model: Model, labels: MedicalImage) -> str:
    """``refused`` if the model does not take it, ``warned`` if it warns, else empty."""
    synthesizer = model.synthesizer
    try:
        if labels.kind == "image":
            labels = read_image(encode_image(labels, labels.format), kind="labels")
        prepared = synthesizer.prepare(labels)
    except CapsMedError:
        return "refused"
    return "warned" if unlike_training_labels(synthesizer.card, prepared.slices) else ""


def statistics_of(model: Model, images: Images) -> LabelMapStatistics:
    """The statistics of a training."""
    synthesizer = model.synthesizer

    stacks: Iterable[Iterable[NDArray[np.float32]]]
    stacks = [own_slices(synthesizer.prepare(image).slices) for image in images.values()]
    if synthesizer.network.spatial_dims == 2 and synthesizer.card.spacing_mm is not None:
        stacks = [itertools.chain.from_iterable(stacks)]
    found = training_label_statistics(stacks, len(synthesizer.card.labels))
    assert found is not None  # noqa: S101 - they show something
    return found


def images_for_labels() -> Images:
    """Images, given in place of label maps."""
    import skimage.data

    found = {"T1": read_image(samples.T1), "axons": read_image(samples.AXONS)}
    colours = np.moveaxis(skimage.data.astronaut(), -1, 0)
    return found | photographs() | {"colours": MedicalImage(colours, format="png")}


def groups_of(
    own: dict[str, Images], others: Sequence[dict[str, Images]], count: int
) -> dict[str, Images]:
    """Label maps by group: those that suit a model of `count` labels, and all others."""
    groups = dict(own)
    for one in others:
        groups |= one
    groups |= of_anything(count) | {"images in place of label maps": images_for_labels()}
    suited = [image for images in own.values() for image in list(images.values())[:CHANGED]]
    for title, change in changes(count).items():
        groups[title] = {str(i): changed(image, change) for i, image in enumerate(suited)}
    return groups


def main() -> None:
    """Count what is told, group by group."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--colin27", type=Path, default=Path("/usr/share/mricron/templates"))
    parser.add_argument("--label-maps", type=Path, required=True)
    parser.add_argument("--hippocampus", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    known = by_model(vars(options))
    result: dict[str, dict[str, dict[str, object]]] = {}
    for name, (learned, own) in known.items():
        model = caps_med.load_model(name)
        if options.write and learned:
            found = statistics_of(model, learned)
            write_into_card(model, found.model_dump(mode="json"), "label_statistics")
            model = caps_med.load_model(name)
        others = [images for other, (_, images) in known.items() if other != name]
        groups = groups_of(own, others, len(model.bundle.card.labels))
        result[name] = {}
        for group, images in groups.items():
            told = [is_told(model, image) for image in images.values()]
            result[name][group] = {
                "suits": group in own, "images": len(images),
                "warned": told.count("warned"), "refused": told.count("refused"),
            }  # fmt: skip
            print(f"{name:22s} {group:34s} {result[name][group]}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
