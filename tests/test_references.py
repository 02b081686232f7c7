"""Every paper that is cited is in the list of references, and every paper in the list is cited."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from foldless.references import references

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("citations", ROOT / "docs" / "citations.py")
assert SPEC is not None
assert SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)

WRITTEN = {
    path.relative_to(ROOT): re.sub(r"\n *#", "\n", path.read_text(encoding="utf-8"))
    for room in ("src", "docs", "benchmarks", "tests")
    for kind in ("*.py", "*.md")
    for path in sorted((ROOT / room).rglob(kind))
    if not {"_build", "gallery"} & set(path.parts) and path.name not in ("citations.py", Path(__file__).name)
}
CITED = {path: list(MODULE.citations(text)) for path, text in WRITTEN.items()}


def test_every_citation_is_in_the_list():
    missing = {
        (str(path), citation.key)
        for path, cited in CITED.items()
        for citation in cited
        if citation.key not in references()
    }
    assert not missing, "add them to src/foldless/references.bib"


def test_every_reference_is_cited():
    cited = {citation.key for cited in CITED.values() for citation in cited}
    # The sentences of a report are strings that go on in the next line.
    written = re.sub(r'"\n *f?"', "", "\n".join(WRITTEN.values()))
    unused = {key for key, reference in references().items() if reference.label not in written} - cited
    assert not unused


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("as in [Potetz 2011]:", ["potetz2011"]),
        ("[Uda, Kabashima 2005, (13); relaxed, Rangan 2010]", ["uda2005", "rangan2010"]),
        ("[Minka 2001;\nHernández-Lobato et al. 2015] and", ["minka2001", "hernandezlobato2015"]),
        ("Uda and Kabashima (2005) switch", ["uda2005"]),
        ("[El Karoui 2008]", ["elkaroui2008"]),
        ("x[2011], [a link 2011](page.md) and [2000 rows]", []),
    ],
)
def test_citations_are_found(text, keys):
    assert [citation.key for citation in MODULE.citations(text)] == keys


def test_references_read_as_in_a_paper():
    listed = references()
    assert list(listed) == sorted(listed)
    assert listed["uda2005"].label == "Uda and Kabashima 2005"
    assert listed["nichols2017"].label == "Nichols et al. 2017"
    assert listed["minka2001"].text == (
        "Minka T. P. (2001). Expectation propagation for approximate Bayesian inference. Proceedings of the "
        "17th Conference on Uncertainty in Artificial Intelligence, 362–369."
    )
    assert listed["byrne2015"].text.endswith("Master's thesis, The Ohio State University.")
