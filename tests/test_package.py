"""The package as others install it: one version, types, and no import that a fit does not need."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import foldless

ROOT = Path(__file__).parents[1]
# What draws, prints and reads tables. They are made to be missing, because scikit-learn imports some itself.
NOT_FOR_FITS = ["jinja2", "matplotlib", "pandas", "PIL", "rich", "typer"]
WITHOUT_THESE = f"""
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_FOR_FITS}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
"""


def test_the_version_is_the_same_everywhere():
    assert foldless.__version__ == version("foldless")
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == foldless.__version__


def test_type_checkers_find_the_types():
    assert (Path(foldless.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize(
    "name",
    [
        "BayesPointClassifier",
        "GAMPClassifier",
        "PanelClassifier",
        "PrunedBayesClassifier",
        "SMLRClassifier",
        "SparseClassifier",
    ],
)
def test_a_fit_needs_nothing_that_draws_or_prints(name):
    code = f"""{WITHOUT_THESE}
import foldless
from foldless.datasets import make_class_means
data = make_class_means(n_samples=30, n_features=60, n_active=3, random_state=0)
model = foldless.{name}().fit(data.X, data.y)
assert model.predict_proba(data.X).shape == (30, 2)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_imports_need_nothing_that_draws_or_prints():
    code = f"""{WITHOUT_THESE}
import foldless, foldless.estimators, foldless.selection, foldless.theory, foldless.tuning, foldless.datasets
for name in foldless.__all__:
    getattr(foldless, name)
assert not set(sys.modules) & set({NOT_FOR_FITS})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
