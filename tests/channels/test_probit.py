"""Log-odds of labels of the sign of a score are those of its responses, which also have derivatives."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import Probit, Step
from foldless.channels.base import Channel


@pytest.mark.parametrize("channel", [Probit(), Probit(0.3), Step(noise=0.0), Step(noise=0.02)], ids=repr)
@pytest.mark.parametrize("certain", [False, True])
def test_log_odds_are_those_of_the_responses(channel, certain):
    mean = np.concatenate([-np.geomspace(1e-6, 1e3, 40), [0.0], np.geomspace(1e-6, 1e3, 40)])
    var = None if certain else np.linspace(0.01, 50.0, mean.size)
    with np.errstate(invalid="ignore"):  # of a score that is certain, the step leaves one label impossible
        expected = Channel.log_odds(channel, mean, var)
        found = channel.log_odds(mean, var)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
