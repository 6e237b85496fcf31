"""Five hundred random mutations of a good file of each format, against a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.api.mutations import CHECKED, good_files, mutations
from tests.api.serving import Served, serving

NUMBER = 500
SEGMENT = "/v1/models/tiny-segmentation/segment"
CLIENTS = 4
#: A broken file is one of these, whatever broke it.
REFUSALS = {"invalid_input", "input_too_large", "unsupported_format"}


@pytest.fixture(scope="module")
def server(
    models: Path, preloaded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A random header may ask for a gigabyte: a small bound keeps the suite quick."""
    folder = tmp_path_factory.mktemp("mutations")
    bounds = {"max_voxels": "20000", "max_inflated_bytes": "200000", "decode_seconds": "300"}
    with serving(folder, models, command=preloaded, **bounds) as found:
        yield found


@pytest.mark.parametrize("format", list(good_files()))
def test_no_mutation_harms_or_deceives(server: Served, format: str) -> None:
    """No 5xx, no dead process; where a checksum or the length was broken, no wrong answer."""
    data = good_files()[format]
    with httpx.Client(base_url=server.address, timeout=300) as client:

        def post(content: bytes) -> httpx.Response:
            return client.post(SEGMENT, files={"image": content})

        wanted = post(data)
        assert wanted.status_code == 200
        decoders = server.decoders()
        found: Counter[str] = Counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            mutated = list(mutations(data, NUMBER))
            answers = pool.map(lambda pair: post(pair[1]), mutated)
            for (kind, content), answer in zip(mutated, answers, strict=True):
                if answer.status_code == 200:
                    found["read"] += 1
                    known = format in CHECKED or kind == "cut"
                    assert not known or answer.content == wanted.content, (kind, content)
                else:
                    body = answer.json()
                    assert body["code"] in REFUSALS, (kind, body, content)
                    assert answer.status_code in (413, 415, 422)
                    found["refused"] += 1
        assert found.total() == NUMBER and found["refused"] > NUMBER // 4
        assert post(data).content == wanted.content
    assert decoders <= server.decoders()
    assert list(server.temporary.iterdir()) == []
