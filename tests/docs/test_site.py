"""The documentation site builds strictly and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Attributes whose address a browser fetches without being asked.
LOADS = {"src", "srcset", "poster", "data"}
ELSEWHERE = re.compile(r"(?:\w+:)?//")


class Loads(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = LOADS | ({"href"} if tag in ("link", "use", "image") else set())
        self.found += [value for name, value in attrs if name in names and value]


def loads(page: str) -> list[str]:
    parser = Loads()
    parser.feed(page)
    return parser.found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    answer = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return out


def pages(site: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(site.rglob("*.html")):
        yield str(path.relative_to(site)), path.read_text()


def test_pages_load_only_their_own_files(site: Path) -> None:
    seen = 0
    for name, page in pages(site):
        found = loads(page)
        assert not [address for address in found if ELSEWHERE.match(address)], name
        seen += len(found)
    assert seen > 100
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:\w+:)?//", path.read_text()), path


def test_features_that_load_from_other_hosts_stay_off(site: Path) -> None:
    # Material fetches Mermaid from a CDN for such blocks, and a repository's stars from its host
    for name, page in pages(site):
        assert 'class="mermaid"' not in page, name
        assert 'data-md-component="source"' not in page, name


def test_the_reference_shows_the_public_names(site: Path) -> None:
    networks = (site / "reference" / "networks.html").read_text()
    for name in ("SegCaps", "CapsPix2Pix", "build_network"):
        assert f'id="caps_med.networks.{name}"' in networks
    assert 'id="caps_med.load_model"' in (site / "reference" / "index.html").read_text()


def test_an_address_of_another_host_is_noticed() -> None:
    page = '<link href="https://fonts.example/a.css"><img src="//cdn.example/b.png"><a href="//x">'
    assert [ELSEWHERE.match(a) is not None for a in loads(page)] == [True, True]
