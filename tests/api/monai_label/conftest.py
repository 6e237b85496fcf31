"""A service that speaks the MONAI Label protocol, and MONAI Label's own client."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from api.settings import Settings
from tests.api.running import Running, running

#: A `MONAILabelClient`, which has no types.
Client: TypeAlias = Any
Connect = Callable[[Running], Client]


@pytest.fixture(scope="module")
def served(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service over the tiny models, without keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys.db"
    settings = Settings(
        models=models, preload=(), training=False, monai_label=True, keys=keys, decoders=1
    )
    with running(settings) as found:
        yield found


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    """Make a client, as Slicer does for each call: with an address, a folder and a name."""
    return lambda served: client_class()(served.address, tmpdir=str(tmp_path), client_id="me")


@pytest.fixture
def client(served: Running, connect: Connect) -> Client:
    """MONAI Label's client of the service."""
    return connect(served)


def client_class() -> Callable[..., Client]:
    """`MONAILabelClient`, which Slicer carries a copy of."""
    if sys.version_info >= (3, 13):
        pytest.skip("monailabel.client imports cgi, which Python 3.13 has no more")
    try:
        from monailabel.client import MONAILabelClient
    except ImportError:
        if os.environ.get("CAPS_MED_NEED_MONAI_LABEL"):
            raise
        pytest.skip("pip install --no-deps monailabel, as `make install` does")
    made: Callable[..., Client] = MONAILabelClient
    return made
