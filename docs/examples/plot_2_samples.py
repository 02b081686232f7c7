"""
What is said of each sample from all others
===========================================

Leave-one-out probabilities come with the fit, and so does the probability that a label is wrong. Are they
what they say?
"""

import numpy as np

from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.plots import CalibrationDisplay, LeaveOneOutDisplay

data = make_class_means(200, 1000, 10, bayes_error=0.1, mislabelled=0.05, random_state=2)
model = SparseClassifier().fit(data.X, data.y)

# %%
# Samples by their recorded label. What lies in the shaded half is on the wrong side when it is left out;
# labels that are wrong for certain, known here, are marked.

LeaveOneOutDisplay.from_estimator(model, data.y, mislabelled=np.isin(np.arange(200), data.mislabelled))

# %%
# Probabilities of left-out samples beside how often it happened, with 90 % intervals.

CalibrationDisplay.from_estimator(model, data.y)
