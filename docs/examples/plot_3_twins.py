"""
Twins: one of these, with a stated probability
==============================================

Features in blocks of four, correlated at 0.95, as genes of one pathway are. Three of 200 matter. No feature
of a block is sure by itself, so at a false discovery rate of 0.1 nothing is selected; credible sets say what
is known.
"""

import matplotlib.pyplot as plt
import numpy as np

from foldless import SparseClassifier

rng = np.random.default_rng(0)
blocks = np.repeat(rng.normal(size=(120, 50)), 4, axis=1)
X = np.sqrt(0.95) * blocks + np.sqrt(0.05) * rng.normal(size=(120, 200))
true = [20, 81, 150]
y = rng.random(120) < 1 / (1 + np.exp(-X[:, true] @ [2.0, 2.0, -2.0]))
model = SparseClassifier().fit(X, y)
print(f"selected: {model.get_support(fdr=0.1, indices=True).tolist()}")
for each in model.credible_sets_:
    print(each)

# %%
# Inclusion probabilities: members of one credible set share a colour, crosses are the truth.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.vlines(np.arange(200), 0, model.inclusion_probability_, color="0.7", lw=1)
for number, each in enumerate(model.credible_sets_):
    inclusion = model.inclusion_probability_[each.columns]
    label = f"one of these {each.columns.size}: {each.probability:.2f}"
    axes.plot(each.columns, inclusion, "o", color=f"C{number}", label=label)
axes.plot(true, np.zeros(3), "kx", clip_on=False, label="true")
axes.set(xlabel="feature", ylabel="inclusion probability", ylim=(0, 1.05))
figure.legend(frameon=False, loc="outside right upper")
