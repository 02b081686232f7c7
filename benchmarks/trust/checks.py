"""scikit-learn's own checks of an estimator, with the version that is installed.

python -m benchmarks.trust.checks SparseClassifier
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from typing import Any

from sklearn.utils.estimator_checks import check_estimator

from benchmarks.trust.estimators import every_estimator


def run(name: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        # Checks fit noise, three samples, one feature: that a fit says it did not settle is right.
        warnings.simplefilter("ignore")
        results = check_estimator(every_estimator()[name], on_fail=None)
    failed = [r["check_name"] for r in results if r["status"] in ("failed", "xfail")]
    return {"counts": dict(Counter(result["status"] for result in results)), "failed": failed}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("estimator", choices=every_estimator())
    print(run(parser.parse_args().estimator))
