"""The checks of components find what they are made for, and let pass what is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from foldless.channels import Logistic
from foldless.operators import Dense
from foldless.priors import Gaussian, Laplace
from foldless.solvers import EP, GAMP, VAMP
from foldless.testing import check_channel, check_operator, check_prior, check_solver


@dataclass(frozen=True)
class Wrong(Laplace):
    """Its variance is too large by a tenth."""

    def tilted(self, cavity_mean: Any, cavity_var: Any) -> Any:
        right = super().tilted(cavity_mean, cavity_var)
        return right._replace(var=1.1 * right.var)


@dataclass(frozen=True)
class WrongChannel(Logistic):
    """Its slope has the other sign."""

    def respond(self, cavity_mean: Any, cavity_var: Any, labels: Any) -> Any:
        right = super().respond(cavity_mean, cavity_var, labels)
        return right._replace(slope=-right.slope)


class WrongOperator(Dense):
    """Forgets a row where it adds up."""

    def sweep(self, weights: Any, weight_var: Any, row_step: Any, **about: Any) -> Any:
        swept = super().sweep(weights, weight_var, row_step, **about)
        return swept._replace(slopes=0.99 * swept.slopes)


def test_a_wrong_prior_channel_and_operator_are_noticed() -> None:
    X = np.random.default_rng(0).standard_normal((9, 4))
    check_prior(Gaussian(2.0, mean=1.0))
    check_channel(Logistic())
    check_operator(Dense(X), X)
    for check, wrong in (
        (check_prior, Wrong()),
        (check_channel, WrongChannel()),
        (lambda operator: check_operator(operator, X), WrongOperator(X)),
    ):
        with pytest.raises(AssertionError):
            check(wrong)


@pytest.mark.parametrize("solver", [EP(), GAMP(), VAMP()], ids=repr)
def test_solvers_keep_their_contract(solver: Any) -> None:
    check_solver(solver)
