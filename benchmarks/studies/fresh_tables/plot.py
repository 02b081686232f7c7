"""The table and the figure of the study of fresh tables, from its results.csv.

python -m benchmarks.studies.fresh_tables.plot
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.studies import _common as common
from benchmarks.studies.fresh_tables.data import TABLES
from benchmarks.studies.large_tables import plot as large_tables
from benchmarks.studies.packaged_tables import plot as packaged_tables

draw = partial(large_tables.draw, order=TABLES)
report = partial(packaged_tables.report, order=TABLES)

if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
