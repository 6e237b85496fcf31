"""Inference in the background: requests that are answered 202 and computed as jobs."""

from api.background.jobs import InferenceJobs
from api.background.work import Work

__all__ = ["InferenceJobs", "Work"]
