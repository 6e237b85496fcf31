"""docs/clinic.md and docker/orthanc, with a real Orthanc and a real service."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from api.settings import Settings
from benchmarks import orthanc as orthanc_server
from benchmarks.orthanc import Orthanc
from caps_med.archives import configured_archives
from caps_med.archives.settings import VARIABLE
from tests.api.running import Running, running
from tests.archives.series import slices
from tests.images.dicom_files import SERIES
from tests.waiting import until

ROOT = Path(__file__).parents[2]
MODEL = "tiny-segmentation"


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[Running]:
    with running(Settings(models=models, preload=(), training=False)) as served:
        yield served


def commands(heading: str) -> str:
    """The commands of the first block below a heading of the page."""
    page = (ROOT / "docs" / "clinic.md").read_text()
    block = re.search(rf"^## {heading}$.*?^```console\n(.*?)^```", page, re.M | re.S)
    assert block, heading
    return block[1]


def segmentations(orthanc: Orthanc) -> list[str]:
    """The modalities of all series but those of images."""
    tags = [orthanc.call(f"/series/{one}")["MainDicomTags"] for one in orthanc.call("/series")]
    return [one["Modality"] for one in tags if one["Modality"] != "MR"]


def test_three_lines_of_curl(orthanc: Orthanc, service: Running, tmp_path: Path) -> None:
    orthanc.clear()
    for file in slices(Modality="MR"):
        orthanc.store(file)
    (series,) = orthanc.call("/series")
    login = orthanc.address.replace("http://", f"http://{orthanc.user}:{orthanc.password}@")
    variables = {"ORTHANC": login, "CAPS": service.address, "SERIES": series, "MODEL": MODEL}
    lines = commands("Orthanc in three lines of curl")
    assert len(lines.splitlines()) == 3
    done = subprocess.run(
        ["bash", "-e", "-c", lines], env={**os.environ, **variables}, cwd=tmp_path, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert segmentations(orthanc) == ["SEG"]


@contextmanager
def composed(folder: Path, service: Running) -> Iterator[Orthanc]:
    """Orthanc with the configuration and the hook of the compose file."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    names = set(compose["services"]["orthanc"]["environment"])
    options = json.loads((ROOT / "docker" / "orthanc" / "orthanc.json").read_text())
    here = {
        "StorageDirectory": str(folder / "storage"),
        "IndexDirectory": str(folder / "storage"),
        "Plugins": [str(orthanc_server.PLUGIN)],
        "LuaScripts": [str(ROOT / "docker" / "orthanc" / "segment.lua")],
        "StableAge": 1,
    }
    environment = {
        "ORTHANC_PASSWORD": "a-secret-of-the-archive",
        "CAPS_MED_URL": service.address,
        "CAPS_MED_MODEL": MODEL,
        "CAPS_MED_MODALITY": "MR",
        "CAPS_MED_KEY": "",
    }
    assert set(environment) == names
    with (
        orthanc_server.running(folder, environment, **{**options, **here}) as found,
        found.calls_out(service.port),
    ):
        yield found


def test_the_hook_segments_what_arrives_once(
    orthanc: Orthanc, service: Running, tmp_path: Path
) -> None:
    del orthanc  # it is installed
    route = "/v1/models/{model}/segment"
    before = service.count(route=route)
    with composed(tmp_path, service) as hooked:
        for file in slices(Modality="MR"):
            hooked.store(file)
        until(lambda: segmentations(hooked) == ["SEG"])
        # the SEG has become stable, too, when the next series has: series are seen in turn
        for file in slices(f"{SERIES}.5", Modality="MR"):
            hooked.store(file)
        until(lambda: segmentations(hooked) == ["SEG", "SEG"])
        until(lambda: all(hooked.call(f"/series/{s}")["IsStable"] for s in hooked.call("/series")))
    assert service.count(route=route, outcome="200") - before == 2
    assert service.count(route=route) - before == 2


def test_the_composed_service_names_the_composed_archive() -> None:
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    archives = configured_archives(services["caps-med"]["environment"])
    (named,) = archives.values()
    port = services["orthanc"]["ports"][0].rsplit(":", 1)[1]
    assert named.url == f"http://orthanc:{port}/dicom-web"
    users = json.loads((ROOT / "docker" / "orthanc" / "orthanc.json").read_text())[
        "RegisteredUsers"
    ]
    assert users == {named.user: "${ORTHANC_PASSWORD}"}
    password = services["orthanc"]["environment"]["ORTHANC_PASSWORD"]
    assert named.basic() == (named.user, password)


def test_the_settings_of_the_page_are_valid() -> None:
    page = (ROOT / "docs" / "clinic.md").read_text()
    (text,) = re.findall(rf"export {VARIABLE}='(.*)'", page)
    assert set(configured_archives({VARIABLE: text})) == {"pacs"}
