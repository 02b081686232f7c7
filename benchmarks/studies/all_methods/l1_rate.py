"""The L1 rate of max-sum on rcv1_small, learnt and fixed: labels that are right, log loss, features kept.

python -m benchmarks.studies.all_methods.l1_rate --data DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import log_loss

from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies.all_methods.data import load
from foldless import GAMPClassifier
from foldless.priors import Laplace

TABLE = "rcv1_small.npz"
RATES = (0.3, 0.5, 0.8, 1.2, 1.8, 2.7, 4.0, 6.0, 9.0, 13.0, 18.0, 25.0, 32.0)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_data_option(parser, [TABLE])
    source = data_folder(parser.parse_args(argv).data, [TABLE])
    data = load(source, "rcv1_small")
    with np.load(source / TABLE) as stored:
        train = stored["split"] == "train"
    for rate in ("learnt", *RATES):
        prior, tune = ("laplace", True) if rate == "learnt" else (Laplace(rate), False)
        model = GAMPClassifier(prior, rule="max-sum", generative_weight=0.0, tune=tune)
        model.fit(data.X[train], data.y[train])
        right = np.mean(model.predict(data.X[~train]) == data.y[~train])
        loss = log_loss(data.y[~train], model.predict_proba(data.X[~train]))
        kept = np.count_nonzero(model.coef_)
        print(
            f"{rate!s:>6}  rate {model.prior_.rate:6.2f}  right {right:.3f}  log loss {loss:.3f}  kept {kept}"
        )


if __name__ == "__main__":
    main()
