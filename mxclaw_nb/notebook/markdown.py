"""A model's Markdown, made safe: as HTML for the page, and as Markdown for those who render it themselves.

Raw HTML is off, links are limited to http, https and mailto, and a picture becomes a link (loading its address would
tell somebody that, and what, we read). The Markdown for others is written anew from the parsed tokens, with everything
that any dialect could take for markup escaped: JupyterLab renders a trusted notebook's Markdown with HTML and scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from urllib.parse import quote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from mxclaw_nb.text import plain, text_width

from .formulas import formulas, is_safe_formula
from .untrusted import inert_html, text_to_html

_SCHEMES = frozenset({"http", "https", "mailto"})
_SHORT_CELL = 20
"""Columns of a table cell that is never broken."""
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)


def is_safe_link(url: str) -> bool:
    """Whether following it opens a web page or a letter, and nothing on this machine or in this page."""
    if any(character <= " " or character == "\x7f" for character in url):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme.lower() in _SCHEMES and bool(parts.netloc or parts.scheme.lower() == "mailto")


class _Html(RendererHTML):
    """markdown-it's own renderer with our rules for text, links, pictures and formulas."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return inert_html(tokens[idx].content)

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        # The style sheet keeps short cells on one line and gives long ones room; it cannot tell which they are.
        if text_width(tokens[idx + 1].content) > _SHORT_CELL:
            tokens[idx].attrJoin("class", "mxc-long")
        return str(self.renderToken(tokens, idx, options, env))

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self.td_open(tokens, idx, options, env)

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        words = inert_html(token.content or "picture")
        url = str(token.attrGet("src") or "")
        inside_a_link = sum(outer.nesting for outer in tokens[:idx] if outer.type in ("link_open", "link_close")) > 0
        if inside_a_link or not is_safe_link(url):
            return f"[{words}]"
        return f"{_anchor(url)}{words}</a>"

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _anchor(str(tokens[idx].attrGet("href") or ""))

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f'<pre tabindex="0"><code>{text_to_html(tokens[idx].content)}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self.fence(tokens, idx, options, env)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<code>{text_to_html(tokens[idx].content)}</code>"

    def formula(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        element = "span" if is_safe_formula(token.content) else "code"
        return f"<{element}>{text_to_html(token.markup + token.content + token.markup)}</{element}>"

    def formula_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<p>{self.formula(tokens, idx, options, env)}</p>\n"


def _anchor(url: str) -> str:
    # The title shows where it really goes, whatever the words say.
    address = text_to_html(url)
    return f'<a href="{address}" title="{address}" target="_blank" rel="noopener noreferrer nofollow">'


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}, renderer_cls=_Html)
    parser.enable(["table", "strikethrough"]).use(formulas)
    parser.validateLink = is_safe_link  # type: ignore[method-assign]
    return parser


def render_html(text: str) -> str:
    """Markdown as HTML that does nothing and loads nothing."""
    return str(_parser().render(plain(text)))


def balanced(text: str, *, dropped: str = "") -> str:
    """Close a code fence that a cut left open at the end, and reopen one that began in ``dropped`` before the text."""
    opened = _open_fence(dropped)
    if opened:
        text = f"{opened}\n{text}"
    still_open = _open_fence(text)
    return f"{text}\n{still_open}" if still_open else text


def _open_fence(text: str) -> str:
    fence = ""
    for marks, info in _FENCE.findall(text):
        if not fence:
            if marks[0] == "~" or "`" not in info:
                fence = marks
        elif marks.startswith(fence) and not info.strip():
            fence = ""
    return fence


def safe_markdown(text: str) -> str:
    """The same text as Markdown in which nothing but plain formatting is left, for whichever renderer comes along."""
    return "\n".join(_blocks(_parser().parse(plain(text)), 0)[0]).strip("\n") + "\n"


def escape_markdown(text: str) -> str:
    """Plain text as Markdown that shows exactly that text and can be nothing else."""
    text = re.sub(r"[`*_{}\[\]#|~!&<>@$\\]", lambda found: _escaped(found[0]), text)
    # At the start of a line: list marks, underlines of headings, rules, the colons and percent signs of MyST.
    return re.sub(
        r"^([ \t]*\d*)([.)](?=\s|$)|[-+=](?=[\s=+-]|$)|:(?=::)|%)",
        lambda found: f"{found[1]}&#{ord(found[2])};",
        text,
        flags=re.MULTILINE,
    )


def _escaped(character: str) -> str:
    if character in "$\\":  # an element around each: page-wide typesetters look for these two in the rendered text
        return f"<span>&#{ord(character)};</span>"
    return f"&#{ord(character)};" if character in "&<>@" else f"\\{character}"


def _blocks(tokens: Sequence[Token], start: int, closing: str = "") -> tuple[list[str], int]:
    """The Markdown lines of the blocks from ``start`` to the closing token, and the index behind it."""
    lines: list[str] = []
    index = start
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if token.type == closing:
            break
        match token.type:
            case "heading_open":
                inline, index = _blocks(tokens, index, "heading_close")
                lines += [f"{'#' * int(token.tag[1])} {' '.join(inline).strip()}", ""]
            case "paragraph_open":
                inline, index = _blocks(tokens, index, "paragraph_close")
                lines += [*inline, *([] if token.hidden else [""])]
            case "inline":
                lines += _inline(token.children or []).split("\n")
            case "fence" | "code_block":
                lines += [*_fenced(token.content, nested=bool(closing)), ""]
            case "formula_block":
                lines += [_formula(token).replace("\n", " "), ""]
            case "hr":
                lines += ["* * *", ""]
            case "blockquote_open":
                inner, index = _blocks(tokens, index, "blockquote_close")
                lines += [*(f"> {line}".rstrip() for line in _trimmed(inner)), ""]
            case "bullet_list_open" | "ordered_list_open":
                inner, index = _items(tokens, index, token)
                lines += [*inner, ""]
            case "table_open":
                inner, index = _table(tokens, index)
                lines += [*inner, ""]
            case _:
                pass
    return lines, index


def _items(tokens: Sequence[Token], start: int, opening: Token) -> tuple[list[str], int]:
    closing = opening.type.replace("_open", "_close")
    number = int(opening.attrGet("start") or 1)
    lines: list[str] = []
    index = start
    while index < len(tokens) and tokens[index].type != closing:
        index += 1
        inner, index = _blocks(tokens, index, "list_item_close")
        mark = f"{number}. " if opening.type.startswith("ordered") else "- "
        number += 1
        inner = _trimmed(inner) or [""]
        lines += [mark + inner[0], *((" " * len(mark) + line).rstrip() for line in inner[1:])]
    return lines, index + 1


def _table(tokens: Sequence[Token], start: int) -> tuple[list[str], int]:
    rows: list[list[str]] = []
    index = start
    while index < len(tokens) and tokens[index].type != "table_close":
        if tokens[index].type == "tr_open":
            rows.append([])
        elif tokens[index].type == "inline":
            rows[-1].append(_inline(tokens[index].children or []).replace("\n", " "))
        index += 1
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if rows:
        lines.insert(1, "|" + " --- |" * len(rows[0]))
    return lines, index + 1


def _trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def _fenced(text: str, *, nested: bool) -> list[str]:
    if nested and re.search(r"[$\\]", text):  # where JupyterLab's search for formulas does not recognise a fence
        return ["<pre><code>" + _entities(text.rstrip("\n")).replace("\n", "&#10;") + "</code></pre>"]
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)  # no language: some renderers run diagrams by its name
    return [fence, *text.rstrip("\n").split("\n"), fence]


def _code(text: str) -> str:
    if re.search(r"[`$\\]", text):
        return f"<code>{_entities(text)}</code>"
    return f"`{text}`" if text.strip() else text


def _entities(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9\s.,/]", lambda found: f"&#{ord(found[0])};" if found[0] < "\x80" else found[0], text)


def _formula(token: Token) -> str:
    source = f"{token.markup}{token.content}{token.markup}"
    return f"<span>{source}</span>" if is_safe_formula(token.content) else _code(source.replace("\n", " "))


def _inline(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    links: list[str] = []
    for token in tokens:
        match token.type:
            case "text":
                parts.append(escape_markdown(token.content))
            case "code_inline":
                parts.append(_code(token.content))
            case "formula":
                parts.append(_formula(token))
            case "softbreak":
                parts.append("\n")
            case "hardbreak":
                parts.append("  \n")
            case "strong_open" | "strong_close":
                parts.append("**")
            case "em_open" | "em_close":
                parts.append("*")
            case "s_open" | "s_close":
                parts.append("~~")
            case "link_open":
                links.append(str(token.attrGet("href") or ""))
                parts.append("[")
            case "link_close":
                parts.append(f"]({_address(links.pop())})")
            case "image":
                words = escape_markdown(token.content or "picture")
                url = str(token.attrGet("src") or "")
                parts.append(f"[{words}]({_address(url)})" if not links and is_safe_link(url) else f"({words})")
            case _:
                parts.append(escape_markdown(token.content))
    return "".join(parts)


def _address(url: str) -> str:
    return quote(url, safe=":/?#@!&'*+,;=%~-._").replace("*", "%2A").replace("&", "&amp;").replace("_", "%5F")
