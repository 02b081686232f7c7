"""What the documentation says of the code is true: contracts, names, commands, examples.

Blocks that do something are run by `test_readme.py`; this is for what only describes. Whether pages can be
built is for `make docs`.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import foldless
import test_readme
from foldless.channels import Logistic, Probit
from foldless.cli import app
from foldless.testing import check_channel, check_operator, check_prior, check_solver

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WRITTEN = test_readme.PAGES


# ---------------------------------------------------------------- contracts of architecture.md

HOMES = {
    "Tilted": "foldless.beliefs",
    "Response": "foldless.beliefs",
    "Prior": "foldless.priors.base",
    "Channel": "foldless.channels.base",
    "Operator": "foldless.operators.base",
    "Storage": "foldless.operators.base",
    "Solver": "foldless.solvers.base",
    "Tuner": "foldless.solvers.base",
}


def contracts() -> dict[str, ast.ClassDef]:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (block,) = [code for kind, code in test_readme.BLOCK.findall(page) if kind == "python"]
    return {node.name: node for node in ast.parse(block).body if isinstance(node, ast.ClassDef)}


CONTRACTS = contracts()


def parameters(function: ast.FunctionDef) -> list[tuple[str, str, str | None]]:
    """(kind, name, default) of each parameter, as the page has them."""
    given = function.args
    assert not given.posonlyargs
    assert given.vararg is None
    assert given.kwarg is None
    defaults = [None] * (len(given.args) - len(given.defaults)) + [ast.unparse(d) for d in given.defaults]
    found = [("plain", each.arg, default) for each, default in zip(given.args, defaults, strict=True)]
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(("keyword", each.arg, None if default is None else ast.unparse(default)))
    return found


def parameters_in_code(function: Any) -> list[tuple[str, str, str | None]]:
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD: "plain", inspect.Parameter.KEYWORD_ONLY: "keyword"}
    return [
        (kinds[each.kind], each.name, None if each.default is each.empty else repr(each.default))
        for each in inspect.signature(function).parameters.values()
    ]


def test_the_page_has_the_contracts_it_is_about():
    assert CONTRACTS.keys() == HOMES.keys()


@pytest.mark.parametrize("name", HOMES)
def test_a_contract_on_the_page_is_that_of_the_code(name):
    described = CONTRACTS[name]
    actual = getattr(importlib.import_module(HOMES[name]), name)
    bases = {base.__name__ for base in inspect.getmro(actual)}
    for base in described.bases:
        # A named tuple and a protocol leave no class of that name behind.
        if ast.unparse(base) not in ("NamedTuple", "Protocol"):
            assert ast.unparse(base) in bases

    methods = {node.name: node for node in described.body if isinstance(node, ast.FunctionDef)}
    for method, node in methods.items():
        assert parameters(node) == parameters_in_code(getattr(actual, method)), f"{name}.{method}"
    inherited = {
        node.name
        for base in described.bases
        if ast.unparse(base) in CONTRACTS
        for node in CONTRACTS[ast.unparse(base)].body
        if isinstance(node, ast.FunctionDef)
    }
    missing = getattr(actual, "__abstractmethods__", frozenset()) - methods.keys() - inherited
    assert not missing, f"{name} also asks for {sorted(missing)}"

    fields = [node.target.id for node in described.body if isinstance(node, ast.AnnAssign)]
    if hasattr(actual, "_fields"):
        assert tuple(fields) == actual._fields
    known = {key for base in inspect.getmro(actual) for key in getattr(base, "__annotations__", {})}
    for field in fields:
        assert field in known or isinstance(getattr(actual, field, None), property), f"{name}.{field}"


def test_the_architecture_and_its_decisions_are_short():
    assert len((DOCS / "architecture.md").read_text(encoding="utf-8").splitlines()) <= 300
    records = sorted((DOCS / "decisions").glob("0*.md"))
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        lines = record.read_text(encoding="utf-8").splitlines()
        number, title = lines[0].removeprefix("# ").split(": ", maxsplit=1)
        assert f"| [{number}]({record.name}) | {title} |" in index
        assert len(lines) <= 40, record.name
        assert [line for line in lines if line.startswith("## ")] == [
            "## Context",
            "## Decision",
            "## Why",
            "## Consequences",
        ]


# ---------------------------------------------------------------- names, commands, examples


PUBLIC = (
    "foldless",
    "foldless.plots",
    "foldless.report",
    "foldless.selection",
    "foldless.datasets",
    "foldless.theory",
    "foldless.export",
    "foldless.priors",
    "foldless.channels",
    "foldless.operators",
    "foldless.solvers",
)
# Constants and protocols, which pages about their package name in passing or not at all.
NOT_ON_PAGES = {
    "foldless.priors": {"NO_HYPER_PRIOR", "PRIORS", "SupportsEM", "SupportsInclusion", "SupportsMaxSum"},
    "foldless.channels": {"CHANNELS", "SupportsEM", "SupportsMaxSum"},
    "foldless.operators": {"open_rows"},  # as foldless.open_rows
}
DIRECTIVE = re.compile(
    r"^\.\. (currentmodule|automodule|autoclass|autofunction|py:data):: ([\w.]+)$", re.MULTILINE
)


def documented() -> set[str]:
    names = set()
    for page in (DOCS / "api").glob("*.md"):
        module = ""
        text = page.read_text(encoding="utf-8")
        names.update(re.findall(r"^   (foldless\.[\w.]+)$", text, flags=re.MULTILINE))  # of autosummary
        for directive, name in DIRECTIVE.findall(text):
            if directive in ("currentmodule", "automodule"):
                module = name
            else:
                names.add(f"{module}.{name}")
    return names


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_in_the_reference(package):
    public = set(importlib.import_module(package).__all__) - NOT_ON_PAGES.get(package, set())
    missing = {f"{package}.{name}" for name in public} - documented()
    assert not missing, (
        "add them to a page in docs/api, as autoclass, autofunction or an entry of autosummary"
    )


def modules() -> list[str]:
    found = pkgutil.walk_packages(foldless.__path__, "foldless.")
    return [each.name for each in found if not each.name.endswith("__main__")]


WITH_EXAMPLES = [
    name
    for name in modules()
    if ">>> " in Path(importlib.util.find_spec(name).origin).read_text(encoding="utf-8")  # type: ignore[union-attr, arg-type]
]


def test_examples_of_docstrings_are_found():
    assert "foldless.estimators.classifier" in WITH_EXAMPLES


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstrings_run(name):
    done = doctest.testmod(importlib.import_module(name))
    assert done.attempted > 0
    assert done.failed == 0


STUDY = re.compile(r"python (?:-m )?(benchmarks[./]studies[./]\w+[./]\w+)")


def test_every_study_that_a_page_names_is_there():
    named = {name for page in WRITTEN for name in STUDY.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    for name in named:
        assert (ROOT / (name.replace(".", "/") + ".py")).is_file(), name


LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "page", [*WRITTEN, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_between_files_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        # The gallery is made at a build, which checks its own links.
        if target != "../gallery/index":
            assert (page.parent / target).exists(), target


MODULE = re.compile(r"`((?:solvers|tuning|theory|channels|priors|selection|operators)\.[a-z_.]+)`")


def test_every_module_that_theory_names_is_there():
    pages = [page for page in WRITTEN if page.parent.name == "theory"]
    named = {name for page in pages for name in MODULE.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    for name in named:
        assert importlib.util.find_spec(f"foldless.{name}") is not None, name


@pytest.mark.parametrize("name", sorted(command.callback.__name__ for command in app.registered_commands))
def test_every_command_shows_an_example(name):
    from typer.testing import CliRunner

    shown = CliRunner().invoke(app, [name, "--help"]).output
    assert re.search(rf"^ *Example:\n +foldless {name} ?", shown, flags=re.MULTILINE), shown


# ---------------------------------------------------------------- extend.md keeps the contracts it teaches


def loaded(path: Path) -> ModuleType:
    """A file of tests, for its functions."""
    spec = importlib.util.spec_from_file_location(f"borrowed_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def taught() -> dict[str, Any]:
    """The classes of extend.md."""
    names: dict[str, Any] = {}
    page = (DOCS / "extend.md").read_text(encoding="utf-8")
    for kind, code in test_readme.BLOCK.findall(page):
        # Blocks that define; those that fit are run by test_readme.
        if kind == "python" and "class " in code:
            names |= {"Logistic": Logistic}
            exec(compile(code, "extend.md", "exec"), names)
    return names


def test_the_prior_of_the_page_keeps_the_contract(taught):
    for prior in (taught["KnownSize"](), taught["KnownSize"](size=0.3, inclusion=0.4)):
        check_prior(prior)


def test_the_channel_of_the_page_keeps_the_contract(taught):
    contract = loaded(ROOT / "tests/contracts/test_channels.py")
    for channel in (taught["MissedPositives"](), taught["MissedPositives"](Probit(), 0.4)):
        check_channel(channel)
        contract.test_log_z_matches_quadrature_of_the_likelihood(channel)


@pytest.mark.parametrize("rows_at_once", [1, 4, 1000])
def test_the_operator_of_the_page_keeps_the_contract(taught, rows_at_once):
    contract = loaded(ROOT / "tests/contracts/test_operators.py")
    X = np.random.default_rng(0).normal(size=(11, 5))
    products = np.column_stack([X[:, i] * X[:, j] for i in range(5) for j in range(i + 1, 5)])
    pair = taught["Interactions"](X, rows_at_once), products
    check_operator(*pair)
    for width in ((), (3,)):
        contract.test_sweep_and_products_match_the_explicit_matrix(pair, width)
    contract.test_moments_and_columns_match_the_explicit_matrix(pair)
    contract.test_squared_norms_count_rows_by_their_weight(pair)
    contract.test_adjoint_matches_the_explicit_matrix(pair)
    contract.test_weights_and_variances_may_differ_in_width(pair)
    contract.test_nonzero_weight_is_that_of_rows_that_are_not_zero(pair)
    contract.test_some_rows_are_an_operator_of_their_own(pair, "some")


def test_the_solver_of_the_page_finds_the_mode(taught):
    from sklearn.linear_model import LogisticRegression

    from foldless.operators import Dense
    from foldless.priors import Gaussian
    from foldless.problem import Problem
    from foldless.solvers import solve

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = np.where(rng.random(60) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.0, 2.0])), 1.0, -1.0)
    problem = Problem(Dense(X), y, np.ones(60), Logistic(), Gaussian(2.0))
    check_solver(taught["Laplace"]())
    solution = solve(problem, taught["Laplace"]())
    ridge = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10).fit(X, y)
    assert solution.outcome.trustworthy
    np.testing.assert_allclose(solution.posterior.mean, ridge.coef_[0], atol=1e-5)
