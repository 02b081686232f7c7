"""What scikit-learn's logistic regression is called in its versions."""

from __future__ import annotations

from sklearn import __version__
from sklearn.utils.fixes import parse_version


def mixed_penalty(l1_ratio: float) -> dict[str, object]:
    """scikit-learn 1.8 lets the ratio say everything; before, the penalty has to be named."""
    if parse_version(__version__) >= parse_version("1.8"):
        return {"l1_ratio": l1_ratio}
    return {"penalty": "l1"} if l1_ratio == 1 else {"penalty": "elasticnet", "l1_ratio": l1_ratio}
