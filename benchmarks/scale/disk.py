"""A fit to a file that is larger than the memory it may use, and fits that are killed and resumed.

    python -m benchmarks.scale.disk --folder /scratch [--gigabytes 8] [--kill-gigabytes 0.5] [--kills 20]

Two classes are simulated into FOLDER/foldless-disk/X.npy, float32, five columns for each row. The fit runs in
a process of its own whose address space is limited; its time is compared with reading the file once for every
pass, in the same blocks. A smaller file is fitted with a checkpoint; the process is killed (SIGKILL) in the
pass after its journal has reached a random size, started again, and its model compared with that of an
uninterrupted fit, byte by byte. The files are deleted in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib import format as npy

from benchmarks.studies import _common as common

HERE = Path(__file__).parent
FITS, KILLS = "disk_fits.csv", "disk_kills.csv"
FIT_COLUMNS = [
    "rows",
    "columns",
    "gigabytes",
    "cold",
    "passes",
    "iterations",
    "outcome",
    "solver",
    "seconds",
    "cpu_seconds",
    "read_seconds",
    "over_reading",
    "imports_mb",
    "peak_mb",
    "peak_address_mb",
    "limit_gigabytes",
    "found",
    "false",
    "active",
    "loo_error",
]
KILL_COLUMNS = [
    "kill",
    "gigabytes",
    "journal_mb",
    "killed_after_seconds",
    "passes_in_all",
    "passes_after_resuming",
    "resumed_seconds",
    "same_bytes",
]
N_ACTIVE, BAYES_SCORE = 20, 1.645  # the best classifier errs at 5 %
CHUNK_BYTES = 64 << 20
POLL_SECONDS = 0.002
TABLE_BEGINS, TABLE_ENDS = "<!-- tables of disk.py -->", "<!-- end of tables of disk.py -->"


def simulate(folder: Path, gigabytes: float, seed: int = 0) -> None:
    """Class means in a few columns, as `make_class_means` has them, written in chunks."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    n_rows = round((gigabytes * 1e9 / 4 / 5) ** 0.5)
    n_columns = 5 * n_rows
    active = np.sort(rng.choice(n_columns, N_ACTIVE, replace=False))
    means = rng.choice([-1.0, 1.0], N_ACTIVE).astype(np.float32)
    noise = np.float32(N_ACTIVE**0.5 / BAYES_SCORE)
    y = rng.permutation(np.where(np.arange(n_rows) < n_rows // 2, -1, 1))
    with open(folder / "X.npy", "wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, n_columns)}
        npy.write_array_header_1_0(stream, header)
        step = max(CHUNK_BYTES // (4 * n_columns), 1)
        for start in range(0, n_rows, step):
            labels = y[start : start + step]
            chunk = rng.standard_normal((labels.size, n_columns), dtype=np.float32)
            chunk *= noise
            chunk[:, active] += labels[:, np.newaxis] * means
            chunk.tofile(stream)
    np.save(folder / "y.npy", y)
    np.save(folder / "active.npy", active)


def command(folder: Path, *options: Any) -> list[str]:
    return [sys.executable, "-m", "benchmarks.scale._disk_fit", str(folder), *map(str, options)]


def environment() -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def fitted(folder: Path, *options: Any) -> dict[str, Any]:
    done = subprocess.run(command(folder, *options), capture_output=True, text=True, env=environment())
    if done.returncode:
        raise RuntimeError(f"the fit ended with {done.returncode}: {done.stderr}")
    return dict(json.loads(done.stdout))


def killed(folder: Path, journal: Path, size: float, delay: float) -> float:
    """Start a fit and kill it a while after its journal has reached a size; returns the seconds it had."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command(folder, "--checkpoint", journal),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    with process:
        while process.poll() is None and not (journal.exists() and journal.stat().st_size >= size):
            time.sleep(POLL_SECONDS)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.returncode != -signal.SIGKILL:
            assert process.stderr is not None
            raise RuntimeError(f"the fit ended before it was killed: {process.stderr.read().decode()}")
    return time.perf_counter() - start


def full_journal_size(folder: Path, journal: Path) -> tuple[int, dict[str, Any]]:
    """How large the journal of an uninterrupted fit gets, seen from outside, and what the fit says."""
    process = subprocess.Popen(
        command(folder, "--checkpoint", journal), stdout=subprocess.PIPE, text=True, env=environment()
    )
    size = 0
    with process:
        while process.poll() is None:
            size = max(size, journal.stat().st_size if journal.exists() else 0)
            time.sleep(POLL_SECONDS)
        assert process.stdout is not None
        if process.returncode:
            raise RuntimeError(f"the fit ended with {process.returncode}")
        return size, dict(json.loads(process.stdout.read()))


def measure_fits(folder: Path, out: Path, gigabytes: float, limit: float) -> None:
    simulate(folder, gigabytes)
    with common.Results(out, FIT_COLUMNS, FITS) as results:
        for cold in (False, True):
            row = fitted(folder, "--limit-gigabytes", limit, *(["--cold"] if cold else []))
            results.add(**row, limit_gigabytes=limit)


def measure_kills(folder: Path, out: Path, gigabytes: float, n_kills: int) -> None:
    simulate(folder, gigabytes, seed=1)
    journal, model = folder / "fit.journal", folder / "model.safetensors"
    journal.unlink(missing_ok=True)
    full_size, whole = full_journal_size(folder, journal)
    expected = model.read_bytes()
    rng = np.random.default_rng(0)
    with common.Results(out, KILL_COLUMNS, KILLS) as results:
        for i in range(n_kills):
            model.unlink(missing_ok=True)
            # Records are written at the end of a pass; part of a pass later is anywhere in the next. The last
            # tenth is left alone, so that there is something to kill.
            delay = rng.uniform(0.0, whole["seconds"] / whole["passes"])
            seconds = killed(folder, journal, rng.uniform(0.0, 0.9) * full_size, delay)
            left = journal.stat().st_size
            again = fitted(folder, "--checkpoint", journal)
            results.add(
                kill=i + 1,
                gigabytes=gigabytes,
                journal_mb=left / 1e6,
                killed_after_seconds=seconds,
                passes_in_all=whole["passes"],
                passes_after_resuming=again["passes"],
                resumed_seconds=again["seconds"],
                same_bytes=model.read_bytes() == expected,
            )


def tables(out: Path) -> str:
    """The CSVs as Markdown."""
    fits, kills = pd.read_csv(out / FITS), pd.read_csv(out / KILLS)
    header = [
        "file", "rows x columns", "cache", "passes", "fit, s", "CPU, s", "reading it once, s",
        "fit / (passes x reading)", "peak memory, MB", "of which imports", "peak address space, MB",
        "limit, MB", "found", "false",
    ]  # fmt: skip
    lines = [
        [
            f"{f.gigabytes:.1f} GB", f"{f.rows} x {f.columns}", "dropped" if f.cold else "kept", f.passes,
            f"{f.seconds:.0f}", f"{f.cpu_seconds:.0f}", f"{f.read_seconds:.1f}", f"{f.over_reading:.2f}",
            f"{f.peak_mb:.0f}", f"{f.imports_mb:.0f}", f"{f.peak_address_mb:.0f}",
            f"{1000 * f.limit_gigabytes:.0f}", f"{f.found} of {f.active}", f.false,
        ]
        for f in fits.itertuples()
    ]  # fmt: skip
    same = int(kills.same_bytes.sum())
    first = (
        f"{same} of {len(kills)} fits that were killed gave the same bytes after resuming "
        f"({kills.gigabytes.iloc[0]:g} GB, {kills.passes_in_all.iloc[0]} passes). Passes over the data after "
        f"resuming: {kills.passes_after_resuming.min()} to {kills.passes_after_resuming.max()}."
    )
    return f"{common.markdown(header, lines)}\n\n{first}"


def refresh_readme(out: Path) -> None:
    readme = out / "README.md"
    if not readme.exists():
        return
    before, _, rest = readme.read_text().partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    readme.write_text(f"{before}{TABLE_BEGINS}\n{tables(out)}\n{TABLE_ENDS}{after}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the simulated files go, and go away"
    )
    parser.add_argument("--gigabytes", type=float, default=8.0, help="of the file that is fitted")
    parser.add_argument("--limit-gigabytes", type=float, default=1.5, help="address space of the fit")
    parser.add_argument("--kill-gigabytes", type=float, default=0.5, help="of the file whose fits are killed")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--parts", nargs="+", choices=("fits", "kills"), default=["fits", "kills"])
    parser.add_argument("--out", type=Path, default=HERE, help="folder for results")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    scratch = asked.folder / "foldless-disk"
    try:
        if "kills" in asked.parts:
            measure_kills(scratch, asked.out, asked.kill_gigabytes, asked.kills)
        if "fits" in asked.parts:
            measure_fits(scratch, asked.out, asked.gigabytes, asked.limit_gigabytes)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if (asked.out / FITS).exists() and (asked.out / KILLS).exists():
        print(tables(asked.out))
        refresh_readme(asked.out)


if __name__ == "__main__":
    main()
