"""The model repository: names that are not the caller's, versions that are broken."""

from __future__ import annotations

import os
import shutil

from benchmarks.load import TINY
from benchmarks.siege.case import Breach, case
from benchmarks.siege.service import Siege, expect


@case("training jobs with the names of built-in models")
def taken_names(siege: Siege) -> str:
    with siege.serving(training="true") as service:
        answers = [
            service.ask(
                "POST",
                "/v1/training-jobs",
                data={"task": "segmentation", "name": name},
                files={"archive": b"PK\x05\x06" + bytes(18)},
            )
            for name in ("brain-t1-tissue", "axon-segmentation")
        ]
    return expect(answers, "409 name_taken")


@case("a restart with a newest version that is copied by half", quick=True)
def half_copied_version(siege: Siege) -> str:
    home = siege.models / TINY[0]
    shutil.copytree(home / "1", home / "2")
    os.truncate(home / "2" / "models" / "model.safetensors", 1000)
    with siege.serving() as service:
        listed = service.ask("GET", "/v1/models").json()["models"]
    (model,) = (each for each in listed if each["name"] == TINY[0])
    if model["version"] != 1 or not model["warnings"]:
        raise Breach(f"version {model['version']} answers, warnings {model['warnings']}")
    return "version 1 answers, with a warning"


@case("weights that are cut before and after they are loaded")
def cut_weights(siege: Siege) -> str:
    weights = siege.models / TINY[1] / "1" / "models" / "model.safetensors"
    whole = weights.read_bytes()
    path = f"/v1/models/{TINY[1]}"
    with siege.serving() as service:
        os.truncate(weights, len(whole) // 2)
        broken = service.ask("GET", path)
        weights.write_bytes(whole)
        mended = service.ask("GET", path)
        os.truncate(weights, 0)
        loaded = service.ask("GET", path)
    return f"{expect([broken], '500 internal_error')}, {expect([mended, loaded], '200')}"
