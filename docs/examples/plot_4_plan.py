"""
How many samples does a study need?
===================================

Computed before there are data, and checked by a few simulated studies.
"""

import numpy as np

from foldless import SparseClassifier
from foldless.datasets import make_two_classes
from foldless.plots import PlanDisplay
from foldless.theory import Study, plan

answer = plan(Study(n_features=1000, n_markers=10, effect=1.0), error=0.1)
print(answer.sentence())

# %%
# Circles are fits of simulated studies.

sizes, errors = [50, 100, 200], []
for n_samples in sizes:
    rng = np.random.default_rng(n_samples)
    trials = []
    for _ in range(4):
        population = make_two_classes(1000, 10, 1.0, random_state=rng)
        X, y, _ = population.draw(n_samples, rng)
        new, _, truth = population.draw(500, rng)
        trials.append(np.mean(SparseClassifier().fit(X, y).predict(new) != truth))
    errors.append((np.mean(trials), np.std(trials, ddof=1) / 2))
PlanDisplay.from_plan(answer, simulated=(sizes, *np.transpose(errors)))
