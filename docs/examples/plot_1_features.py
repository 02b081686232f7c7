"""
Which features, and how sure
============================

A study with known truth: 150 samples, 2 000 features of which ten matter, and 5 % of the labels are wrong.
"""

from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.plots import InclusionDisplay, WeightDisplay

data = make_class_means(150, 2000, 10, mislabelled=0.05, random_state=0)
model = SparseClassifier().fit(data.X, data.y)
print(f"{len(model.get_support(indices=True))} features selected, leave-one-out error {model.loo_error_:.3f}")

# %%
# Every feature has a weight and a probability of not being zero. Those above the dashed line are selected at
# a false discovery rate of 0.1. Since the truth is known here, false ones are marked by crosses.

InclusionDisplay.from_estimator(model, fdr=0.1, truth=data.weights != 0)

# %%
# The surest with their 90 % intervals, in log-odds per standard deviation.

WeightDisplay.from_estimator(model, n_features=14)
