"""The manifests for Kubernetes, against Kubernetes' own schemas and the fields of KubeRay's."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from api.cluster.serve import check_http
from api.settings import Settings
from tests.deployment.kuberay import SCHEMAS

FOLDER = Path(__file__).parents[2] / "docker" / "kubernetes"
CHART = FOLDER / "chart"
#: Strictly: with unknown fields refused.
VERSION = "1.37"
#: Of KubeRay's operator, however it is installed.
OPERATOR = {"app.kubernetes.io/component": "kuberay-operator"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def templates(cluster: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods of a Ray cluster."""
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        yield group["template"]


def cluster_of(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]
    cluster: dict[str, Any] = spec.get("rayClusterConfig") or spec["rayClusterSpec"]
    return cluster


@pytest.mark.parametrize("name", ["rayservice.yaml", "rayjob.yaml"])
def test_resources_of_kuberay(name: str) -> None:
    (document,) = documents(name)
    schema = SCHEMAS[document["kind"]]
    jsonschema.validate(document, schema)
    for template in templates(cluster_of(document)):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **template}
        kubernetes_validate.validate(pod, VERSION, strict=True)
        (container,) = template["spec"]["containers"]
        assert container["resources"]["limits"]["memory"]
        assert template["spec"]["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    misspelt = copy.deepcopy(document)
    cluster_of(misspelt)["headGroupSpec"]["rayStartParam"] = {}
    with pytest.raises(jsonschema.ValidationError, match="'rayStartParam' was unexpected"):
        jsonschema.validate(misspelt, schema)
    assert cluster_of(document)["authOptions"] == {"mode": "token"}


def test_replicas_accept_how_long_serve_waits() -> None:
    """They do not start with a Serve that ends requests before the service does."""
    serve = yaml.safe_load(documents("rayservice.yaml")[0]["spec"]["serveConfigV2"])
    options = {"request_timeout_s": None, **serve["http_options"]}  # Ray's default
    check_http(SimpleNamespace(**options), Settings())


def test_what_the_pods_of_a_cluster_share() -> None:
    for document in documents("network.yaml"):
        kubernetes_validate.validate(document, VERSION, strict=True)
    _, policy = documents("network.yaml")
    others = [rule for rule in policy["spec"]["ingress"] if "from" not in rule]
    assert [rule["ports"] for rule in others] == [[{"protocol": "TCP", "port": 8000}]]
    (inside,) = (rule["from"] for rule in policy["spec"]["ingress"] if "from" in rule)
    (job,) = documents("rayjob.yaml")
    for labels in (  # of the operator by Helm and by Kustomize, and of the pod that submits a job
        {"app.kubernetes.io/name": "kuberay-operator", **OPERATOR},
        {"app.kubernetes.io/name": "kuberay", **OPERATOR},
        {"batch.kubernetes.io/job-name": job["metadata"]["name"]},
    ):
        selected = [one["podSelector"]["matchLabels"].items() for one in inside]
        assert any(one <= labels.items() for one in selected), labels
    for name in ("rayservice.yaml", "rayjob.yaml"):
        (document,) = documents(name)
        for template in templates(cluster_of(document)):
            selected = policy["spec"]["podSelector"]["matchLabels"]
            assert selected.items() <= template["metadata"]["labels"].items()


def environments() -> Iterator[tuple[str, str]]:
    """Where and what is set of this project's settings."""
    for name in ("rayservice.yaml", "rayjob.yaml"):
        for template in templates(cluster_of(documents(name)[0])):
            for variable in template["spec"]["containers"][0]["env"]:
                yield name, variable["name"]
    text = (CHART / "templates" / "deployment.yaml").read_text()
    yield from (("chart", name) for name in re.findall(r"name: (CAPS_MED_\w+)", text))


def test_settings_that_are_set_exist() -> None:
    known = {f"CAPS_MED_{name.upper()}" for name in Settings.model_fields}
    named = [pair for pair in environments() if pair[1].startswith("CAPS_MED_")]
    assert len(named) > 8
    for place, name in named:
        assert name in known, place


def test_replicas_of_the_chart_leave_jobs_and_projects_to_another_service() -> None:
    """Which replica a request reaches is left to chance, and a job is in the memory of one."""
    text = (CHART / "templates" / "deployment.yaml").read_text()
    assert re.search(r'name: CAPS_MED_INFERENCE_ONLY\n +value: "true"', text)


def test_replicas_of_a_cluster_share_the_rate_of_a_key() -> None:
    (document,) = documents("rayservice.yaml")
    (served,) = yaml.safe_load(document["spec"]["serveConfigV2"])["applications"]
    for template in templates(cluster_of(document)):
        (container,) = template["spec"]["containers"]
        told = {one["name"]: one["value"] for one in container["env"]}
        assert told["CAPS_MED_REPLICAS"] == str(served["args"]["min_replicas"])


def test_replicas_of_the_chart_share_the_rate_of_a_key() -> None:
    text = (CHART / "templates" / "deployment.yaml").read_text()
    assert re.search(r"name: CAPS_MED_REPLICAS\n +value: {{ .Values.replicas \| quote }}", text)


def test_replicas_of_the_chart_answer_prometheus() -> None:
    """It calls the address of each pod, as the annotation asks it to."""
    text = (CHART / "templates" / "deployment.yaml").read_text()
    assert 'prometheus.io/scrape: "true"' in text
    assert re.search(r"name: POD_IP.*\n +valueFrom:\n +fieldRef:\n +fieldPath: status.podIP", text)
    (hosts,) = re.findall("name: CAPS_MED_ALLOWED_HOSTS\n(.*)", text)
    assert '"$(POD_IP)"' in hosts


def test_the_command_of_the_batch_job_is_understood() -> None:
    from typer.testing import CliRunner

    from caps_med.cli import commands

    (document,) = documents("rayjob.yaml")
    program, *arguments = shlex.split(document["spec"]["entrypoint"])
    assert program == "caps-med"
    arguments += ["--jobs", "0"]  # the last thing that is checked before anything is done
    result = CliRunner().invoke(commands.app, arguments)
    assert "'--jobs'" in result.output and "--cluster" not in result.output


def test_values_that_the_chart_uses_are_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    used = {
        path
        for template in (CHART / "templates").iterdir()
        for path in re.findall(r"\.Values\.([\w.]+)", template.read_text())
    }
    assert used
    for path in used:
        at = values
        for name in path.split("."):
            assert name in at, path
            at = at[name]
