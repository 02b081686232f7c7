"""What a fit visits: functions and files of foldless that `SparseClassifier().fit` calls, on five tables.

    python -m benchmarks.walk            counts
    python -m benchmarks.walk --files    and which files

A reader who follows a fit has to open so many files. Functions are counted once, however often they run;
what runs at import does not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import scipy.sparse as sp

import foldless
from foldless.datasets import make_class_means

HOME = Path(foldless.__file__).parent


def tables(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Small enough to run in seconds, of the shapes that decide the way."""
    rng = np.random.default_rng(0)
    wide = make_class_means(n_samples=300, n_features=30_000, n_active=10, random_state=0)
    factors, loadings = rng.normal(size=(60, 4)), rng.normal(size=(4, 2000))
    genes = rng.normal(size=(60, 2000)) + factors @ loadings
    y_genes = (genes[:, 0] + factors[:, 0] + rng.normal(size=60) > 0).astype(int)
    y_four = rng.integers(0, 4, 100)
    four = (
        rng.normal(size=(100, 1000)) + (np.arange(1000) % 4 == y_four[:, None]) * (np.arange(1000) < 12) * 2.0
    )
    words = sp.random(600, 3000, density=0.02, random_state=0, format="csr")
    y_words = (np.asarray(words[:, :200].sum(axis=1))[:, 0] > 1.9).astype(int)
    on_disk = folder / "genes.npy"
    np.save(on_disk, genes)
    return {
        "300 x 30 000": (wide.X, wide.y),
        "60 x 2000": (genes, y_genes),
        "four classes": (four, y_four),
        "text": (words, y_words),
        "a file on disk": (foldless.open_rows(on_disk), y_genes),
    }


def visited(run: Callable[[], object]) -> set[CodeType]:
    """The code of foldless that runs meanwhile."""
    found: set[CodeType] = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(HOME)):
            found.add(frame.f_code)

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    # Modules, comprehensions and lambdas belong to what is read around them.
    return {code for code in found if not code.co_name.startswith("<")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files of each walk")
    show_files = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        for name, (X, y) in tables(Path(folder)).items():
            model = foldless.SparseClassifier()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                codes = visited(lambda X=X, y=y, model=model: model.fit(X, y))
            files = sorted({str(Path(code.co_filename).relative_to(HOME)) for code in codes})
            print(f"{name:16} {len(codes):4} functions in {len(files):3} files")
            if show_files:
                print("   " + "\n   ".join(files))


if __name__ == "__main__":
    main()
