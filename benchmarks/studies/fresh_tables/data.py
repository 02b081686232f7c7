"""Tables that come with packages of PyPI, as `export.py` has written them into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

TABLES = (
    *("fat_meat", "coffee", "gunpoint", "italypowerdemand", "permeability", "parkinson_speech", "alzheimer"),
    *("segmented_cells", "chess_ends", "tweets", "food_reviews"),
    *("arrowhead", "basicmotions", "trace", "yeast_expression", "tissues", "liver_injury", "collagen"),
    *("osuleaf", "japanesevowels", "digits", "hand_movements", "tumour_lines", "textures", "leaves"),
    *("blood_cells", "acsf1"),
)


def load(folder: Path, table: str) -> tuple[Any, NDArray[Any]]:
    """X and the classes; texts are tf-idf of words in three texts at least."""
    with np.load(folder / f"{table}.npz") as stored:
        X, y = stored["X"], stored["y"]
    if X.dtype.kind == "U":
        return TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(X), y
    return X, y
