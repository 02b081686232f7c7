"""Run the numerical tests as other processors would: `make test-cpus`.

Sums are rounded in another order by every BLAS kernel and every vector width, so a test can pass on one
processor and fail on the next. OpenBLAS takes the kernels of another core type from an environment variable,
and NumPy leaves out its own loops for AVX512 or AVX2. A kind of processor is

    Haswell             a core type of OpenBLAS
    no-avx512, no-avx2  NumPy without these loops
    Nehalem+no-avx2    both at once

Kinds that come down to the same kernels are run once: OpenBLAS has no kernels of their own for some core
types, and falls back where the machine lacks the instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys

# Where nothing is read, drawn or written: only numbers.
ROOMS = ["channels", "contracts", "operators", "selection", "solvers", "theory", "tuning"]
# Older ones are none that NumPy runs on, and OpenBLAS inverts triangles out of bounds in Prescott's.
KINDS = ["SkylakeX", "Haswell", "Zen", "Sandybridge", "Nehalem", "no-avx512", "no-avx2"]

# NumPy's names of loops for AVX512 (and for AVX2), before and since NumPy 2.4.
AVX512 = r"AVX512.*|X86_V4"
WITHOUT = {"no-avx512": AVX512, "no-avx2": rf"{AVX512}|AVX2|FMA3|X86_V3"}

# How pytest counts, in its last line.
CLOSING = re.compile(r"\d+ (passed|failed|skipped|deselected|errors?)\b.* in [\d.]+s")

# What a process computes with, once NumPy and SciPy are loaded.
KERNELS = """
import json, numpy, scipy.linalg
from threadpoolctl import threadpool_info
try:
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
except ImportError:
    from numpy.core._multiarray_umath import __cpu_dispatch__, __cpu_features__
numpy.ones((9, 9)) @ numpy.ones((9, 9))
blas = sorted({str(pool.get("architecture")) for pool in threadpool_info() if pool["user_api"] == "blas"})
print(json.dumps({"blas": blas, "numpy": [name for name in __cpu_dispatch__ if __cpu_features__[name]]}))
"""


def kernels(environment: dict[str, str]) -> dict[str, list[str]] | None:
    """The kernels of BLAS and the loops of NumPy in such an environment; None if it cannot compute at all."""
    done = subprocess.run(
        [sys.executable, "-c", KERNELS], env=environment, capture_output=True, text=True, check=False
    )
    return None if done.returncode else dict(json.loads(done.stdout))


def environment_of(kind: str, loops: list[str]) -> dict[str, str]:
    """This machine's environment, changed so that it computes as the kind does."""
    environment = dict(os.environ)
    for part in kind.split("+"):
        if part in WITHOUT:
            left_out = [name for name in loops if re.fullmatch(WITHOUT[part], name)]
            environment["NPY_DISABLE_CPU_FEATURES"] = " ".join(left_out)
        else:
            environment["OPENBLAS_CORETYPE"] = part
    return environment


def main() -> int:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--cpus", default="", help=f"kinds of processors; {' '.join(KINDS)} unless given")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    own = kernels(dict(os.environ))
    if own is None:
        print("NumPy, SciPy and threadpoolctl are needed", file=sys.stderr)
        return 2

    closing: dict[str, str] = {}
    seen: dict[str, str] = {}
    failed = False
    for kind in options.cpus.split() or KINDS:
        environment = environment_of(kind, own["numpy"])
        found = kernels(environment)
        if found is None:
            closing[kind] = "not run: this machine cannot compute with these kernels"
            continue
        same_as = seen.setdefault(json.dumps(found), kind)
        what = f"BLAS {', '.join(found['blas'])}; NumPy {' '.join(found['numpy']) or 'baseline'}"
        if same_as != kind:
            closing[kind] = f"not run: the same kernels as {same_as} ({what})"
            continue
        print(f"--- {kind}: {what}", flush=True)
        pytest = [sys.executable, "-m", "pytest", *(f"tests/{room}" for room in ROOMS)]
        process = subprocess.Popen(
            [*pytest, *options.arguments], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        last = "no count"
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip("= \n") if CLOSING.search(line) else last
        # No such test (5) is fine: the arguments may have chosen none of these rooms.
        failed = process.wait() not in (0, 5) or failed
        closing[kind] = last
    print("--- kinds of processors")
    for kind, line in closing.items():
        print(f"{kind:18} {line}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
