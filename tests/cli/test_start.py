"""What each command imports: a second torch or MONAI at the start is felt, and a count is exact."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med import MedicalImage, bundles, samples

TORCH = {"torch", "monai", "ignite", "numba"}
#: What a command that computes nothing needs none of, each a tenth of a second or more.
LIBRARIES = {*TORCH, "scipy", "skimage", "sklearn", "matplotlib", "highdicom", "pydicom", "nibabel"}

#: Modules of a service that is ready, without those of PyTorch and NumPy: a tenth more than it has.
SERVICE_MODULES = 1450


def modules_of(*arguments: str | Path) -> set[str]:
    """The modules that a process has imported when the command has ended."""
    code = (
        "import json, sys\nfrom caps_med.cli import main\nsys.argv[0] = 'caps-med'\n"
        "try:\n    main()\nfinally:\n    print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    return _last_line([sys.executable, "-c", code, *map(str, arguments)])


def _last_line(command: Sequence[str]) -> set[str]:
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(answer.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four pictures with label maps."""
    folder = tmp_path_factory.mktemp("pictures")
    noise = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (folder / kind).mkdir()
        for number in range(4):
            array = noise.integers(0, 2 if kind == "labels" else 255, (1, 32, 32), np.uint8)
            MedicalImage(array).save(folder / kind / f"{number}.png")
    return folder


@pytest.mark.parametrize("arguments", [("--help",), ("train", "--help"), ("serve", "--help")])
def test_help_imports_no_library(arguments: tuple[str, ...]) -> None:
    assert not modules_of(*arguments) & {*LIBRARIES, "numpy", "fastapi", "PIL"}


def test_models_are_listed_without_torch(tmp_path: Path) -> None:
    modules = modules_of("models", "list", "--models", tmp_path)
    assert "caps_med.bundles.metadata" in modules
    assert not modules & LIBRARIES


def test_a_service_that_is_ready_has_imported_what_the_first_answer_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPS_MED_MODELS", str(tmp_path))
    monkeypatch.setenv("CAPS_MED_KEYS", str(tmp_path / "keys.db"))
    code = (
        "import asyncio, json, sys\nfrom api.app import create_app\napp = create_app()\n"
        "async def until_ready():\n"
        "    async with app.router.lifespan_context(app):\n"
        "        while not app.state.engine.ready:\n            await asyncio.sleep(0.01)\n"
        "        print('\\n' + json.dumps([*sys.modules]))\n"
        "asyncio.run(until_ready())"
    )
    found = _last_line([sys.executable, "-c", code])
    assert "caps_med.routing.numba_kernels" in found
    assert not found & {*LIBRARIES, "sympy", "requests", "highdicom"} - {"torch", "numba", "scipy"}
    assert not found & {"scipy.stats", "scipy.special", "scipy.ndimage", "numba.np.linalg"}
    others = [name for name in found if not name.startswith(("torch.", "numpy."))]
    assert len(others) < SERVICE_MODULES


def test_a_service_compares_the_models_of_a_round_without_monai() -> None:
    """All other requests would wait for the seconds that MONAI's import takes."""
    code = (
        "import asyncio, contextlib, json, sys\nimport numpy as np\n"
        "from types import SimpleNamespace\n"
        "from api.projects.evaluation import scores_of\n"
        "labels = SimpleNamespace(array=np.ones((1, 4, 4), np.uint8))\n"
        "async def answered(*_): return labels\n"
        "async def run(_, work): return work()\n"
        "budget = SimpleNamespace(claim=contextlib.nullcontext)\n"
        "engine = SimpleNamespace(load=answered, predict=answered, run=run, budget=budget)\n"
        "images = SimpleNamespace(decoded=answered)\n"
        "annotations = SimpleNamespace(read=lambda *_: labels, label=lambda _: None)\n"
        "image = SimpleNamespace(id='a', name='disc.png')\n"
        "project = SimpleNamespace(foreground={1: 'disc'}, ignore_label=None)\n"
        "given = engine, images, annotations, project, 'discs@1', {'a': [image]}\n"
        "found = asyncio.run(scores_of(*given))\n"
        "assert found.cases == [{'disc': 1.0}]\nprint(json.dumps([*sys.modules]))"
    )
    assert not _last_line([sys.executable, "-c", code]) & {"monai", "ignite", "matplotlib"}


def test_data_is_checked_without_torch(pictures: Path) -> None:
    modules = modules_of("data", "check", pictures)
    assert "training.data.check.check" in modules
    assert not modules & LIBRARIES


def test_the_library_is_imported_at_first_use() -> None:
    code = "import json, sys, caps_med; print(json.dumps([*sys.modules]))"
    assert not _last_line([sys.executable, "-c", code]) & {*LIBRARIES, "numpy", "pydantic"}


@pytest.mark.parametrize("package", [caps_med, bundles])
def test_what_is_imported_at_first_use_is_there(package: object) -> None:
    names = vars(package)["__all__"]
    assert set(names) <= set(dir(package))
    for name in names:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = getattr(package, "nonsense")  # noqa: B009 - mypy knows that there is none


def test_a_segmentation_imports_what_it_needs_and_compiles_nothing_again(tmp_path: Path) -> None:
    arguments = ["segment", "--model", "brain-t1-tissue", str(samples.T1)]
    caps_med.load_model("brain-t1-tissue").segment(samples.T1)  # its kernels are cached from now on
    code = (
        "import json, sys\nfrom numba.core.event import install_recorder\n"
        "from caps_med.cli import main\nsys.argv[0] = 'caps-med'\n"
        "with install_recorder('numba:compile') as compiled:\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert not end.code\n"
        "print('\\n' + json.dumps([*sys.modules, *(f'compiled {one}' for one in compiled.buffer)]))"
    )
    found = _last_line([sys.executable, "-c", code, *arguments, "--out", str(tmp_path / "a.nii")])
    assert "caps_med.routing.numba_kernels" in found
    assert not [one for one in found if one.startswith("compiled")]
    assert not found & {"monai", "ignite", "sklearn", "matplotlib", "highdicom", "tifffile"}
    assert not found & {"scipy.special", "scipy.ndimage"}
    assert "numba.np.linalg" not in found  # of Numba only what runs compiled code


def test_options_of_training_jobs_are_checked_without_torch() -> None:
    """In the processes of jobs and of the check of their data, which do not serve either."""
    code = (
        "import json, sys\nimport api.jobs.check, api.jobs.worker\n"
        "from api.jobs.job import Options\n"
        "assert Options(randomize=True, labels='freesurfer-tissue').label_maps\n"
        "print(json.dumps([*sys.modules]))"
    )
    assert not _last_line([sys.executable, "-c", code]) & {*TORCH, "scipy", "fastapi"}
