"""Build the documentation to a site: ``python -m sphinx -W docs build/site``.

The pages are the Markdown files beside this one; the reference in ``api/`` is made from the
docstrings. ``python -m sphinx -b linkcheck docs build/links`` also follows the links that leave
the site, which needs a network.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

import alight

project = "alight"
author = "the authors of alight"
version = release = alight.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["README.md"]  # index.rst shows it
html_theme = "pydata_sphinx_theme"
html_title = "alight"
html_theme_options = {"show_prev_next": False, "navbar_align": "left"}
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_rtype = False
add_module_names = False  # the page is the module's
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say more: shapes, units, what happens without


def first_sentence(page: nodes.document) -> str:
    """Return the first sentence of a page's text; tables and notes are none."""
    found = (p for p in page.findall(nodes.paragraph) if isinstance(p.parent, nodes.section))
    text = " ".join(next((p.astext() for p in found), "").split())
    return re.split(r"(?<=[.])\s", text)[0]


def write_llms_text(app: Any, error: Exception | None) -> None:
    """Write ``llms.txt``: what alight is; each page's title, plain text and first sentence."""
    if error is not None or app.builder.format != "html":
        return
    lines = [f"# {project}", "", f"> {first_sentence(app.env.get_doctree(root_doc))}", ""]
    for name in sorted(app.env.found_docs - {root_doc}):
        source = f"_sources/{name}{Path(app.env.doc2path(name)).suffix}.txt"
        said = first_sentence(app.env.get_doctree(name))
        lines.append(f"- [{app.env.titles[name].astext()}]({source}): {said}")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Any) -> None:
    """Have the text for language models written after each build."""
    app.connect("build-finished", write_llms_text)
