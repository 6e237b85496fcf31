"""What many tests share: two tiny models, and a small labelled folder."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from benchmarks import orthanc as orthanc_server
from caps_med.bundles import (
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    write_bundle,
)
from caps_med.networks import build_network
from tests.preloaded import Preloaded, python_beside

# Started in the background, a shell has its programs ignore Ctrl-C; tests send it to theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _modules_stay() -> None:
    """The garbage collector leaves out the million objects of all modules and tests.

    Looking through them takes a second, and services do after each model that they load. A command
    that another test ran in this process has them looked through again.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts() -> None:
    """A command that another test ran in this process leaves Ctrl-C ending it at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int | None:
    """With ``-n auto`` three processes for two cores, as tests of services wait for answers."""
    asked = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")  # xdist's own, which it then obeys
    return None if asked else max(1, (os.cpu_count() or 1) * 3 // 2)


PRELOADED = pytest.StashKey[Preloaded]()


def pytest_configure(config: pytest.Config) -> None:
    """One process that has imported what commands need, for the tests in all processes."""
    if not hasattr(config, "workerinput"):
        config.stash[PRELOADED] = Preloaded()
        config.add_cleanup(config.stash[PRELOADED].close)


def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - of xdist
    """Tell a process where it is."""
    node.workerinput["preloaded"] = str(node.config.stash[PRELOADED].command)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """While it imports all that tests need, the garbage collector rests: it would find nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In parallel, files of slow tests come first: begun last, one would end long after the rest.

    Then the files of many tests. Needs ``--no-loadscope-reorder``.
    """
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        count = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path not in slow, -count[item.path]))


LABELS = {0: "background", 2: "nucleus", 7: "membrane"}
#: The models that come along, as they are listed.
BUILT_IN_NAMES = (
    "axon-segmentation", "axon-synthesis", "brain-slices", "brain-synthesis", "brain-t1-synthesis",
    "brain-t1-tissue", "brain-tissue", "digits", "fashion", "hippocampus", "hippocampus-synthesis",
)  # fmt: skip


def tiny_card(
    task: str,
    spacing: tuple[float, float] | None = (1.0, 1.0),
    network: NetworkSpec | None = None,
    labels: Mapping[int, str] = LABELS,
) -> ModelCard:
    """The card of a tiny model; by default a capsule network that knows the labels 0, 2 and 7."""
    segments = task == "segmentation"
    arguments = {"atoms": 4, "out_channels" if segments else "label_channels": 3}
    capsules = NetworkSpec(name="SegCaps" if segments else "CapsPix2Pix", arguments=arguments)
    return ModelCard.model_validate(
        {
            "task": task,
            "network": network or capsules,
            "labels": labels,
            "spacing_mm": spacing,
            "provenance": WeightsProvenance(command="pytest", data="none", seed=0),
        }
    )


def tiny_binary(network: str, label: str) -> ModelCard:
    """The card of a tiny ``SegCaps`` or ``UNet`` with one foreground class."""
    size = {"features": [4, 4, 8, 8, 8, 4]} if network == "UNet" else {"atoms": 4}
    spec = NetworkSpec(name=network, arguments={"out_channels": 1, **size})
    return tiny_card("segmentation", None, spec, {0: "background", 1: label})


def write_tiny(root: Path, name: str, card: ModelCard) -> None:
    """A model with random weights that are always the same."""
    torch.manual_seed(5)
    network = build_network(card.network.name, card.network.arguments)
    write_bundle(ModelRepository(root), name, network, card)


@pytest.fixture(scope="session", autouse=True)
def _no_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever keys the user of this machine has made, the tests begin without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPS_MED_KEYS", str(tmp_path_factory.mktemp("keys") / "keys.db"))
        patch.setenv("CAPS_MED_JOB_NICE", "0")  # jobs are waited for
        yield


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with `tiny-segmentation` and `tiny-synthesis`."""
    root = tmp_path_factory.mktemp("models")
    for task in ("segmentation", "synthesis"):
        write_tiny(root, f"tiny-{task}", tiny_card(task))
    return root


def disc(rng: np.random.Generator, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A noisy picture of a bright disc on grey, and its mask."""
    y, x = np.mgrid[:size, :size]
    centre, radius = rng.uniform(size * 0.3, size * 0.7, 2), rng.uniform(size * 0.1, size * 0.25)
    mask = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2
    image = np.where(mask, 200, 60) + rng.normal(0, 10, mask.shape)
    return image.clip(0, 255).astype(np.uint8), mask.astype(np.uint8)


@pytest.fixture(scope="session")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six 72x80 pictures of discs, with masks of 0 and 255."""
    folder = tmp_path_factory.mktemp("discs")
    rng = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (folder / kind).mkdir()
    for i in range(6):
        image, mask = disc(rng, 80)
        Image.fromarray(image[:72]).save(folder / "images" / f"case{i}.png")
        Image.fromarray(mask[:72] * np.uint8(255)).save(folder / "labels" / f"case{i}.png")
    return folder


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder for prepared arrays, outside the data."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def preloaded(pytestconfig: pytest.Config) -> Path:
    """The command ``caps-med``, which need not import anything: see `tests.preloaded`."""
    if hasattr(pytestconfig, "workerinput"):
        return Path(pytestconfig.workerinput["preloaded"])
    return pytestconfig.stash[PRELOADED].command


@pytest.fixture(scope="session")
def python(preloaded: Path) -> Path:
    """``python -m`` and ``python -c`` likewise."""
    return python_beside(preloaded)


@pytest.fixture(scope="session")
def orthanc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[orthanc_server.Orthanc]:
    """A real archive for all tests of this process; whoever stores in it clears it before."""
    if reason := orthanc_server.missing():
        if os.environ.get("CAPS_MED_NEED_ORTHANC"):
            pytest.fail(reason)
        pytest.skip(reason)
    with orthanc_server.running(tmp_path_factory.mktemp("orthanc")) as running:
        yield running


@pytest.fixture(scope="module")
def filled(orthanc: orthanc_server.Orthanc) -> orthanc_server.Orthanc:
    """An archive of the one series of `tests.archives.series`."""
    from tests.archives.series import slices  # few tests need it

    orthanc.clear()
    for file in slices():
        orthanc.store(file)
    return orthanc
