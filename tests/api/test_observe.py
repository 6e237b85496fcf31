"""What is written down of a request, and that nothing of its content is."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from api import logs, tracing
from api.access.keys import KeyStore
from api.app import create_app
from api.settings import Settings

SEGMENT = "/v1/models/tiny-segmentation/segment"


@pytest.mark.usefixtures("fresh_logging")
def test_logs_are_lines_of_json_and_the_audit_log_a_file(
    models: Path, picture: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = tmp_path / "audit.jsonl"
    logs.configure(audit)
    with TestClient(create_app(Settings(models=models, preload=()))) as client:
        named = {"Idempotency-Key": "for Jane Doe"}
        answer = client.post(SEGMENT, files={"image": ("jane_doe.png", picture)}, headers=named)
        client.post(SEGMENT, files={"image": ("jane_doe.png", b"no image")})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    answered = [line for line in lines if line["message"] == "answered"]
    assert [line["outcome"] for line in answered] == ["200", "415"]
    assert answered[0]["request"] == answer.headers["X-Request-ID"]
    assert answered[0]["route"] == "/v1/models/{model}/segment"
    first, second = (json.loads(line) for line in audit.read_text().splitlines())
    wanted = {
        "action": "POST /v1/models/{model}/segment",
        "request": answer.headers["X-Request-ID"],
        "model": "tiny-segmentation",
        "version": 1,
        "input_sha256": hashlib.sha256(picture).hexdigest(),
        "idempotency_sha256": hashlib.sha256(b"for Jane Doe").hexdigest(),
        "outcome": "200",
    }
    assert wanted.items() <= first.items()
    assert second["outcome"] == "415"
    assert "jane" not in (audit.read_text() + str(lines)).lower()


@pytest.mark.usefixtures("fresh_logging")
def test_refused_calls_are_audited_without_their_paths(models: Path, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    logs.configure(audit)
    settings = Settings(models=models, preload=(), keys=tmp_path / "keys", max_upload_bytes=1000)
    keys = KeyStore(tmp_path / "keys")
    (one, key), (rare, seldom) = keys.create("one", ["infer"]), keys.create("rare", ["infer"], 1)
    with TestClient(create_app(settings)) as client:
        calls: list[tuple[str, str, str, dict[str, Any]]] = [
            ("GET", "/v1/models/jane_doe?name=jane", "", {}),
            ("GET", "/V1/jane_doe", "caps_jane", {}),
            ("GET", "/v1/training-jobs/jane_doe", key, {}),
            ("GET", "/v1/jane_doe", key, {}),
            ("JANE", "/v1/jane_doe", key, {}),
            ("GET", "/datastore/jane_doe", "", {}),
            ("POST", SEGMENT, key, {"files": {"image": ("jane_doe.png", bytes(2000))}}),
            ("POST", SEGMENT, key, {"content": b"jane", "headers": {"Content-Encoding": "jane"}}),
            ("GET", "/v1/models", seldom, {}),
            ("GET", "/v1/models", seldom, {}),
            ("GET", "/jane_doe", "", {}),
            ("GET", "/metrics", "", {}),
        ]
        for method, path, text, sent in calls:
            headers = {"X-API-Key": text, **sent.pop("headers", {})}
            client.request(method, path, headers=headers, **sent)
    text = audit.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    owner, other = f"one {one.id}", f"rare {rare.id}"
    assert [(line["action"], line.get("who"), line["outcome"]) for line in lines] == [
        ("GET unmatched", None, "401"),
        ("GET unmatched", None, "401"),
        ("GET unmatched", owner, "403"),
        ("GET unmatched", owner, "404"),
        ("OTHER unmatched", owner, "403"),
        ("GET unmatched", None, "401"),
        ("POST unmatched", owner, "413"),
        ("POST unmatched", owner, "415"),
        ("GET /v1/models", other, "200"),
        ("GET unmatched", other, "429"),
    ]
    assert "jane" not in text.lower()


def test_an_exception_is_logged_without_its_message() -> None:
    try:
        raise ValueError("Jane Doe")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, __file__, 1, "it failed", (), __import__("sys").exc_info()
        )
    line = json.loads(logs.JsonLines().format(record))
    assert line["exception"] == "ValueError"
    assert line["where"].startswith("test_observe.py:")
    assert "Jane" not in str(line)


def test_spans_of_a_request_below_the_callers(models: Path, picture: bytes) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with TestClient(create_app(Settings(models=models, preload=()))) as client:
        client.post(SEGMENT, files={"image": picture}, headers={"traceparent": caller})
    found = {span.name: span for span in spans.get_finished_spans()}
    assert {"POST", "load", "predict", "encode"} <= set(found)
    server = found["POST"]
    assert server.parent is not None and f"{server.parent.span_id:016x}" == "b7ad6b7169203331"
    assert found["predict"].context.trace_id == int("0af7651916cd43dd8448eb211c80319c", 16)
    assert server.attributes is not None
    assert server.attributes["caps_med.outcome"] == "200"


def test_every_stage_that_is_timed_is_in_the_documentation() -> None:
    root = Path(__file__).parents[2]
    source = "".join(path.read_text() for path in (root / "api").rglob("*.py"))
    found = re.findall(r'(?:engine\.run|seconds\.labels|self\.run)\(\s*"([a-z-]+)"', source)
    (row,) = re.findall(
        r"`caps_med_stage_seconds` \| stage \| (.*) \|", (root / "docs/service.md").read_text()
    )
    assert set(found) == set(row.split(", "))


def test_metrics_hold_stages_queues_batches_and_memory(models: Path, picture: bytes) -> None:
    with TestClient(create_app(Settings(models=models, preload=()))) as client:
        client.post(SEGMENT, files={"image": picture})
        client.post("/v1/models/nope/segment", files={"image": picture})
        text = client.get("/metrics").text
    for stage in ("load", "decode", "queue", "predict", "encode"):
        assert f'caps_med_stage_seconds_count{{stage="{stage}"}}' in text
    assert 'caps_med_queue_length{model="tiny-segmentation@1"} 0.0' in text
    assert "caps_med_batch_size_count 1.0" in text
    assert "caps_med_models_loaded 1.0" in text
    assert "process_resident_memory_bytes" in text
    assert "nope" not in text


def test_no_span_is_made_until_somebody_sets_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    monkeypatch.setattr(trace, "get_tracer", asked.append)
    with tracing.span("predict") as attribute:
        attribute("model", "tiny")
    assert asked == []
