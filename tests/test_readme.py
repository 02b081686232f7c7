"""The README's example runs and prints what it says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_prints_what_the_readme_says():
    blocks = re.findall(r"```(python|text)\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [kind for kind, _ in blocks[:2]] == ["python", "text"]
    (_, code), (_, promised) = blocks[:2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(README), "exec"), {})
    assert printed.getvalue() == promised
