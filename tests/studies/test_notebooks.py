"""The notebooks of the documentation run from the first cell to the last, in seconds."""

from __future__ import annotations

import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
# A reader waits no longer. On one core the slowest needs half of it.
MOST_SECONDS = 20.0


def test_there_are_notebooks_for_genes_text_and_voxels() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["genes", "text", "voxels"]


@pytest.mark.study
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    # Outputs are made where the notebook is shown: what is stored could not drift unseen.
    assert not any(cell.get("outputs") for cell in notebook.cells)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        client.execute_cell(notebook.cells[1], 1)  # packages are loaded
        start = time.perf_counter()
        for n, cell in enumerate(notebook.cells[2:], start=2):
            client.execute_cell(cell, n)
    assert time.perf_counter() - start < MOST_SECONDS
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [
        o for o in outputs if o.output_type == "stream" and o.name == "stderr" and "Warning" in o.text
    ]
