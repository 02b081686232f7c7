"""How the documentation is built: `make docs`, without a network, every warning an error."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import latex2mathml.converter
from docutils import nodes
from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as PlainStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

import foldless
from foldless.references import references

sys.path.insert(0, str(Path(__file__).parent))
from citations import linked

logger = logging.getLogger(__name__)

project = "foldless"
author = "The foldless developers"
copyright = author
version = release = foldless.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinxcontrib.bibtex",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
# The gallery offers its examples as notebooks to download; its pages are others.
exclude_patterns = ["_build", "examples", "gallery/*.ipynb"]
nitpicky = True

# Markdown. Headings have anchors as on GitHub, so that a link works in both places.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

# Notebooks are run at every build, in a folder of their own; one that fails, fails the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

# Docstrings: parameters and attributes as they are written there. Annotations would say the same again,
# less readably; methods that come from scikit-learn are documented there.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "exclude-members": "set_fit_request, set_score_request, set_predict_request, set_predict_proba_request, "
    "set_decision_function_request, set_transform_request, set_output, get_metadata_routing, "
    "fit_transform",
}
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
# `name` is a link where the name is documented, and code where it is not.
default_role = "py:obj"
nitpick_ignore_regex = [(r"py:obj", r".*")]

# Citations: one list, of the package. Entries are labelled as they are cited.
bibtex_bibfiles = ["../src/foldless/references.bib"]
bibtex_default_style = "foldless"
bibtex_reference_style = "author_year"


class NamesAndYear(BaseLabelStyle):
    def format_labels(self, sorted_entries: list[Entry]) -> Iterator[str]:
        return (references()[entry.key].label for entry in sorted_entries)


class BibliographyStyle(PlainStyle):
    default_label_style = NamesAndYear


register_plugin("pybtex.style.formatting", "foldless", BibliographyStyle)

# Examples: small and simulated, run at every build; one that fails, fails the build.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "run_stale_examples": True,
    "capture_repr": (),
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "write_computation_times": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
}

html_theme = "pydata_sphinx_theme"
html_title = "foldless"
html_static_path = ["_static"]
html_css_files = ["foldless.css"]
# Pages without pages below them need no list of those.
html_sidebars = {"index": [], "results": []}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 6,
}
html_math_renderer = "mathml"
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Sphinx) -> None:
    # Formulas are made into MathML here, so that neither the build nor a reader's browser fetches anything.
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_displayed_formula, None))
    # Before numpydoc, which reads sections.
    app.connect("autodoc-process-docstring", _plain_prose, priority=400)
    app.connect("source-read", _contributing_is_a_page)
    app.connect("source-read", _citations_are_links)
    app.connect("build-finished", _nothing_from_elsewhere)


def _nothing_from_elsewhere(app: Sphinx, failed: Exception | None) -> None:
    """Pages must work without a network, and tell nobody that they are read: only links lead away."""
    loads = re.compile(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
    for page in sorted(Path(app.outdir).rglob("*.html")):
        if found := loads.search(page.read_text(encoding="utf-8")):
            raise ExtensionError(f"{page} loads something from elsewhere: {found[0]}")


def _inline_formula(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _displayed_formula(writer: HTML5Translator, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def _mathml(formula: str, display: str) -> str:
    made = latex2mathml.converter.convert(formula, display=display)
    if "\\" in made:
        logger.warning("a formula has a command that latex2mathml does not know: %s", formula)
    # Browsers set no space beside the name of a function, unless it is an operator.
    made = re.sub(r"<mi>(log|ln|exp|arccos)</mi>", r'<mo lspace="0.17em" rspace="0.17em">\1</mo>', made)
    # Script and sans-serif letters have code points of their own; browsers no longer know `mathvariant`.
    return re.sub(
        r'<mi mathvariant="(script|sans-serif)">([A-Z])</mi>',
        lambda found: f"<mi>{unicodedata.lookup(f'MATHEMATICAL {found[1]} CAPITAL {found[2]}')}</mi>",
        made,
    )


def _contributing_is_a_page(app: Sphinx, page: str, source: list[str]) -> None:
    """On GitHub it lies beside this folder, where pages cannot link to."""
    source[0] = source[0].replace("](../CONTRIBUTING.md)", "](contributing.md)")


def _citations_are_links(app: Sphinx, page: str, source: list[str]) -> None:
    """In Markdown, which reads as it is on GitHub."""
    source[0] = linked(source[0], set(references()), lambda kind, keys: f"{{cite:{kind}}}`{keys}`")


def _plain_prose(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written for people, with indented formulas and |w|; here they become reStructuredText.

    Blocks indented by four stand as they are written, up to the first section (numpydoc has those).
    """
    prose = linked("\n".join(lines), set(references()), lambda kind, keys: f":cite:{kind}:`{keys}`")
    lines[:] = prose.split("\n")
    end = next((n for n, line in enumerate(lines) if line and not line.strip("-")), len(lines) + 1) - 1
    made: list[str] = []
    inside = False
    for line in lines[:end]:
        indented = line.startswith("    ")
        if indented and not inside:
            made += ["", "::", ""]
        if inside and line.strip() and not indented:
            made.append("")
            inside = False
        inside = inside or indented
        made.append(line if inside else _escaped(line))
    lines[:] = made + [
        _escaped(line) if line.lstrip()[:3] not in (">>>", "...") else line for line in lines[end:]
    ]


def _escaped(line: str) -> str:
    """Bars and trailing underscores mean something to reStructuredText, outside of `code`."""
    parts = re.split(r"(``.*?``|`.*?`)", line)
    parts[::2] = [re.sub(r"\||(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)
