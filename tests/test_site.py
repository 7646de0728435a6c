"""The documentation builds to a site without a warning; its links lead somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from inspect import ismodule
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import numpy
import pytest

import alight
import alight.errors

for needed in ("sphinx", "myst_parser", "pydata_sphinx_theme"):
    pytest.importorskip(needed, reason="the site needs the extra `docs`")

DOCS = Path(__file__).resolve().parent.parent / "docs"
# Modules that are alight's alone; each has a page of the reference.
OWN = ("errors", "device", "ops", "backends.base")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d"]
    done = subprocess.run(
        [*command, str(folder / "doctrees"), str(DOCS), str(folder / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Page(HTMLParser):
    """What a page of the site can be linked at, and what it links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    files = (path for path in site.rglob("*.html") if "_static" not in path.parts)
    pages = {path: Page(path) for path in files}
    assert len(pages) > len(list(DOCS.glob("*.md")))
    broken = []
    for path, page in pages.items():
        for link in page.links:
            file, anchor = map(unquote, urldefrag(link.partition("?")[0]))
            if "://" in link or link.startswith(("data:", "mailto:")):
                continue
            target = (path.parent / file).resolve() if file else path
            known = pages.get(target)
            if not target.exists() or (anchor and known and anchor not in known.anchors):
                broken.append((path.name, link))
    assert broken == []


def test_the_text_for_language_models_names_every_page(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# alight\n\n> alight runs NumPy programs faster")
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(lines) == len(list(DOCS.glob("*.md"))) - 1 + len(list(DOCS.glob("api/*.rst")))
    for line in lines:
        assert (site / line.partition("](")[2].partition(")")[0]).exists(), line
        assert line.endswith("."), line


def public(module: str) -> list[str]:
    """Return the names of a public module that are its own."""
    found: Any = import_module(f"alight.{module}")
    return [
        f"alight.{module}.{name}"
        for name, value in vars(found).items()
        if name[0] != "_" and getattr(value, "__module__", None) == found.__name__
    ]


def test_the_reference_has_every_name_that_is_ours(site: Path) -> None:
    own = [name for name in alight.__all__ if not hasattr(numpy, name)]
    names = [f"alight.{name}" for name in own if not ismodule(getattr(alight, name))]
    pages = {"alight": names, "random": ["alight.random.Counter"]}
    pages |= {module.partition(".")[0]: public(module) for module in OWN}
    for page, wanted in pages.items():
        anchors = Page(site / "api" / f"{page}.html").anchors
        assert [name for name in wanted if name not in anchors] == [], page
