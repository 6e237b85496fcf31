"""OpenTelemetry spans; nothing if OpenTelemetry is not installed.

The operator chooses the exporter by OpenTelemetry's own environment variables; without
``OTEL_EXPORTER_OTLP_ENDPOINT`` nothing is exported. Spans hold routes, models, stages and statuses.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

try:
    propagate: Any = importlib.import_module("opentelemetry.propagate")
    trace: Any = importlib.import_module("opentelemetry.trace")
except ImportError:
    propagate = trace = None


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[Callable[[str, str | int], None]]:
    """A span around a block; yields a function that sets further attributes."""
    with _span(name, None, attributes) as set_attribute:
        yield set_attribute


@contextmanager
def server_span(
    name: str, headers: Mapping[str, str], **attributes: str | int
) -> Iterator[Callable[[str, str | int], None]]:
    """The span of a request, a child of the caller's if its headers name one."""
    with _span(name, headers, attributes) as set_attribute:
        yield set_attribute


@contextmanager
def _span(
    name: str, headers: Mapping[str, str] | None, attributes: Mapping[str, str | int]
) -> Iterator[Callable[[str, str | int], None]]:
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield lambda _, __: None  # nobody has set a provider: each span would only cost time
        return
    tracer = trace.get_tracer("caps_med")
    context = None if headers is None else propagate.extract(headers)
    kind = trace.SpanKind.INTERNAL if headers is None else trace.SpanKind.SERVER
    with tracer.start_as_current_span(
        name,
        context=context,
        kind=kind,
        attributes={f"caps_med.{key}": value for key, value in attributes.items()},
        record_exception=False,  # messages and tracebacks may hold values
        set_status_on_exception=False,
    ) as current:
        yield lambda key, value: current.set_attribute(f"caps_med.{key}", value)


def export_if_asked() -> bool:
    """Export spans to ``OTEL_EXPORTER_OTLP_ENDPOINT`` if it is set; whether it is."""
    if trace is None or not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return False
    sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
    exporting: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    provider = sdk.TracerProvider()
    provider.add_span_processor(exporting.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True
