"""Put a built site beside those of other versions on the branch gh-pages; run by the workflow docs.yml.

A tag goes to its version, and to "stable" if it is the newest; everything else to "dev". index.html leads to
"stable", and versions.json lists what there is.

    python tools/publish_docs.py site            # pushes, in the workflow
    python tools/publish_docs.py site --to DIR   # arranges files in a folder, and pushes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)$")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--to", type=Path, help="a folder instead of the branch")
    arguments = parser.parse_args()
    tag = os.environ.get("GITHUB_REF_NAME", "") if os.environ.get("GITHUB_REF_TYPE") == "tag" else ""
    if arguments.to is not None:
        arrange(arguments.site, arguments.to, tag)
        return
    with tempfile.TemporaryDirectory() as folder:
        push(arguments.site, Path(folder) / "pages", tag)


def arrange(site: Path, pages: Path, tag: str) -> None:
    """The site in its place, and what leads there."""
    version = tag.removeprefix("v") or "dev"
    pages.mkdir(parents=True, exist_ok=True)
    there = [each.name for each in pages.iterdir() if each.is_dir() and RELEASE.match(each.name)]
    releases = sorted({*there, *([version] if RELEASE.match(version) else [])}, key=_numbers)
    names = [version, "stable"] if releases and releases[-1] == version else [version]
    for name in names:
        shutil.rmtree(pages / name, ignore_errors=True)
        shutil.copytree(site, pages / name)
    (pages / ".nojekyll").touch()
    known = [*reversed(releases), "dev"]
    (pages / "versions.json").write_text(json.dumps(known) + "\n", encoding="utf-8")
    first = "stable" if releases else "dev"
    target = f"{first}/index.html"
    head = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={target}">'
    (pages / "index.html").write_text(f'{head}<a href="{target}">foldless</a>\n', encoding="utf-8")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def push(site: Path, pages: Path, tag: str) -> None:
    server, repository = os.environ["GITHUB_SERVER_URL"], os.environ["GITHUB_REPOSITORY"]
    remote = f"{server}/{repository}.git"
    # The token is read from the environment by git's own helper: it is in no file and in no argument.
    helper = "!f() { echo username=x-access-token; echo password=$GITHUB_TOKEN; }; f"
    git = ["git", "-c", f"credential.helper={helper}"]
    cloned = subprocess.run([*git, "clone", "--quiet", "--depth=1", "--branch=gh-pages", remote, str(pages)])
    if cloned.returncode:
        subprocess.run(["git", "init", "--quiet", "--initial-branch=gh-pages", str(pages)], check=True)
        subprocess.run(["git", "-C", str(pages), "remote", "add", "origin", remote], check=True)
    arrange(site, pages, tag)
    inside = [*git, "-C", str(pages)]
    who = ["-c", "user.name=documentation", "-c", "user.email=documentation@users.noreply.github.com"]
    subprocess.run([*inside, "add", "--all"], check=True)
    if subprocess.run([*inside, "diff", "--cached", "--quiet"]).returncode:
        subprocess.run([*inside, *who, "commit", "--quiet", f"--message={tag or 'dev'}"], check=True)
        subprocess.run([*inside, "push", "--quiet", "origin", "gh-pages"], check=True)


if __name__ == "__main__":
    main()
