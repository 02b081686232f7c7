"""One page about a fitted model, to read, print and send: self-contained HTML without a script.

    report.write(model, "report.html", y=y, feature_names=genes)

Jinja2 and matplotlib are imported when a page is made, so that importing this package costs nothing.
"""

from foldless.report.page import html, write

__all__ = ["html", "write"]
