"""How an iteration is paced: what a move says about the next step."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.solvers.message_passing import (
    RESTART_SHARE,
    SETTLED_SCORE,
    SMALLEST_STEP,
    AdaptiveDamping,
    ConstantDamping,
    Pace,
)

DAMPING = AdaptiveDamping(first=0.8)
WEIGHT, TOTAL = np.array([1.0, 3.0]), 4.0


def after(pace, move, *, taken=0.8, position=(2.0, 2.0), damping=DAMPING):
    """The pace after a whole move of which the share `taken` was walked, to this position."""
    now = np.array(position)
    before = now - np.array(move) * (1.0 if taken is None else taken)
    return pace.after(damping, before, now, taken, WEIGHT, TOTAL)


def test_change_is_relative_to_the_size_of_what_moves():
    pace = Pace.first(DAMPING, 2)
    assert pace.change == np.inf
    assert_allclose(after(pace, (0.2, 0.2)).change, 0.2 / (2.0 + SETTLED_SCORE))
    # Where nothing matters, a hundredth of a logit is settled.
    assert_allclose(after(pace, (1e-3, 1e-3), position=(0.0, 0.0)).change, 0.1)


@pytest.mark.parametrize(
    ("first", "second", "factor"),
    [
        ((1.0, 0.0), (-0.9, 0.0), 0.6),  # back and forth
        ((1.0, 0.0), (-0.5, 0.0), 1.1),  # back, but by less
        ((1.0, 0.0), (0.0, 1.0), 1.1),  # sideways; its square counts three times, which is not wild
        ((1.0, 0.0), (0.0, 1.2), 0.6),  # this is
    ],
)
def test_the_next_step_is_that_of_the_damping(first, second, factor):
    pace = after(Pace.first(DAMPING, 2), first, taken=0.5)
    pace = Pace(0.5, 0.8, pace.move, pace.square)
    assert_allclose(after(pace, second, taken=0.5).step, 0.5 * factor)


def test_a_step_that_had_to_be_shortened_is_not_followed_all_the_way():
    assert_allclose(after(Pace.first(DAMPING, 2), (1.0, 0.0), taken=0.001).step, 0.4 * 1.1)


def test_a_leap_says_nothing_about_steps():
    pace = after(after(Pace.first(DAMPING, 2), (1.0, 0.0)), (-3.0, 0.0), taken=None)
    assert pace.step == 0.8
    assert_allclose(pace.change, 1.5 / (2.0 + SETTLED_SCORE))
    # Nor does what comes after it turn back from it.
    assert after(pace, (3.0, 0.0)).step == 0.8


def test_calmer_until_it_would_take_for_ever():
    pace = Pace.first(ConstantDamping(1.0), 2)
    steps = []
    while pace is not None:
        steps.append(pace.largest_step)
        assert pace.step <= pace.largest_step
        # The step does not recover beyond the largest one.
        assert after(pace, (0.1, 0.1), taken=pace.step, damping=AdaptiveDamping()).step <= pace.largest_step
        pace = pace.more_damped()
    assert_allclose(steps, [1.0, RESTART_SHARE, RESTART_SHARE**2, RESTART_SHARE**3])
    assert steps[-1] >= SMALLEST_STEP
