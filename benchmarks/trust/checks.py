"""scikit-learn's own checks on every estimator, with the version that is installed.

python -m benchmarks.trust.checks --estimators SparseClassifier GAMPClassifier
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from typing import Any

import sklearn
from sklearn.utils.estimator_checks import check_estimator

from benchmarks.trust.estimators import every_estimator


def run(estimators: list[str] | None = None) -> dict[str, Any]:
    counts, failed = {}, []
    for name, model in every_estimator().items():
        if estimators and name not in estimators:
            continue
        with warnings.catch_warnings():
            # Checks fit noise, three samples, one feature: that a fit says it did not settle is right.
            warnings.simplefilter("ignore")
            results = check_estimator(model, on_fail=None)
        counts[name] = dict(Counter(result["status"] for result in results))
        failed += [f"{name}: {r['check_name']}" for r in results if r["status"] in ("failed", "xfail")]
    return {"scikit-learn": sklearn.__version__, "counts": counts, "failed": failed}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--estimators", nargs="*")
    print(run(parser.parse_args().estimators))
