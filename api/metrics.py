"""Prometheus metrics."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

#: Buckets in seconds, from a small picture to a large volume on a busy CPU.
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
BATCHES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """The metrics of one app, in a registry of its own.

    Attributes:
        requests: answers by route, known model and outcome: the status code, or ``gone`` for a
            client that disconnected before the answer.
        request_seconds: time to the end of the answer, by route.
        seconds: time by stage: load, decode, queue, predict, background, encode, warm-up.
        batch_size: requests in one pass of a network.
        queue_length: requests that wait for a model.
        memory_bytes, memory_used: the budget of all requests, and what they claim of it.
        models_loaded, models_bytes: models in memory and the bytes of their weights.
        jobs: training jobs by state.
        inference_jobs: inference jobs by state.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # resident memory, CPU seconds, open files
        self.requests = Counter(
            "caps_med_requests", "Answers", ("route", "model", "outcome"), registry=registry
        )
        self.request_seconds = Histogram(
            "caps_med_request_seconds", "Time to answer", ("route",), registry=registry,
            buckets=SECONDS,
        )  # fmt: skip
        self.seconds = Histogram(
            "caps_med_stage_seconds", "Time by stage", ("stage",), registry=registry,
            buckets=SECONDS,
        )  # fmt: skip
        self.batch_size = Histogram(
            "caps_med_batch_size", "Requests in one pass", registry=registry, buckets=BATCHES
        )
        self.queue_length = Gauge(
            "caps_med_queue_length", "Requests that wait", ("model",), registry=registry
        )
        self.memory_bytes = Gauge(
            "caps_med_request_memory_budget_bytes", "Bytes for all requests", registry=registry
        )
        self.memory_used = Gauge(
            "caps_med_request_memory_bytes", "Bytes that requests claim", registry=registry
        )
        self.models_loaded = Gauge("caps_med_models_loaded", "Models in memory", registry=registry)
        self.models_bytes = Gauge("caps_med_models_bytes", "Weights in memory", registry=registry)
        self.jobs = Gauge("caps_med_jobs", "Training jobs", ("state",), registry=registry)
        self.inference_jobs = Gauge(
            "caps_med_inference_jobs", "Inference jobs", ("state",), registry=registry
        )

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
