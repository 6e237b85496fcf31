"""The compose file of a cluster: what it mounts is there; what it publishes is the edge."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.test_operating import starts_with_a_password_alone

DOCKER = Path(__file__).parents[2] / "docker"
FOLDER = DOCKER / "cluster"
#: Made by the operator: the token is a secret.
MADE = {"./token"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return loaded


def test_what_is_mounted_is_there(compose: dict[str, Any]) -> None:
    sources = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
    } | {secret["file"] for secret in compose["secrets"].values()}
    for source in sources - MADE:
        if source.startswith("."):
            assert (FOLDER / source).exists(), source
        else:
            assert source in compose["volumes"]


def test_the_user_of_the_containers_may_write_to_their_volumes(compose: dict[str, Any]) -> None:
    """A volume whose folder is not in the image belongs to root; the token to who has made it."""
    (made,) = re.findall(r"chown capsmed (.*)", (DOCKER / "Dockerfile").read_text())
    nodes = [one for one in compose["services"].values() if one["image"] == "caps-med-scale"]
    mounted = {volume.split(":")[1] for node in nodes for volume in node["volumes"]}
    assert mounted == set(made.split())
    commands = re.findall("^#   (.*)", (FOLDER / "compose.yaml").read_text(), re.MULTILINE)
    begun = [command.split()[0] for command in commands]
    assert begun == ["openssl", "sudo", "docker", "docker"]  # no container starts without it
    assert commands[1].startswith("sudo chown 10001 docker/cluster/token")


def test_the_health_of_a_node_is_that_of_ray(compose: dict[str, Any]) -> None:
    """The image's own check asks the service, which no node has before it is deployed."""
    checks = {name: one.get("healthcheck") for name, one in compose["services"].items()}
    for name in ("head", "worker-1", "worker-2"):
        assert "http://127.0.0.1:52365/api/healthz" in checks[name]["test"][-1]
    assert checks["deploy"] == {"disable": True}  # it ends
    assert "HEALTHCHECK" in (DOCKER / "Dockerfile").read_text() and checks["jobs"] is None


def test_jobs_reach_the_dashboard(compose: dict[str, Any]) -> None:
    """It listens on its own machine alone, unless it is told otherwise."""
    services = compose["services"]
    assert services["jobs"]["environment"]["CAPS_MED_JOBS_RAY"] == "http://head:8265"
    assert "--dashboard-host=0.0.0.0" in services["head"]["command"]


def test_only_the_edge_and_grafana_are_published_and_only_here(compose: dict[str, Any]) -> None:
    published = {
        name: port
        for name, service in compose["services"].items()
        for port in service.get("ports", ())
    }
    assert set(published) == {"edge", "grafana"}
    assert all(port.startswith("127.0.0.1:") for port in published.values())
    assert compose["networks"]["cluster"]["internal"] is True
    for name, service in compose["services"].items():
        assert ("outside" in service["networks"]) == (name in published), name
        assert service["mem_limit"] and service["pids_limit"], name
        assert "no-new-privileges:true" in service["security_opt"]
        assert service["cap_drop"] == ["ALL"]
    starts_with_a_password_alone(
        compose["services"]["grafana"], "GRAFANA_PASSWORD", "GF_SECURITY_ADMIN_PASSWORD", "/run.sh"
    )


def test_every_node_wants_the_token_and_keys(compose: dict[str, Any]) -> None:
    nodes = [one for one in compose["services"].values() if one["image"] == "caps-med-scale"]
    assert len(nodes) == 5
    for node in nodes:
        assert node["environment"]["RAY_AUTH_MODE"] == "token"
        assert node["environment"]["CAPS_MED_REQUIRE_KEYS"] == "true"
        assert node["secrets"] == ["ray-token"]
        assert "--without-keys" not in node["command"]
    owners = [one for one in nodes if one["environment"]["CAPS_MED_TRAINING"] == "true"]
    assert len(owners) == 1  # of jobs and keys


def test_the_services_share_the_rate_of_a_key(compose: dict[str, Any]) -> None:
    deploy = compose["services"]["deploy"]
    count = int(deploy["command"][deploy["command"].index("--min-replicas") + 1]) + 1  # and jobs
    for name in ("deploy", "jobs"):
        assert compose["services"][name]["environment"]["CAPS_MED_REPLICAS"] == str(count)


def test_the_services_believe_the_edge(compose: dict[str, Any]) -> None:
    """Scheme, client and id of a request, which it sets itself, in the network that they share."""
    (network,) = compose["networks"]["cluster"]["ipam"]["config"]
    edges = yaml.safe_load((DOCKER / "compose.edge.yaml").read_text())["networks"]["default"]
    assert network not in edges["ipam"]["config"]  # both may run
    assert "cluster" in compose["services"]["edge"]["networks"]
    for name in ("deploy", "jobs"):
        given = compose["services"][name]["environment"]["CAPS_MED_TRUSTED_PROXIES"]
        assert json.loads(given) == ["127.0.0.1", network["subnet"]]


def test_the_edge_knows_the_services(compose: dict[str, Any]) -> None:
    named = set(re.findall(r"server \S+ ([\w-]+):8000", (FOLDER / "haproxy.cfg").read_text()))
    assert named == {"worker-1", "worker-2", "jobs"} and named <= set(compose["services"])
    scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    hosts = {
        target.partition(":")[0]
        for job in scraped
        for one in job["static_configs"]
        for target in one["targets"]
    }
    assert hosts == named
    for name in hosts:  # by which Prometheus calls them
        assert name in json.loads(
            compose["services"][name]["environment"]["CAPS_MED_ALLOWED_HOSTS"]
        )


def test_the_edge_sends_as_that_of_plain_services_does() -> None:
    def frontend(path: Path) -> str:
        return path.read_text().partition("frontend edge\n")[2].partition("backend ")[0]

    plain = DOCKER / "haproxy" / "haproxy.cfg"
    changed = frontend(plain).replace('"${CAPS_MED_EDGE}"', ":8000")
    assert changed and changed == frontend(FOLDER / "haproxy.cfg")
