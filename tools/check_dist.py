"""Wheel and sdist, built twice and compared; then the wheel, in an empty environment and another folder.

    python tools/check_dist.py      (make dist-check)

What was built is left in dist/.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Of what a package needs beside its modules.
OTHER_FILES = {"py.typed", "references.bib", "page.css", "page.html.j2", "page.js"}


def main() -> None:
    committed = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    os.environ["SOURCE_DATE_EPOCH"] = subprocess.check_output(committed, text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        first, second = built(ROOT, Path(folder) / "1"), built(copied(Path(folder)), Path(folder) / "2")
        different = [name for name in {*first, *second} if first.get(name) != second.get(name)]
        if different:
            sys.exit(f"Two builds differ: {', '.join(different)}")
        print("Two builds, of two folders, are the same bits:")
        for name, digest in sorted(first.items()):
            print(f"  {digest}  {name}")
        (wheel,) = (Path(folder) / "1").glob("*.whl")
        (sdist,) = (Path(folder) / "1").glob("*.tar.gz")
        strangers = [name for name in zipfile.ZipFile(wheel).namelist() if not belongs(name)]
        if strangers:
            sys.exit(f"The wheel has files that do not belong there: {', '.join(strangers)}")
        for package in (wheel, sdist):
            tried(package, Path(folder) / f"try-{package.suffix[1:]}")
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(Path(folder) / "1", ROOT / "dist")


def copied(folder: Path) -> Path:
    """What is committed, in another folder."""
    clone = folder / "elsewhere"
    subprocess.run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)], check=True)
    return clone


def built(source: Path, out: Path) -> dict[str, str]:
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(source)], check=True, stdout=-3)
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in out.iterdir()}


def belongs(name: str) -> bool:
    path = Path(name)
    if path.parts[0].endswith(".dist-info"):
        return True
    return path.parts[0] == "foldless" and (path.suffix == ".py" or path.name in OTHER_FILES)


def tried(package: Path, folder: Path) -> None:
    """Installed into an environment that has nothing else, and run in a folder that has nothing else."""
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    clean = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")
    }
    work = folder / "work"
    work.mkdir()
    for command in (
        [scripts / "python", "-m", "pip", "install", "--quiet", package],
        [scripts / "foldless", "--version"],
        [scripts / "foldless", "demo"],
    ):
        subprocess.run([str(part) for part in command], cwd=work, env=clean, check=True)
    print(f"{package.name} installs, and its demo runs, in {work}")


if __name__ == "__main__":
    main()
