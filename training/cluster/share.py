"""What each of several trainings takes of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """What each of several trainings takes: CPUs and GPUs."""

    cpus: int
    gpus: int


def share_of(trainings: int) -> Share:
    """An equal share of the cluster, at least a CPU, and a GPU where there are any."""
    import ray

    found = ray.cluster_resources()
    return Share(max(1, int(found.get("CPU", 1)) // trainings), min(1, int(found.get("GPU", 0))))
