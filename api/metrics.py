"""Counts and times for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest


class Metrics:
    """Metrics of one app, in a registry of its own.

    Attributes:
        requests: answers by route, model and outcome (the status code).
        seconds: time spent by stage: predict, encode, warm-up.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "caps_med_requests", "Answers", ("route", "model", "outcome"), registry=self.registry
        )
        self.seconds = Histogram(
            "caps_med_stage_seconds", "Time by stage", ("stage",), registry=self.registry
        )

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
