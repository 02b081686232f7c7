"""Fits of every kind, small: what the sentences about a fit are compared with what ran for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldless import (
    BayesPointClassifier,
    EPBayesPointClassifier,
    GAMPClassifier,
    PrunedBayesClassifier,
    SMLRClassifier,
    SparseClassifier,
)
from foldless.channels import FlippedLabels, Probit
from foldless.estimators.baselines import OneBitCS, RVMClassifier, SBMLRClassifier
from foldless.tuning.costs import Budget


@dataclass(frozen=True)
class Case:
    """An estimator, its data, and what goes wrong on purpose."""

    estimator: Any
    kind: str = "independent"  # or "correlated", "twins", "words"
    n_classes: int = 2
    shape: tuple[int, int] = (60, 40)
    groups: bool = False
    budget: Budget | None = None
    # Runs that are made to fail, None being any.
    spoilt: tuple[Any, ...] | None = None  # of a solver; tuned; from scratch; the first of its prior
    fits: int = 1
    expected: tuple[tuple[str, Any], ...] = field(default=())  # claims that must be among those made

    def data(self) -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(7)
        n, p = self.shape
        y = np.arange(n) % self.n_classes
        X = rng.standard_normal(self.shape)
        if self.kind in ("correlated", "twins"):
            X += 1.5 * rng.standard_normal((n, 1))
        if self.kind == "words":
            X = np.where(rng.random(self.shape) < 0.07, 1.0, 0.0)
        for k in range(min(self.n_classes, p)):
            X[:, k] += 1.5 * (y == k) * (rng.random(n) < 0.9 if self.kind == "words" else 1.0)
        if self.kind == "twins":
            X[:, 0] += 2.5 * (y == 0)
            X[:, p - 4 :] = X[:, :1] + 0.05 * rng.standard_normal((n, 4))
        groups = np.arange(n) // 6 if self.groups else None
        return X, np.array([f"class {k}" for k in y]), groups

    def model(self) -> Any:
        model = self.estimator
        if self.budget is not None:
            model._budget = self.budget
        return model


# Of few features parameters are learnt, without a background.
WIDE, FEW, TINY = (40, 60), (80, 12), (36, 5)
LARGE = Budget(exact=1e3)


def expects(*claims: tuple[str, Any]) -> tuple[tuple[str, Any], ...]:
    return claims


def sparse(*claims: tuple[str, Any], parameters: dict[str, Any] | None = None, **more: Any) -> Case:
    return Case(SparseClassifier(**(parameters or {})), expected=claims, **more)


def gamp(*claims: tuple[str, Any], more: dict[str, Any] | None = None, **parameters: Any) -> Case:
    return Case(GAMPClassifier(**parameters), expected=claims, **(more or {}))


FOUR = {"n_classes": 4}
CASES = {
    # The default, two classes.
    "independent": sparse(("reason", "independent"), ("weights compared", True)),
    "polished": sparse(("polished", "EP"), parameters={"generative_weight": 0.0}),
    "polish spoilt": sparse(
        ("did not settle", "EP"), parameters={"generative_weight": 0.0}, spoilt=("EP", None)
    ),
    "polish from there spoilt": sparse(
        ("weights instead", "EP"), parameters={"generative_weight": 0.0}, spoilt=("EP", None, False)
    ),
    "correlated, wide": sparse(("dense", "strongly-informed"), kind="correlated", shape=WIDE),
    "twins": sparse(("groups", 1), kind="twins", shape=WIDE),
    "correlated, tall": sparse(("dense solver", "EP"), ("prior", "OverBackground"), kind="correlated"),
    "correlated, few": sparse(("average at", "plain"), kind="correlated", shape=FEW),
    "tuning spoilt": sparse(("tuning tried", True), kind="correlated", shape=FEW, spoilt=("EP", True)),
    "words": sparse(("per occurrence", True), kind="words"),
    "words, polished": sparse(
        ("average at", "message passing"), kind="words", parameters={"generative_weight": 0.0}
    ),
    "correlated words": sparse(("dense", "ridge"), kind="words", budget=Budget(), groups=True),
    "large": sparse(("reason", "too-large"), budget=LARGE),
    "large, correlated": sparse(("solver", "GAMP"), kind="correlated", budget=LARGE),
    "large, correlated, one start spoilt": sparse(
        ("start", "class means"), kind="correlated", budget=LARGE, spoilt=("GAMP", False)
    ),
    "large, correlated, one start spoilt, no blend": sparse(
        ("start", "class means"),
        kind="correlated",
        budget=LARGE,
        parameters={"generative_weight": 0.0},
        spoilt=("GAMP", False),
    ),
    "groups": sparse(("left out", "groups"), groups=True),
    "groups, wide": sparse(("informed without", "groups"), groups=True, kind="correlated", shape=WIDE),
    "groups, large": sparse(("left out", "sets of groups"), groups=True, budget=LARGE),
    "some rows": sparse(("some rows", "used"), budget=Budget(search_rows=30, search_share=1.0)),
    "covariate": sparse(("kept", 1), parameters={"always_keep": [3]}),
    "warm": sparse(
        ("learnt", "prior__inclusion"),
        kind="correlated",
        shape=FEW,
        parameters={"warm_start": True},
        fits=2,
    ),
    "warm, independent": sparse(("weights compared", True), parameters={"warm_start": True}, fits=2),
    # The default, four classes.
    "four": sparse(("solver", "EP"), ("ridges left out", "one by one"), **FOUR),
    "four, wide": sparse(("solver", "GAMP"), ("averaged", 1), shape=WIDE, **FOUR),
    "four, correlated, wide": sparse(("dense solver", "Newton"), kind="correlated", shape=WIDE, **FOUR),
    "four, words, wide": sparse(("per occurrence", True), kind="words", shape=WIDE, **FOUR),
    "four, large": sparse(("start", "class means"), kind="correlated", budget=LARGE, shape=WIDE, **FOUR),
    "four, groups": sparse(("ridges left out", "groups"), kind="correlated", groups=True, **FOUR),
    "four, ridges in sets": sparse(
        ("ridges left out", "in sets"),
        kind="correlated",
        budget=Budget(exact=1e3, ridge_left_out=1.0),
        **FOUR,
    ),
    "four, ridges along own scores": sparse(
        ("ridges left out", "along own scores"),
        kind="correlated",
        budget=Budget(exact=1e3, ridge_left_out=1.0, ridge_sets=1.0),
        **FOUR,
    ),
    "four, few columns": sparse(
        ("dense solver", "Newton"), kind="correlated", budget=Budget(all_columns=1.0), **FOUR
    ),
    "few columns": sparse(
        ("dense solver", "primal EP"), kind="correlated", budget=Budget(all_columns=1.0, ridge_ep=1.0)
    ),
    "four, ridges by messages": sparse(
        ("dense solver", "GAMP"), kind="correlated", budget=Budget(exact=1e3, ridge_step=1.0), **FOUR
    ),
    "four, fallback": sparse(("did not settle", "EP"), spoilt=("EP", None, None, True), **FOUR),
    "four, nothing settles": sparse(("did not settle", "EP"), spoilt=("EP", None), **FOUR),
    # Every choice open.
    "gamp": gamp(("weights compared", True)),
    "gamp, a blend": gamp(("weights compared", False), generative_weight=0.5),
    "gamp, nothing learnt": gamp(("learnt", None), tune=False, generative_weight=0),
    "gamp, one learnt": gamp(("learnt", "prior__inclusion"), tune=["prior__inclusion"], generative_weight=0),
    "gamp, class means": gamp(("prior", "Observed"), prior="class-means"),
    "ep": gamp(("solver", "EP"), solver="ep"),
    "ep, groups": gamp(("left out", "groups"), solver="ep", more={"groups": True}),
    "vamp": gamp(("solver", "VAMP"), solver="vamp"),
    "gamp, four": gamp(("prior", "RowSparse"), more=FOUR),
    "ep, three": gamp(("solver", "EP"), solver="ep", max_iter=100, more={"n_classes": 3, "shape": TINY}),
    "hygamp, three": gamp(
        ("solver", "HyGAMP"), solver="hygamp", max_iter=20, more={"n_classes": 3, "shape": TINY}
    ),
    "max-sum": gamp(("solver", "GAMP (max-sum)"), prior="laplace", rule="max-sum"),
    "max-sum, flips": gamp(
        ("learnt by", "em"), prior="laplace", rule="max-sum", channel="robust-probit", generative_weight=0
    ),
    "sure": gamp(("learnt by", "sure"), prior="laplace", rule="max-sum", tuning="sure", generative_weight=0),
    "gaussian, probit": gamp(("channel", "Probit"), prior="gaussian", channel="probit"),
    "elastic net, hinge": gamp(("prior", "ElasticNet"), prior="elastic-net", channel="hinge"),
    "mixture, step": gamp(("channel", "Step"), prior="gaussian-mixture", channel="step"),
    "laplace, flips": gamp(
        ("channel", "FlippedLabels(Probit)"), prior="laplace", channel=FlippedLabels(Probit(), 0.05)
    ),
    "mean removal": gamp(("channel", "Logistic"), mean_removal=True),
    # Penalised regression.
    "smlr": Case(SMLRClassifier(n_rates=10), expected=expects(("rate by", "alo"))),
    "smlr, three": Case(SMLRClassifier(n_rates=8, penalty="group"), n_classes=3),
    "smlr, folds": Case(SMLRClassifier(tuning="cv", n_rates=5, n_folds=3), expected=expects(("folds", 3))),
    "smlr, bound": Case(SMLRClassifier(tuning="bound", n_rates=5), expected=expects(("rate by", "bound"))),
    "smlr, given": Case(
        SMLRClassifier(penalty="l2", rate=2.0, standardize=False), expected=expects(("rate by", "given"))
    ),
    "smlr, no penalty": Case(SMLRClassifier(penalty="none", max_iter=300), shape=TINY),
    "smlr, component-wise": Case(SMLRClassifier(rate=3.0, algorithm="component-wise"), shape=TINY),
    "smlr, kernel": Case(
        SMLRClassifier(kernel="rbf", rate=1.0), shape=TINY, expected=expects(("kernel", True))
    ),
    "sbmlr": Case(SBMLRClassifier(), expected=expects(("rate by", "bayes"))),
    # Bayes points.
    "knapsack": Case(BayesPointClassifier(n_bins=8, engine="numpy", n_sweeps=2, n_folds=3), shape=(30, 3)),
    "knapsack, given": Case(
        BayesPointClassifier(violation_cost=1.0, beta=1.0, n_sweeps=2, n_bins=8, engine="numpy"),
        shape=(30, 3),
        n_classes=3,
    ),
    "ep point": Case(EPBayesPointClassifier(), shape=TINY, expected=expects(("channels compared", 3))),
    "ep point, three": Case(EPBayesPointClassifier("step", standardize="robust"), shape=TINY, n_classes=3),
    "ep point, kernel": Case(EPBayesPointClassifier("probit", kernel="rbf"), shape=TINY),
    # Others.
    "pruned": Case(PrunedBayesClassifier(density=[0.05, 0.2], noise=[0.1, 0.2])),
    "pruned, given": Case(PrunedBayesClassifier(0.1, 0.1, messages="per-edge"), shape=(30, 10)),
    "pruned, whitened": Case(
        PrunedBayesClassifier(0.1, 0.1, whiten="features", standardize=False), shape=(30, 10)
    ),
    "rvm": Case(RVMClassifier(gamma=0.1, tol=0.05), shape=TINY),
    "rvm, features": Case(RVMClassifier(kernel=None, tol=0.05), shape=TINY),
    "one bit": Case(OneBitCS(sparsity=3)),
}
