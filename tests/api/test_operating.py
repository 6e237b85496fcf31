"""The operator's files: what they name exists, and the page lists every setting as it is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from api.app import create_app
from api.examples import ADDRESS
from api.metrics import Metrics
from api.settings import MIB, Settings

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "docker" / "monitoring"
#: What Prometheus itself knows, and what it makes of a counter or histogram.
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def names() -> set[str]:
    """Metrics that the service exports."""
    lines = Metrics().text().decode().splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    return {name + end for name in types for end in ("", *SUFFIXES)}


def asked(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:caps_med|process)_[a-z_]+", expression))


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
    board = json.loads((MONITORING / "grafana" / "dashboards" / "caps-med.json").read_text())
    targets = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions = [rule["expr"] for rule in rules] + targets
    for expression in expressions:
        assert asked(expression) <= names(), expression
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    page = (ROOT / "docs" / "service.md").read_text()
    assert asked(page) <= names()


def test_compose_mounts_files_that_there_are() -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / "docker" / source).exists(), source
            else:
                assert source in compose["volumes"]
    prometheus = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    (scraped,) = prometheus["scrape_configs"]
    host = scraped["static_configs"][0]["targets"][0].partition(":")[0]
    assert host in compose["services"]
    hosts = compose["services"]["caps-med"]["environment"]["CAPS_MED_ALLOWED_HOSTS"]
    assert host in json.loads(hosts)


def test_composed_services_are_bounded_and_have_no_known_password() -> None:
    text = (ROOT / "docker" / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    for name, service in services.items():
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        assert "no-new-privileges:true" in service["security_opt"], name
    starts_with_a_password_alone(
        services["grafana"], "GRAFANA_PASSWORD", "GF_SECURITY_ADMIN_PASSWORD", "/run.sh"
    )
    starts_with_a_password_alone(
        services["orthanc"], "ORTHANC_PASSWORD", "ORTHANC_PASSWORD", "Orthanc"
    )


def starts_with_a_password_alone(
    service: dict[str, Any], given: str, name: str, program: str
) -> None:
    """The operator gives it as `given`; the program, which is in the image alone, needs `name`."""
    assert service["environment"][name] == f"${{{given}:-}}"
    command = [word.replace("$$", "$") for word in service["entrypoint"]]
    bare = {"PATH": "/usr/bin:/bin"}
    without = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert without.returncode == 1
    assert f"set {given}" in without.stderr
    password = {**bare, name: "a long one"}
    started = subprocess.run(command, env=password, capture_output=True, text=True, check=False)
    assert program in started.stderr


def shown(value: Any) -> str:  # noqa: ANN401 - any setting's default
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= MIB and value % MIB == 0:
        return f"{value // MIB} MiB ({value})"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (tuple, dict)):
        return f"`{json.dumps(value)}`"
    return str(value)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_stands_in_the_page_with_its_default(name: str) -> None:
    page = (ROOT / "docs" / "service.md").read_text()
    row = f"| `CAPS_MED_{name.upper()}` | {shown(Settings.model_fields[name].default)} |"
    assert row in page, row


def test_nginx_passes_the_host_on_wherever_it_calls_the_service() -> None:
    """A location inherits no header from another one; the service refuses other names."""
    page = (ROOT / "docs" / "service.md").read_text()
    whole = page.partition("```nginx\n")[2].partition("```")[0]
    locations = whole.split("location ")[1:]
    assert len(locations) == 2
    for location in locations:
        assert "proxy_set_header Host $http_host;" in location


def test_every_route_has_an_example(models: Path) -> None:
    with TestClient(create_app(Settings(models=models, preload=()))) as client:
        paths = client.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            (sample,) = operation["x-codeSamples"]
            assert sample["lang"] == "Shell", (method, path)
            words = sample["source"].split()
            pattern = re.sub(r"\\\{\w+\\\}", "[^/{}]+", re.escape(path))
            assert re.fullmatch(rf"http://127\.0\.0\.1:8000{pattern}", words[-1]), sample
            takes_form = method == "post" and "requestBody" in operation and "-X" not in words
            assert ("-F" in words) == takes_form, sample
            assert ("-X" in words) == (method != "get" and not takes_form), sample


def test_examples_name_a_file_and_a_model_that_fit() -> None:
    paths = create_app(Settings(preload=(), training=False)).openapi()["paths"]
    segment = paths["/v1/models/{model}/segment"]["post"]["x-codeSamples"][0]["source"]
    assert segment == f"curl -F image=@t1.nii.gz {ADDRESS}/v1/models/brain-t1-tissue/segment"
    synthesize = paths["/v1/models/{model}/synthesize"]["post"]["x-codeSamples"][0]["source"]
    assert "-F labels=@labels.nii.gz" in synthesize
    assert "/brain-t1-synthesis/" in synthesize
