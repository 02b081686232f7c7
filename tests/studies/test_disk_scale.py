"""The benchmark of data on disk, small: a limited fit, a fit that is killed, and what it says of them."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

# Benchmarks are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the peak of memory")


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(ROOT)  # for `python -m` in other processes


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_small_run_leaves_results_and_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.scale import disk

    scratch, out = tmp_path / "scratch", tmp_path / "out"
    sizes = ["--gigabytes", "0.008", "--kill-gigabytes", "0.004", "--kills", "1", "--limit-gigabytes", "1.5"]
    disk.main(["--folder", str(scratch), "--out", str(out), *sizes])
    warm, cold = rows(out / disk.FITS)
    assert (warm["cold"], cold["cold"]) == ("False", "True")
    for fit in (warm, cold):
        assert fit["outcome"] == "converged"
        assert int(fit["passes"]) > int(fit["iterations"])
        assert float(fit["peak_mb"]) <= float(fit["peak_address_mb"]) <= 1500
        assert float(fit["over_reading"]) == pytest.approx(
            float(fit["seconds"]) / (int(fit["passes"]) * float(fit["read_seconds"])), rel=1e-3
        )
    (kill,) = rows(out / disk.KILLS)
    assert kill["same_bytes"] == "True"
    assert int(kill["passes_after_resuming"]) <= int(kill["passes_in_all"])
    assert "1 of 1 fits that were killed gave the same bytes" in capsys.readouterr().out
    assert list(scratch.iterdir()) == []


def test_the_simulated_file_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.scale import disk

    monkeypatch.setattr(disk, "CHUNK_BYTES", 100_000)
    disk.simulate(tmp_path, 0.002)
    X, y, active = (np.load(tmp_path / f"{name}.npy") for name in ("X", "y", "active"))
    assert X.dtype == np.float32
    assert X.nbytes == pytest.approx(0.002e9, rel=0.01)
    means = (X * y[:, None]).mean(axis=0)
    standard_error = float(X.std()) / len(X) ** 0.5
    np.testing.assert_allclose(np.abs(means[active]), 1.0, atol=5 * standard_error)
    assert np.abs(np.delete(means, active)).max() < 5 * standard_error


def test_a_fit_that_needs_more_than_its_limit_ends_with_an_error(tmp_path: Path) -> None:
    from benchmarks.scale import disk

    disk.simulate(tmp_path, 0.002)
    with pytest.raises(RuntimeError, match="the fit ended with"):
        disk.fitted(tmp_path, "--limit-gigabytes", 0.1)
