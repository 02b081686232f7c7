"""Make the golden model files of this version that are missing: `python tests/golden/make.py [KIND ...]`.

A golden file is a small model with what it predicted when it was made, and stays as it is for ever: it stands
for the files that users have. Files that exist are never written again (docs/model-files.md).
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

import foldless
from foldless.channels import FlippedLabels, Multinomial, Probit
from foldless.estimators.baselines import OneBitCS, RVMClassifier, SBMLRClassifier
from foldless.io.archive import FORMAT
from foldless.priors import Gaussian, HyperPrior, Laplace, SpikeAndSlab
from foldless.solvers import HyGAMP
from foldless.solvers.message_passing import ConstantDamping

HERE = Path(__file__).parent
VERSION = ".".join(foldless.__version__.split(".")[:2])

# Every estimator as it comes, where that makes a small file, and those that hold something special.
TWO_CLASSES = {
    "sparse": foldless.SparseClassifier(tol=1e-2),
    "sparse-kept": foldless.SparseClassifier(always_keep=[2], class_weight="balanced", tol=1e-2),
    "gamp": foldless.GAMPClassifier(),
    "gamp-components": foldless.GAMPClassifier(
        SpikeAndSlab(Laplace(2.0), 0.1),
        FlippedLabels(Probit(), 0.02),
        hyper_prior=HyperPrior(),
        damping=ConstantDamping(0.5),
        class_weight={"tumour": 2.0},
        tol=1e-2,
    ),
    "smlr": foldless.SMLRClassifier(),
    "smlr-kernel": foldless.SMLRClassifier(kernel="rbf"),
    "ep-bayes-point": foldless.EPBayesPointClassifier(),
    "ep-bayes-point-kernel": foldless.EPBayesPointClassifier(kernel="rbf"),
    "ep-bayes-point-random-features": foldless.EPBayesPointClassifier(random_features=True, n_components=8),
    "bayes-point": foldless.BayesPointClassifier(
        violation_cost=1.0, beta=2.0, n_sweeps=2, n_bins=16, engine="numpy"
    ),
    "panel": foldless.PanelClassifier(2),
    "pruned": foldless.PrunedBayesClassifier(),
    "pruned-whitened": foldless.PrunedBayesClassifier(whiten="features"),
    "sbmlr": SBMLRClassifier(),
    "one-bit-cs": OneBitCS(),
    "rvm": RVMClassifier(),
}
THREE_CLASSES = {
    "sparse-three-classes": foldless.SparseClassifier(),
    "gamp-solver-object": foldless.GAMPClassifier(
        Gaussian(1.0), Multinomial(3), solver=HyGAMP(), tune=False, tol=1e-2
    ),
    "panel-three-classes": foldless.PanelClassifier(2, always_keep=[0]),
    "smlr-three-classes": foldless.SMLRClassifier(),
    "ep-bayes-point-three-classes": foldless.EPBayesPointClassifier(),
}
KINDS = TWO_CLASSES | THREE_CLASSES


def table(n_samples: int, n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples, labels of two and of three classes; columns share a factor, so that models are averaged."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n_features))
    X[:, n_features // 3 :] += 1.5 * rng.standard_normal((n_samples, 1))
    score = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(n_samples)
    three = np.array(["a", "b", "c"])[(X[:, :3] + X[:, 3:6]).argmax(axis=1)]
    return X, np.where(score > 0, "tumour", "healthy"), three


def fitted(kind: str, n_samples: int, n_features: int) -> Any:
    X, two, three = table(n_samples, n_features)
    return clone(KINDS[kind]).fit(X, two if kind in TWO_CLASSES else three)


def answers(model: Any, X: np.ndarray) -> dict[str, Any]:
    """What a model is loaded for, as JSON has it: predictions, and which features it selects."""
    found = {
        name: getattr(model, name)(X).tolist()
        for name in ("predict", "decision_function", "predict_proba")
        if hasattr(model, name)
    }
    if hasattr(model, "get_support") and getattr(model, "kernel", None) is None:
        found["get_support"] = model.get_support().tolist()
    return found


def golden_path(kind: str) -> Path:
    return HERE / f"format-{FORMAT}" / f"{kind}-{VERSION}.foldless"


def make(kind: str) -> None:
    path = golden_path(kind)
    X = table(12, 6)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dozen samples need not converge
        model = fitted(kind, *X.shape)
    path.parent.mkdir(exist_ok=True)
    expected = {"X": X.tolist(), **answers(model, X)}
    path.with_suffix(".json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")
    model.save(path)
    print(f"{path.relative_to(HERE)}: {path.stat().st_size} bytes")


def make_missing(kinds: Iterable[str]) -> None:
    for kind in kinds:
        if not golden_path(kind).exists():
            make(kind)


if __name__ == "__main__":
    make_missing(sys.argv[1:] or KINDS)
