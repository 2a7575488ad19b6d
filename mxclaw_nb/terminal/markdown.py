"""Our own markdown at a terminal: rendered by rich, with raw HTML as text and links written out."""

from __future__ import annotations

from markdown_it import MarkdownIt
from rich.markdown import Markdown


def render(text: str) -> Markdown:
    """Something that rich's Console prints. ``text`` has no control sequences any more."""
    markdown = Markdown("", hyperlinks=False)
    markdown.markup = text
    markdown.parsed = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).parse(text)
    return markdown
