"""
Twins: one of these three, probability 0.98
===========================================

Features in blocks of four, correlated at 0.9, as genes of one pathway are. Three of 200 matter. No feature of
a block is sure by itself, so few are selected; credible sets say what is known.
"""

import matplotlib.pyplot as plt
import numpy as np

from foldless import SparseClassifier

rng = np.random.default_rng(2)
blocks = np.repeat(rng.normal(size=(120, 50)), 4, axis=1)
X = np.sqrt(0.9) * blocks + np.sqrt(0.1) * rng.normal(size=(120, 200))
true = [20, 81, 150]
y = rng.random(120) < 1 / (1 + np.exp(-X[:, true] @ [2.5, 2.5, -2.5]))
model = SparseClassifier().fit(X, y)
for each in model.credible_sets_:
    print(each)

# %%
# Inclusion probabilities: members of one credible set share a colour, crosses are the truth.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.vlines(np.arange(200), 0, model.inclusion_probability_, color="0.7", lw=1)
for number, each in enumerate(model.credible_sets_):
    inclusion = model.inclusion_probability_[each.columns]
    axes.plot(
        each.columns, inclusion, "o", color=f"C{number}", label=f"P(one of these) = {each.probability:.2f}"
    )
axes.plot(true, np.zeros(3), "kx", clip_on=False, label="true")
axes.set(xlabel="feature", ylabel="inclusion probability", ylim=(0, 1.05))
_ = axes.legend(frameon=False)
