"""A loaded model; its task determines its methods."""

from __future__ import annotations

import copy
import os
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from caps_med.arguments import check_positive
from caps_med.bundles import Bundle, BundleMetadata, ModelRepository
from caps_med.bundles.metadata import Refinement
from caps_med.bundles.tasks import Task
from caps_med.errors import InvalidBundle, InvalidParameter, WrongTask
from caps_med.images import (
    ImageSource,
    Kind,
    Limits,
    MedicalImage,
    one_slice,
    read_image,
)
from caps_med.images.files import channels_listed
from caps_med.inference.applied import AppliedNetwork, ImageReader
from caps_med.inference.card_table import card_table
from caps_med.inference.classifier import Classification, Classifier
from caps_med.inference.drawing import Drawing, Pose, draw
from caps_med.inference.features import FeatureExplorer, Features
from caps_med.inference.inferers import INFERERS
from caps_med.inference.inspection import Inspection, inspect
from caps_med.inference.largest_components import with_largest_components
from caps_med.inference.manipulation import Manipulator, capsule_of
from caps_med.inference.passes import cancellable, device_of
from caps_med.inference.point import InputRecorder, Point
from caps_med.inference.precision import Precision, known_precision
from caps_med.inference.progress import Progress, part_of, reporting_to
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.refinement import (
    RefinementChoice,
    maps_with,
    refined,
    refinement_of,
)
from caps_med.inference.segmenter import Segmentation, Segmenter
from caps_med.inference.suitability import less_certain
from caps_med.inference.synthesizer import Synthesizer, SyntheticImage, known_seed
from caps_med.inference.uncertainty import ImageUncertainty, image_uncertainty
from caps_med.inference.uncertainty_maps import PROBABILITIES, ShownMap, known_maps
from caps_med.networks import (
    CapsuleNetwork,
    ClassificationNetwork,
    LayerInfo,
    SegCaps,
    on_device,
    one_hot,
)
from caps_med.preprocessing import PreparedSlices

A = TypeVar("A", bound=AppliedNetwork[Any])


class Model:
    """One version of a model, its network in evaluation mode.

    Args:
        bundle: the files of the model.
        limits: bounds on the images that it reads; None uses `Limits.of_environment`.
        device: where the network runs; None uses that of `known_device`.
        precision: of segmentation, unless a call specifies another; see `segment`.

    Attributes:
        tta: whether `segment` averages over mirror images, unless a call specifies otherwise.
    """

    tta = False

    def __init__(
        self,
        bundle: Bundle,
        limits: Limits | None = None,
        device: str | int | torch.device | None = None,
        precision: Precision = "fp32",
    ) -> None:
        self.bundle, self.limits = bundle, limits or Limits.of_environment()
        segments = bundle.card.task == "segmentation"
        self.precision: Precision = known_precision(precision) if segments else "fp32"
        network = on_device(bundle.load_network(), known_device(device))
        self.network: CapsuleNetwork = cancellable(network)
        self.provenance = AnswerProvenance.of(bundle)

    def with_tta(self) -> Model:
        """The same model with test-time augmentation, unless a call of `segment` overrides it.

        Raises:
            WrongTask: it does not segment.
            InvalidParameter: it was trained without mirror images.
        """
        _ = self.segmenter.with_tta()
        other = copy.copy(self)
        other.tta = True
        return other

    def __repr__(self) -> str:
        """Its name, task and network, on one line."""
        return f"<Model {self.reference}: {self.task}, {self.bundle.card.network.name}>"

    def _repr_html_(self) -> str:
        """Its card, for notebooks."""
        return card_table(self.bundle.reference, self.bundle.card, self.network)

    @property
    def reference(self) -> str:
        """``name@version``, and whether it uses test-time augmentation."""
        return f"{self.bundle.reference} with TTA" if self.tta else self.bundle.reference

    @property
    def name(self) -> str:
        """The model's name, without its version."""
        return self.bundle.name

    @property
    def version(self) -> int:
        """The version in the repository."""
        return self.bundle.version

    @property
    def task(self) -> Task:
        """``segmentation``, ``synthesis``, ``classification``, or a task added by a package."""
        return self.bundle.card.task

    @property
    def metadata(self) -> BundleMetadata:
        """The bundle's metadata; ``.caps_med`` is the model card."""
        return self.bundle.metadata

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        """Capsule layers in order of computation."""
        return self.network.layers

    @property
    def reconstructs(self) -> bool:
        """Whether it can reconstruct images from its class capsules, see `manipulator`."""
        network = self.network
        if isinstance(network, ClassificationNetwork):
            return network.reconstructs
        return isinstance(network, SegCaps) and network.spatial_dims == 2

    def __call__(
        self,
        source: ImageSource,
        *,
        progress: Progress | None = None,
        **options: Any,  # noqa: ANN401 - each task has its own
    ) -> Any:  # noqa: ANN401 - each task has its own
        """Apply the model to an image or, for synthesis, to a label map.

        For programs that apply models of any task. `segment`, `synthesize` and `classify` do the
        same for one task, with precise types.

        Args:
            source, progress: see `segment`.
            options: options of the task, such as ``seed=`` for synthesis.

        Raises:
            CapsMedError: the image cannot be read, or the model cannot process it.
        """
        read = self.read(source, self.reads)
        with reporting_to(progress):
            return self.inferer(read, **options)

    def segment(
        self,
        image: ImageSource,
        *,
        progress: Progress | None = None,
        refine: RefinementChoice | None = None,
        disagreement: bool = False,
        precision: Precision | None = None,
        tta: bool | None = None,
        maps: Collection[ShownMap] = PROBABILITIES,
    ) -> Segmentation:
        """Segment an image into a label map in the image's space and format.

        For a model with several channels, `image` is one image with all of them, or a list of
        images, one per channel, in the order of ``metadata.caps_med.channel_names``:
        ``model.segment(["flair.nii.gz", "t1.nii.gz"])``.

        Args:
            image: a path, the content of a file, or an image in memory; see `read_image`.
            progress: called with the number of steps done and their total. A step is a slice of a
                volume for a 2-D network, or a window of an image that is too large for one pass.
            refine: ``"em"`` separates the labels by this image's own intensities, with the
                network's probabilities as prior, see `caps_med.inference.refinement`; ``"none"``
                leaves the network's labels unchanged; None follows the model's card.
            disagreement: whether to also segment the mirror images, and with each network of an
                ensemble, to show where these disagree: ``.disagreement`` of the answer, whose
                labels it does not change. The time is multiplied by the number of views:
                four, two if mirror images swap labels with a side, more for an ensemble.
            precision: None for the model's own, ``"fp32"`` unless it was loaded with another.
                ``"bf16"`` convolves in bfloat16; the answer's warnings say so. See
                ``docs/results/performance.md`` for the labels that change, and where it saves time.
            tta: test-time augmentation: the mean of the probabilities of the image and of those
                mirror images on which the model was trained, which takes two or four times as
                long; see ``docs/results/models.md`` for the gain. None for the model's own
                setting, False unless it was made by `with_tta`.
            maps: the maps that the answer keeps, among ``"probabilities"``, ``"confidence"``,
                ``"entropy"``, and ``"disagreement"``, which implies `disagreement`. For a volume,
                maps take four bytes per voxel, and probabilities per voxel and class: with
                ``maps=()`` they are never in memory as a whole, and the answer has its labels and
                all numbers. A refined answer keeps the probabilities.

        Raises:
            WrongTask: this model does not segment.
            InvalidParameter: an unknown `precision`, an unknown name in `maps`, an unknown
                `refine`, or one that does not suit the model's labels; `tta` for a model that was
                trained without mirror images.
            CapsMedError: the image cannot be read, or the model cannot process it.
        """
        method = self.refinement(refine)
        kept = maps_with(method, known_maps(maps))
        segmenter = self.segmenter.in_precision(known_precision(precision or self.precision))
        segmenter = segmenter.with_tta(self.tta if tta is None else tta)
        read = self.read(image, "image")
        with reporting_to(progress):
            answer = segmenter(read, disagreement, kept)
        return self.refined(read, answer) if method else answer

    def refined(self, image: MedicalImage, answer: Segmentation) -> Segmentation:
        """An answer adapted to the intensities of its image, reduced to the largest components if
        the model's card says so.

        Args:
            image: the image that was segmented, ``[C, *S]``.
            answer: from `segment` with ``refine="none"``; it keeps its probabilities.

        Raises:
            InvalidParameter: see `caps_med.inference.refinement.refined`.
        """
        card, found = self.bundle.card, refined(self.segmenter.as_given(image), answer)
        if card.largest_components is not None:
            found = with_largest_components(found, card.largest_components)
        if card.refined_entropy is None:
            return found
        doubts = less_certain(card, found.mean_entropy)
        warnings = (*found.warnings, *doubts)
        return replace(found, warnings=warnings, known_certainty=found.certainty)

    def refinement(self, asked: RefinementChoice | None = None) -> Refinement | None:
        """The refinement for a requested choice; None requests that of the model card.

        Raises:
            InvalidParameter: an unknown choice.
        """
        return refinement_of(asked, self.bundle.card.refine)

    def uncertainty(
        self, image: ImageSource, *, disagreement: bool = True, progress: Progress | None = None
    ) -> ImageUncertainty:
        """The model's certainty about an image, in numbers by which images can be ranked.

        Args:
            image, progress: see `segment`.
            disagreement: see `segment`; without it only the entropy is known.

        Raises:
            CapsMedError: as for `segment`.
        """
        read = self.read(image, "image")
        with reporting_to(progress):
            return image_uncertainty(self.segmenter, read, disagreement)

    def classify(self, image: ImageSource, slice: int | None = None) -> Classification:
        """Classify an image: the probability of each class, capsule lengths and poses.

        Args:
            image: see `segment`.
            slice: of a volume, counted along the model's plane; None for the middle one.

        Raises:
            WrongTask: this model does not classify.
            CapsMedError: the image cannot be read, or the model cannot process it.
        """
        return self.classifier(self.read(image, "image"), slice)

    def inspect(self, image: ImageSource, slice: int | None = None) -> Inspection:
        """The network's intermediate results: kernels, feature maps, capsules and couplings.

        Args:
            image, slice: see `classify`.

        Raises:
            WrongTask: this model does not classify.
            CapsMedError: the image cannot be read, or the model cannot process it.
        """
        classifier = self.classifier
        shown = classifier.shown(self.read(image, "image"), slice)
        return inspect(classifier.network, shown, self.provenance)

    def draw(self, capsule: int | str, poses: Sequence[Pose]) -> Drawing:
        """Reconstruct images from poses `[N, A]` of one class capsule, without an input image.

        Args:
            capsule: its number, or its label.

        Raises:
            WrongTask: this model does not classify.
            InvalidParameter: there is no such label; see also `caps_med.inference.drawing.draw`.
        """
        network = self.classifier.network
        if isinstance(capsule, str):
            capsule = capsule_of(capsule, self.bundle.card.labels)
        return draw(network, capsule, poses, self.provenance)

    def synthesize(
        self, labels: ImageSource, seed: int = 0, *, progress: Progress | None = None
    ) -> SyntheticImage:
        """Synthesize an image from a label map; the same seed gives the same image.

        Args:
            labels, progress: see `segment`.
            seed: the seed of the noise vector, which all slices of a volume share.

        Raises:
            WrongTask: this model does not synthesize.
            UnknownLabel: the label map holds an id that the model does not know.
        """
        [image] = self.synthesize_many(labels, seed, progress=progress)
        return image

    def synthesize_many(
        self,
        labels: ImageSource,
        seed: int = 0,
        count: int = 1,
        *,
        progress: Progress | None = None,
    ) -> list[SyntheticImage]:
        """Synthesize `count` images from one label map, with the seeds `seed`, `seed + 1`, ...

        Arguments and errors are those of `synthesize`.

        Raises:
            InvalidParameter: `count` is not a whole number from 1.
        """
        check_positive(count=count)
        synthesizer = self.synthesizer  # before a message about the labels of another task's image
        first = known_seed(seed)
        read = self.read(labels, "labels")
        images = []
        with reporting_to(progress):
            for i in range(count):
                with part_of(count, i):
                    images.append(synthesizer(read, first + i))
        return images

    def interpolate(
        self,
        labels: ImageSource,
        seed: int = 0,
        to_seed: int = 1,
        steps: int = 9,
        slice: int | None = None,
        *,
        progress: Progress | None = None,
    ) -> list[SyntheticImage]:
        """Synthesize images on the path from one seed to another; see `Synthesizer.interpolate`.

        Args:
            labels, progress: see `segment`.
            slice: index of the only slice of a volume to return, along the model's plane, as
                volumes of one slice; None for the whole volume. A 2-D network computes only that
                slice.

        Raises:
            The same as `synthesize`. InvalidParameter: fewer than two steps, or no such slice.
        """
        synthesizer, plane = self.synthesizer, self.bundle.card.plane
        read = self.read(labels, "labels")
        flat = self.network.spatial_dims == 2
        if slice is not None and flat:
            read = one_slice(read, slice, plane)
        with reporting_to(progress):
            images = synthesizer.interpolate(read, seed, to_seed, steps)
        if slice is None or flat:
            return images
        return [one_slice(image, slice, plane) for image in images]

    def interpolate_features(
        self,
        labels: ImageSource,
        seed: int = 0,
        to_seed: int = 1,
        steps: int = 9,
        slice: int | None = None,
        *,
        progress: Progress | None = None,
    ) -> list[Features]:
        """The last layer's capsules for each image of `interpolate`, in one slice.

        Raises:
            The same as `interpolate`. InvalidParameter: no such slice, or the network has no
                capsules.
        """
        layers = self.synthesizer.network.layers
        if not layers:
            raise InvalidParameter(f"{self.provenance.model}: its network has no capsules")
        path = self.synthesizer.noise_path(seed, to_seed, steps)
        read = self.read(labels, "labels")
        prepared = self.synthesizer.prepare(read)
        at = self.bundle.card.preprocessing.slice_index(read, slice)
        found = []
        with reporting_to(progress):
            for step, (source, z) in enumerate(path):
                with part_of(steps, step):
                    layer = layers[-1].name
                    found.append(self._synthesis_features(source, prepared, layer, at, z))
        return found

    def manipulator(self, image: ImageSource, slice: int | None = None) -> Manipulator:
        """The class capsules of one slice, whose atoms can be shifted.

        Raises:
            WrongTask: this is a synthesis model.
            InvalidParameter: the model cannot reconstruct images, or there is no such slice.
        """
        read = self.read(image, "image")
        if isinstance(self.network, ClassificationNetwork):
            shown = self.classifier.shown(read, slice)
            return Manipulator.of_classification(
                self.network, shown, self.provenance, self.bundle.card.labels
            )
        segmenter = self.segmenter
        labels = self.bundle.card.capsule_labels(segmenter.network.out_channels)
        return Manipulator.of_segmentation(
            segmenter.network, segmenter.shown(read, slice), self.provenance, labels
        )

    def point(
        self,
        source: ImageSource,
        layer: str,
        row: int,
        column: int,
        slice: int | None = None,
        seed: int = 0,
    ) -> Point:
        """Pose vectors of `layer` at one pixel, and their couplings to the layer above.

        Args:
            source, slice, seed: see `features`.
            row, column: in the slice at the network's spacing. Along the border of a layer of
                convolutions without padding, the nearest capsules are taken.

        Raises:
            LayerNotFound: no such layer. InvalidParameter: no such slice or pixel.
        """
        self.check_layer(layer)
        read = self.read(source, self.reads)
        with InputRecorder(self.network, layer) as recorder:
            found = self.features(read, layer, slice, seed)
        depth = None
        if self.network.spatial_dims == 3:
            depth = self.bundle.card.preprocessing.slice_index(read, slice)
        return recorder.point(found, row, column, depth)

    def features(
        self,
        source: ImageSource,
        layer: str | None = None,
        slice: int | None = None,
        seed: int = 0,
        *,
        progress: Progress | None = None,
    ) -> Features:
        """The capsules of every layer for one slice.

        Args:
            source: an image; for synthesis a label map.
            layer: only this layer; None for all.
            slice: of a volume, counted along the model's plane; None for the middle one.
            seed: of the noise vector, for synthesis.
            progress: see `segment`.

        Raises:
            LayerNotFound: no such layer. InvalidParameter: no such slice.
        """
        with reporting_to(progress):
            return self._features(source, layer, slice, seed)

    def _features(
        self, source: ImageSource, layer: str | None, slice: int | None, seed: int
    ) -> Features:
        explorer = FeatureExplorer(self.network, self.provenance)
        explorer.check_layer(layer)
        if self.task == "synthesis":
            z = self.synthesizer.noise(seed)
            origin = self.provenance.with_seed(known_seed(seed))
            read = self.read(source, "labels")
            prepared, warnings = self.synthesizer.shown(read)
            at = self.bundle.card.preprocessing.slice_index(read, slice)
            found = self._synthesis_features(origin, prepared, layer, at, z)
            return replace(found, warnings=warnings)
        shown = self.image_reader.shown(self.read(source, "image"), slice)
        found = explorer(shown.slices, self.network.capsules, layer, shown.index)
        found = replace(found, warnings=shown.warnings)
        last = self.layers[-1] if self.layers else None
        if last is None or last.name not in found.layers:
            return found
        labels = self.bundle.card.capsule_labels(last.types)
        named = len(labels) == last.types  # the last capsules of an added task may be no classes
        return replace(found, classes=tuple(labels.values())) if named else found

    def _synthesis_features(
        self,
        provenance: AnswerProvenance,
        labels: PreparedSlices,
        layer: str | None,
        slice: int,
        z: Tensor,
    ) -> Features:
        """Features for one of the network's slices and the noise vector ``[1, Z]`` of a seed."""
        network = self.synthesizer.network
        noise = self.synthesizer.slice_noise(labels, z)
        if len(noise) > 1:
            noise = noise[slice : slice + 1]
        noise = noise.to(device_of(network))

        def capsules(part: Tensor) -> OrderedDict[str, Tensor]:
            return network.capsules(one_hot(part, network.label_channels), noise)

        return FeatureExplorer(network, provenance)(labels.slices, capsules, layer, slice)

    def check_layer(self, layer: str | None) -> None:
        """Raise `LayerNotFound` if the network has no capsule layer of that name."""
        FeatureExplorer(self.network, self.provenance).check_layer(layer)

    def read(
        self,
        source: ImageSource,
        kind: Kind,
        *,
        index: int | None = None,
        series: str | None = None,
    ) -> MedicalImage:
        """Read an image within this model's limits; a `MedicalImage` is checked against them.

        Args:
            source: anything that `read_image` accepts; a label map in memory is kept unchanged.
            kind: whether to read an image or a label map.
            index, series: which of several volumes or DICOM series to read; see `read_image`.

        Raises:
            InvalidInput: as for `read_image`; or there are more images than the model has channels.
        """
        if (count := channels_listed(source)) > 1 and isinstance(self.inferer, ImageReader):
            self.inferer.check_files(count)
        chosen = index is not None or series is not None
        if isinstance(source, MedicalImage) and source.kind == kind == "labels" and not chosen:
            return source
        return read_image(source, kind=kind, limits=self.limits, index=index, series=series)

    @property
    def reads(self) -> Kind:
        """Whether the model takes images or label maps."""
        return self.inferer.reads

    @cached_property
    def inferer(self) -> AppliedNetwork[Any]:
        """The object that applies the network, chosen by the task.

        Raises:
            InvalidBundle: the network is not of the required kind.
        """
        applied = INFERERS[self.task]
        if not isinstance(self.network, applied.kind):
            raise InvalidBundle(
                f"{self.name}: a {type(self.network).__name__} is not a network for {self.task}"
            )
        return applied(self.network, self.bundle.card, self.provenance, self.limits)

    @property
    def image_reader(self) -> ImageReader[Any]:
        """The object that applies the network, for a model that takes images.

        Raises:
            WrongTask: the model takes label maps.
        """
        inferer = self.inferer
        if not isinstance(inferer, ImageReader):
            raise WrongTask(
                f"{self.name} is a {self.task} model, which does not take images: choose one that "
                "does"
            )
        return inferer

    @property
    def segmenter(self) -> Segmenter:
        """Segments images; for segmentation models."""
        return self._inferer(Segmenter).in_precision(self.precision).with_tta(self.tta)

    @property
    def synthesizer(self) -> Synthesizer:
        """Synthesizes images; for synthesis models."""
        return self._inferer(Synthesizer)

    @property
    def classifier(self) -> Classifier:
        """Classifies images; for classification models."""
        return self._inferer(Classifier)

    def _inferer(self, kind: type[A]) -> A:
        if self.task != kind.task:
            raise WrongTask(f"{self.name} is a {self.task} model: choose a model for {kind.task}")
        found = self.inferer
        assert isinstance(found, kind)  # noqa: S101 - of its task
        return found


def known_device(device: str | int | torch.device | None = None) -> torch.device:
    """`device`, else ``CAPS_MED_DEVICE`` (``cpu``, ``cuda:1``), else a GPU if there is one.

    A number counts the accelerator's devices from 0, as in PyTorch.

    Raises:
        InvalidParameter: there is no such device.
    """
    given = device not in (None, "")
    named = device if given else os.environ.get("CAPS_MED_DEVICE")
    if named in (None, ""):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.empty(0, device=named)
        _ = found.cpu()  # "meta" holds no numbers
        return found.device
    # by what torch was built with; for numbers out of range, and of other types
    except (RuntimeError, AssertionError, ImportError, TypeError, ValueError) as error:
        asked, otherwise = ("device", "give none") if given else ("CAPS_MED_DEVICE", "unset it")
        raise InvalidParameter(
            f"{asked}={str(named)!r}: this machine has no such device; use cpu, or {otherwise}"
        ) from error


def load_model(
    name: str,
    models: str | Path | None = None,
    device: str | int | torch.device | None = None,
    limits: Limits | None = None,
) -> Model:
    """Load a model by name (``name@3`` for one version).

    Args:
        models: the model repository; None uses ``CAPS_MED_MODELS`` or the user's data folder.
            The built-in models are always available.
        device: where the network runs, as PyTorch names devices: ``"cpu"``, ``"cuda:1"``, or 1 for
            the accelerator's second; None uses ``CAPS_MED_DEVICE``, or a GPU if there is one.
        limits: bounds on the images that it reads, such as ``Limits(max_voxels=2**29)``; None uses
            ``CAPS_MED_MAX_VOXELS`` and so on, see `Limits.of_environment`, or the defaults.

    Raises:
        ModelNotFound: no such model. InvalidBundle: its files are damaged. InvalidParameter: this
            machine has no such device.
    """
    return Model(ModelRepository(models).find(name), limits, device)
