"""The fields of KubeRay's resources (ray.io/v1) that the manifests use; others are refused.

After KubeRay's API reference, version 1.7. Templates of pods are checked apart, as Kubernetes' own.
"""

from __future__ import annotations

from typing import Any

TEXT, WHOLE, TRUTH = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
#: Flags of `ray start`, whose values are text even where they are numbers.
TEXTS = {"type": "object", "additionalProperties": TEXT}
TEMPLATE = {"type": "object"}


def fields(required: str = "", **properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def resource(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = fields("name", name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
    return fields(
        "apiVersion kind metadata spec",
        apiVersion={"const": "ray.io/v1"}, kind={"const": kind}, metadata=metadata, spec=spec,
    )  # fmt: skip


CLUSTER = fields(
    "headGroupSpec",
    rayVersion=TEXT,
    authOptions=fields(mode={"enum": ["disabled", "token"]}, secretName=TEXT),
    gcsFaultToleranceOptions=fields(redisAddress=TEXT, externalStorageNamespace=TEXT),
    headGroupSpec=fields("rayStartParams template", rayStartParams=TEXTS, template=TEMPLATE),
    workerGroupSpecs={
        "type": "array",
        "items": fields(
            "groupName minReplicas maxReplicas rayStartParams template",
            groupName=TEXT, replicas=WHOLE, minReplicas=WHOLE, maxReplicas=WHOLE,
            rayStartParams=TEXTS, template=TEMPLATE,
        ),
    },
)  # fmt: skip
UPGRADES = {"enum": ["NewCluster", "NewClusterWithIncrementalUpgrade", "None"]}
SUBMISSION = {"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]}
SCHEMAS = {
    "RayService": resource(
        "RayService",
        fields(
            "serveConfigV2 rayClusterConfig",
            excludeHeadPodFromServeSvc=TRUTH, upgradeStrategy=fields(type=UPGRADES),
            serveConfigV2=TEXT, rayClusterConfig=CLUSTER,
        ),
    ),
    "RayJob": resource(
        "RayJob",
        fields(
            "entrypoint rayClusterSpec",
            entrypoint=TEXT, submissionMode=SUBMISSION, backoffLimit=WHOLE,
            shutdownAfterJobFinishes=TRUTH, ttlSecondsAfterFinished=WHOLE, rayClusterSpec=CLUSTER,
        ),
    ),
}  # fmt: skip
