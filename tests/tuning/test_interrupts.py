"""An interrupt ends the fit, whichever of its models is being fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldless import EPBayesPointClassifier, SparseClassifier
from foldless.tuning import record
from foldless.tuning.costs import Budget


def table() -> tuple[Any, Any]:
    """Columns that share a factor, more samples than features: ridges by EP beside the sparse model."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 20)) + 2.0 * rng.standard_normal((80, 1))
    return X, X[:, 0] + 0.5 * rng.standard_normal(80) > 0


@pytest.mark.parametrize(
    ("model", "of_model", "n_before"),
    [(SparseClassifier(), "ridge", 1), (EPBayesPointClassifier(), "sparse", 1)],
    ids=["ridges", "kinds of noise"],
)
def test_an_interrupt_does_not_just_leave_a_model_out(
    model: Any, of_model: str, n_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    solve, recorded = record.solve, record.Recorder.solve

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def recorded_solve(self: Any, *args: Any, **options: Any) -> Any:
        begun.append(options["model"])
        return recorded(self, *args, **options)

    def interrupted_solve(*args: Any, **options: Any) -> Any:
        if begun.count(of_model) > n_before:
            options["watch"] = interrupt
        return solve(*args, **options)

    monkeypatch.setattr(record.Recorder, "solve", recorded_solve)
    monkeypatch.setattr(record, "solve", interrupted_solve)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*table())
    assert begun.count(of_model) == n_before + 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_interrupt_ends_all_fits_without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    model = SparseClassifier()
    model._budget = Budget(exact=0.0, exact_over_background=0.0)
    whole, solve, begun = model.fit(X, y), record.solve, []
    n_whole = len(whole.record_.runs)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def interrupted_solve(*args: Any, **options: Any) -> Any:
        begun.append(args)
        if len(begun) == n_whole + 1:
            options["watch"] = interrupt
        return solve(*args, **options)

    monkeypatch.setattr(record, "solve", interrupted_solve)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, groups=np.arange(80) // 4)
    assert len(begun) == n_whole + 1
