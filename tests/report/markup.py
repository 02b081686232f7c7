"""A page as its tags, attributes and text, by the standard library's parser; and what in it could act."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.resources import files

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Everything a page of text, tables and pictures needs; whatever else appears came out of a name.
HARMLESS = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer"),
    *("h1", "h2", "h3", "p", "div", "span", "ul", "ol", "li", "dl", "dt", "dd", "a", "b", "small", "bdi"),
    *("figure", "img", "figcaption", "table", "thead", "tbody", "tr", "th", "td"),
}
ADDRESSES = {"src", "href", "srcset", "action", "formaction", "data", "poster", "background", "cite", "ping"}
PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]+\Z")


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def every(self, *tags: str) -> list[Node]:
        """All nodes below of these tags, in the order of the page; all nodes if no tag is given."""
        found = []
        for child in self.children:
            if isinstance(child, Node):
                found += [child] if not tags or child.tag in tags else []
                found += child.every(*tags)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]
        self.misplaced: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1].tag != tag:
            self.misplaced.append(tag)
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(page: str) -> Node:
    """The page; tags that do not match are an error, as those of a name that broke out of its place."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.misplaced, reader.misplaced
    assert reader.open == [reader.root], [node.tag for node in reader.open]
    return reader.root


def active_nodes(root: Node) -> list[str]:
    """What could run, load, submit or lead away."""
    found = []
    # The page's own script, once; whatever else is between such tags came out of a name.
    own = files("foldless.report").joinpath("page.js").read_text(encoding="utf-8")
    scripts = [node for node in root.every("script") if node.text == own and not node.attributes]
    for node in root.every():
        if node.tag not in HARMLESS and node not in scripts[:1]:
            found.append(f"<{node.tag}>")
        for name, value in node.attributes.items():
            if name.startswith("on") or name in ("style", "srcdoc", "autofocus", "target"):
                found.append(f"<{node.tag} {name}>")
            elif name in ADDRESSES and not (value.startswith("#") or PICTURE.match(value)):
                found.append(f"<{node.tag} {name}={value!r}>")
        if node.tag == "meta" and node.attributes.get("http-equiv", "").lower() == "refresh":
            found.append("<meta refresh>")
    if len(root.every("style")) > 1:
        found.append("a second <style>")
    return found
