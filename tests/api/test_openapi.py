"""The OpenAPI document against the service: no 5xx, and each answer is as the document says."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import randoms
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.problems import PROBLEMS
from api.settings import Settings
from caps_med.images import MedicalImage, encode_image
from tests.api.mutations import good_files
from tests.conftest import tiny_card, write_tiny

#: Requests a route; the same in each run.
EXAMPLES = 25
LABELS = MedicalImage(np.full((1, 16, 24), 2, np.uint8), kind="labels")
GOOD = {
    "image": list(good_files().values()),
    "labels": [encode_image(LABELS, form) for form in ("png", "nifti", "tiff", "npz")],
}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401
    """The document of a service with two tiny models."""
    root = tmp_path_factory.mktemp("openapi")
    for task in ("segmentation", "synthesis"):
        write_tiny(root, f"tiny-{task}", tiny_card(task))
    app = create_app(Settings(models=root, preload=()))
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def operations() -> list[tuple[str, str]]:
    """Method and path of every route."""
    with TemporaryDirectory() as root:
        paths = create_app(Settings(models=Path(root), preload=())).openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


OPERATIONS = operations()


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=map(" ".join, OPERATIONS))
def test_answers_are_as_the_document_says(described: Any, method: str, path: str) -> None:  # noqa: ANN401
    """Of what is random, most is led on to where a model runs."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described[path][method].as_strategy(), chosen=randoms(use_true_random=False))
    def check(case: Any, chosen: random.Random) -> None:  # noqa: ANN401
        body = case.body if isinstance(case.body, dict) else {}
        model = "tiny-synthesis" if "labels" in body else "tiny-segmentation"
        if "model" in (case.path_parameters or {}) and chosen.random() < 0.8:
            case.path_parameters["model"] = model
        for part, files in GOOD.items():
            if part in body and chosen.random() < 0.8:
                body[part] = chosen.choice(files)
        # /readyz says 503 until the service is ready, which is no fault
        checks = [c for c in CHECKS if path != "/readyz" or c is not not_a_server_error]
        case.call_and_validate(checks=checks, timeout=120)  # seconds: a busy machine is no fault

    check()


def test_a_request_is_answered_without_the_document(models: Path) -> None:
    """To make it takes long, and nobody is answered meanwhile."""
    app = create_app(Settings(models=models, preload=()))
    with TestClient(app) as client:
        answer = client.post("/v1/models/tiny-segmentation/segment", files={"imag": b""})
    assert answer.status_code == 422
    assert "there is no part 'imag': known are refine," in answer.json()["detail"]
    assert app.openapi_schema is None


def test_every_problem_is_in_the_document(described: Any) -> None:  # noqa: ANN401
    document = described.raw_schema
    listed = {
        (int(status), media)
        for methods in document["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        for media in answer.get("content", {})
        if int(status) >= 400
    }
    assert {media for _, media in listed} == {"application/problem+json"}
    assert {status for status, _ in listed} <= {problem.status for problem in PROBLEMS.values()}


def test_every_route_of_the_api_names_its_scope(described: Any) -> None:  # noqa: ANN401
    for path, methods in described.raw_schema["paths"].items():
        for operation in methods.values():
            closed = path.startswith(("/v1", "/metrics"))
            assert ("security" in operation) == closed, path
            assert ("401" in operation["responses"]) == closed, path
