"""What a page would make of HTML: which elements, which attributes, which addresses. For asserting that little is."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urlsplit

_WORDS = """
a abbr b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i li mark ol p pre s span strong style
summary table tbody td th thead tr ul
"""
ELEMENTS = frozenset(_WORDS.split())
ATTRIBUTES = frozenset({"class", "href", "title", "target", "rel", "tabindex", "role", "start", "style"})


class Page(HTMLParser):
    """Collects every element and attribute of a page."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def links(self) -> list[str]:
        return [attributes["href"] for _, attributes in self.elements if "href" in attributes]


def harmless(source: str, *, ours: str = "") -> Page:
    """Assert that the page can do nothing but show text and offer links to the web; returns it."""
    page = Page(source.removeprefix(ours))
    for tag, attributes in page.elements:
        assert tag in ELEMENTS, f"<{tag}> in {source[:400]!r}"
        own = {name for name in attributes if not name.startswith("aria-")}
        assert own <= ATTRIBUTES, f"{attributes} on <{tag}>"
        assert "url(" not in attributes.get("style", "")
    for link in page.links():
        assert urlsplit(link).scheme in ("http", "https", "mailto"), link
    return page
