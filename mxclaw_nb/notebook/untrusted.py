"""Text from a model, a tool or a file on its way into a page: escaped, and with nothing invisible where one decides."""

from __future__ import annotations

import html
import re
from itertools import groupby

from mxclaw_nb.text import escape_invisible, is_invisible, plain


def progress_settled(text: str) -> str:
    """Output as it stands on the screen in the end: of a progress line only the last state, no control sequences."""
    if "\r" in text:
        lines = text.replace("\r\n", "\n").split("\n")
        text = "\n".join(next((state for state in reversed(line.split("\r")) if state), "") for line in lines)
    return plain(text)


def text_to_html(text: str) -> str:
    """Text as HTML text, or as the value of a quoted attribute."""
    return html.escape(text.encode("utf-8", "replace").decode())


def visible_html(text: str) -> str:
    """The text with every character that draws nothing as an escape, marked so that no letters can pose as one."""
    return "".join(
        f'<mark class="mxc-esc">{escape_invisible("".join(run))}</mark>' if hidden else text_to_html("".join(run))
        for hidden, run in groupby(text, is_invisible)
    )


def inert_html(text: str) -> str:
    """As ``text_to_html``, and no page-wide typesetter finds mathematics in it.

    JupyterLab typesets the text of HTML outputs, and a formula can carry a link or a picture. An element around
    each ``$`` and backslash breaks the strings that MathJax and KaTeX search.
    """
    return re.sub(r"[$\\]", r"<span>\g<0></span>", text_to_html(text))


def cut_middle(text: str, limit: int, *, head: float = 0.6) -> tuple[str, int, str]:
    """Head, number of characters left out, tail: ``limit`` characters in all, cut at a line's end if one is near."""
    if len(text) <= limit:
        return text, 0, ""
    first = max(int(limit * head), 1)
    last = max(limit - first, 0)
    cut = text.rfind("\n", int(first * 0.8), first)
    first = cut + 1 if cut >= 0 else first
    start = len(text) - last
    cut = text.find("\n", start, start + int(last * 0.2) + 1)
    start = cut + 1 if cut >= 0 else start
    return text[:first], start - first, text[start:]
