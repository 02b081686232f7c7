"""Every parameter, attribute and method of the public classes is documented, in the format of numpydoc.

Attributes are those that fits leave behind, so that a new one without a word is a failure here.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

import foldless
from foldless.docstrings import Documented
from foldless.estimators import baselines

X, Y = load_iris(return_X_y=True)
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])
TWO = Y > 0
WORDS = np.array(["setosa", "other"])[TWO[::3].astype(int)]
QUICK = {"violation_cost": 1.0, "n_sweeps": 2, "beta": 1.0, "n_bins": 8}
# Between them the fits of a class leave every attribute that it can have.
FITS = {
    foldless.SparseClassifier: [{}, {"fallback": "panel", "fdr": 0.0}],
    foldless.GAMPClassifier: [{"channel": "robust-logistic"}],
    foldless.PanelClassifier: [{"n_features": 2, "reference": GaussianNB(), "n_parts": 2}],
    foldless.SMLRClassifier: [{"rate": 1.0}, {"rate": 1.0, "kernel": "rbf"}],
    foldless.BayesPointClassifier: [QUICK],
    foldless.EPBayesPointClassifier: [{}],
    foldless.PrunedBayesClassifier: [{"density": 0.5, "noise": 0.1, "whiten": "components"}],
    baselines.SBMLRClassifier: [{}],
    baselines.OneBitCS: [{}],
    baselines.RVMClassifier: [{"tol": 0.5}],
}
ROOMS = ("foldless.export", "foldless.report", "foldless.plots")


def sections(docstring: str | None) -> dict[str, dict[str, str]]:
    """Names and their descriptions, of every section that has an underlined title."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    found: dict[str, dict[str, str]] = {}
    entries: dict[str, str] | None = None
    names: list[str] = []
    for here, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and set(below) == {"-"} and len(below) == len(here):
            entries, names = found.setdefault(here, {}), []
        elif entries is not None and here and not here.startswith(" ") and set(here) != {"-"}:
            names = [name.strip().lstrip("*") for name in here.partition(" : ")[0].split(",")]
            entries.update(dict.fromkeys(names, ""))
        elif entries is not None and here.strip():
            for name in names:
                entries[name] += here.strip()
    return found


def missing(kind: str, wanted: list[str], documented: dict[str, str]) -> list[str]:
    return [f"{kind} {name}" for name in wanted if not documented.get(name)]


def parameters(function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def of_function(name: str, function) -> list[str]:
    """What is not documented of a function or method."""
    if not (inspect.getdoc(function) or "").strip():
        return [f"{name}: no docstring"]
    found = sections(inspect.getdoc(function))
    wanted = [each for each in parameters(function) if not each.startswith("_")]
    # Where arguments are passed on, the docstring has their names.
    wanted = [each for each in wanted if each not in ("about", "kwargs", "options")]
    lacking = missing("parameter", wanted, found.get("Parameters", {}))
    returns = inspect.signature(function).return_annotation
    if returns not in (None, "None") and not any(found.get("Returns", {}).values()):
        lacking.append("what it returns")
    return [f"{name}: {each}" for each in lacking]


def own_methods(kind: type) -> list[str]:
    """Public ones that are written here, not in scikit-learn."""
    found = []
    for name, value in inspect.getmembers(kind):
        function = inspect.unwrap(value) if callable(value) else None
        module = getattr(function, "__module__", "") or ""
        if not name.startswith("_") and inspect.isfunction(function) and module.startswith("foldless"):
            found.append(name)
    return found


@pytest.mark.parametrize("kind", FITS, ids=lambda kind: kind.__name__)
def test_every_parameter_attribute_and_method_is_documented(kind):
    found = sections(kind.__doc__)
    lacking = missing("parameter", parameters(kind), found.get("Parameters", {}))
    attributes: set[str] = set()
    for given in FITS[kind]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(**given).fit(FRAME.iloc[::3], WORDS)
        attributes |= {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    attributes |= {
        name
        for name in dir(kind)
        if re.fullmatch(r"[a-z]\w*_", name) and not inspect.isfunction(getattr(kind, name))
    }
    lacking += missing("attribute", sorted(attributes), found.get("Attributes", {}))
    for name in own_methods(kind):
        lacking += of_function(name, getattr(kind, name))
    assert not lacking, f"{kind.__name__} leaves undocumented: " + "; ".join(lacking)


@pytest.mark.parametrize("name", [name for name in foldless.__all__ if name.endswith("Classifier")])
def test_every_estimator_names_others_to_look_at(name):
    others = sections(getattr(foldless, name).__doc__).get("See Also", {})
    assert others
    assert set(others) < set(foldless.__all__) - {name}


@pytest.mark.parametrize("room", ROOMS)
def test_every_function_is_documented(room):
    module = importlib.import_module(room)
    functions = [(name, getattr(module, name)) for name in module.__all__]
    lacking = [each for name, it in functions if inspect.isfunction(it) for each in of_function(name, it)]
    assert not lacking, "; ".join(lacking)


def test_what_looks_for_gaps_finds_them():
    def function(a, b, *, c=1) -> int:
        """One line.

        Parameters
        ----------
        a, b : int
            Numbers.
        """

    assert of_function("function", function) == ["function: parameter c", "function: what it returns"]
    assert missing(
        "attribute",
        ["x_", "y_"],
        sections("T.\n\nAttributes\n----------\nx_ : int\ny_ : int\n    Y.")["Attributes"],
    ) == ["attribute x_"]


def test_what_bases_describe_is_taken_over():
    class Base(Documented):
        """Base.

        Parameters
        ----------
        a, b : int
            Two.
        c : int
            One.
        """

        def method(self, x):
            """Base.

            Parameters
            ----------
            x : int
                A number.
            """

    class Derived(Base):
        """Derived.

        Parameters
        ----------
        c : float
            Another.

        Notes
        -----
        None.
        """

        def __init__(self, a=1, b=2, c=3.0):
            pass

        def method(self, x):
            """Derived."""

    assert sections(Derived.__doc__) == {
        "Parameters": {"c": "Another.", "a": "Two.", "b": "Two."},
        "Notes": {"None.": ""},
    }
    assert Derived.__doc__.startswith("Derived.")
    assert Derived.method.__doc__.splitlines()[0] == "Derived."
    assert sections(Derived.method.__doc__) == {"Parameters": {"x": "A number."}}
