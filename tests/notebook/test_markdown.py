"""A hostile model's Markdown, in both forms that a notebook keeps."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mxclaw_nb.notebook.formulas import is_safe_formula
from mxclaw_nb.notebook.markdown import balanced, escape_markdown, is_safe_link, render_html, safe_markdown
from tests.notebook.pages import harmless


@pytest.mark.parametrize(
    ("cell", "long"),
    [
        ("s-1234567890", False),
        ("价格" * 4, False),
        ("价格" * 6, True),
        ("a sentence of several words", True),
        ("", False),
    ],
)
def test_long_cells_of_a_table_are_told_from_short_ones(cell: str, long: bool) -> None:
    shown = render_html(f"| a | b |\n|---|--:|\n| x | {cell} |\n")
    page = harmless(shown)
    classes = [attributes.get("class", "") for tag, attributes in page.elements if tag == "td"]
    assert classes == ["", "mxc-long" if long else ""]
    assert shown.count("text-align:right") == 2


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<iframe src='http://evil.example/'></iframe>",
    "<svg/onload=alert(1)>",
    "<!-- --><style>*{background:url(http://evil.example/)}</style>",
    "![pixel](http://evil.example/p.png)",
    "![pixel][ref]\n\n[ref]: http://evil.example/p.png",
    "[![pixel](http://evil.example/p.png)](http://evil.example/)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&Tab;javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "[x](/api/kernels)",
    "[x](//evil.example/x)",
    "[x][ref]\n\n[ref]: javascript:alert(1) 'title'",
    "<javascript:alert(1)>",
    "<data:text/html,x>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "`<script>`<script>alert(1)</script>",
    "```html\n<script>alert(1)</script>\n```",
    "```mermaid\ngraph TD; A-->B; click A href \"javascript:alert(1)\"\n```",
    "~~~\n<script>\n~~~\n<script>alert(1)</script>",
    "    <script>alert(1)</script>",
    "- a\n  ```\n  $\\href{javascript:alert(1)}{x}$\n  ```\n- b `$` c",
    "| a | b |\n|---|---|\n| <img src=x onerror=alert(1)> | ![p](http://evil.example/p) |",
    "> <object data='http://evil.example'></object>",
    "$\\href{javascript:alert(1)}{x}$",
    "$$\\bbox[url(http://evil.example/)]{x}$$",
    "\\(\\require{html}\\href{javascript:alert(1)}{x}\\)",
    "\\[\\unicode{x41}\\class{x}{y}\\cssId{z}{w}\\style{a}{b}\\]",
    "\\begin{equation}\\href{javascript:alert(1)}{x}\\end{equation}",
    "$\\def\\x{\\href{javascript:alert(1)}{y}}\\x$",
    "costs $5 and `$6` \\href{javascript:alert(1)}{x} $7",
    "$<img src=x onerror=alert(1)>$",
    "{raw:html}`<script>alert(1)</script>` {{<script>}} {% raw %}",
    ":::{raw} html\n<script>alert(1)</script>\n:::",
    "\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07",
    "a\x00<scr\x00ipt>alert(1)</script>",
    "\u2028<script>alert(1)</script>",
    "\ud800<b>",
    "[a\\](javascript:alert(1))](http://ok.example)",
    "\\<script>alert(1)\\</script>",
    "\\\\<script>alert(1)</script>",
    "https://ok.example/<script>",
    "www.evil.example/\"onmouseover=alert(1)",
    "@@0@@ $x$ @@1@@",
    "# <img src=x onerror=alert(1)>\n===\n---",
    "1. <b>\n2) <i>",
    "*a<b*c>*",
]  # fmt: skip

permissive = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_does_nothing_and_loads_nothing_as_html(text: str) -> None:
    harmless(render_html(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_the_markdown_left_for_others_is_harmless_even_where_html_is_allowed(text: str) -> None:
    harmless(permissive.render(safe_markdown(text)))


@given(st.text(st.sampled_from("<>!&;:#$\\`*_~[](){}|-+=.@/\"' \n\tabimgscriptx0123\x1b"), max_size=120))
@example("`$\\href{javascript:x}{`\n\n`y}$`")
def test_no_text_becomes_markup(text: str) -> None:
    harmless(render_html(text))
    harmless(permissive.render(safe_markdown(text)))


_TYPESET = re.compile(r"\$|\\[(\[]|\\begin")


def _typeset_text(page_source: str) -> list[str]:
    """The strings in which MathJax would look for formulas: text that no element but code interrupts."""
    without_code = re.sub(r"(?s)<(code|pre)\b.*?</\1>", "<i></i>", page_source)
    return [piece for piece in re.split(r"<[^>]*>", without_code) if _TYPESET.search(piece)]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_wide_typesetter_finds_no_formula_that_was_not_judged(text: str) -> None:
    for source in (render_html(text), permissive.render(safe_markdown(text))):
        for piece in _typeset_text(source):
            formula = piece.strip().strip("$")
            assert piece.strip() in ("$", "\\") or is_safe_formula(formula), piece


@pytest.mark.parametrize(
    ("source", "safe"),
    [
        (r"\frac{1}{n}\sum_i x_i", True),
        (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", True),
        (r"x \lt y", True),
        (r"\href{javascript:alert(1)}{x}", False),
        (r"\HREF{x}{y}", False),
        (r"\csname href\endcsname{x}{y}", False),
        (r"\begin{html}x\end{html}", False),
        (r"\begin {equation}x\end{equation}", True),
        (r"\begin\relax{x}", False),
        (r"{", False),
        (r"}{", False),
        ("a\n\nb", False),
        (r"\catcode`\a=13", False),
        ("x" * 5000, False),
        ("\\", False),
    ],
)
def test_only_formulas_of_known_commands_are_typeset(source: str, safe: bool) -> None:
    assert is_safe_formula(source) is safe


def test_mathematics_survives_markdown() -> None:
    page = harmless(render_html(r"The mean \(\bar{x} = \frac{1}{n}\sum_i x_i\) of $a_1$ and $b_1$, for $5 or $6."))
    assert r"$\bar{x} = \frac{1}{n}\sum_i x_i$" in page.text
    assert "$a_1$" in page.text and "$b_1$" in page.text
    assert "for $5 or $6." in page.text


def test_a_block_of_mathematics_survives() -> None:
    assert r"$$E = mc^2$$" in harmless(render_html("before\n\n$$\nE = mc^2\n$$\n\nafter")).text


@pytest.mark.parametrize(
    "url", ["http://a.example", "https://a.example/b?c=d#e", "HTTPS://a.example", "mailto:a@b.example"]
)
def test_links_to_the_web_and_to_people_are_kept(url: str) -> None:
    assert is_safe_link(url)
    assert harmless(render_html(f"[x]({url})")).links()


@pytest.mark.parametrize(
    "url",
    [
        "javascript:x",
        "data:text/html,x",
        "//a.example",
        "/api",
        "a",
        "",
        "http:x",
        "http://[",
        "\x01http://a",
        "blob:x",
    ],
)
def test_other_links_are_not(url: str) -> None:
    assert not is_safe_link(url)


def test_a_picture_becomes_a_link_that_says_where_it_goes() -> None:
    page = harmless(render_html("![a chart](https://a.example/chart.png)"))
    assert page.links() == ["https://a.example/chart.png"]
    assert "a chart" in page.text


def test_ordinary_markdown_keeps_its_meaning_in_both_forms() -> None:
    text = (
        "# Title\n\n*em* **strong** `code` [link](https://a.example/x_y)\n\n- one\n  1. two\n- three\n\n> quoted\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n"
    )
    once, twice = render_html(text), permissive.render(safe_markdown(text))
    for expected in (
        "<h1>Title</h1>",
        "<em>em</em>",
        "<strong>strong</strong>",
        "<code>code</code>",
        "<td>1</td>",
        "<ol>",
    ):
        assert expected in once and expected in twice, expected
    assert "x = 1" in twice and "<blockquote>" in twice


@given(st.text(max_size=80))
def test_escaped_text_shows_exactly_that_text(text: str) -> None:
    line = " ".join(text.split())
    shown = harmless(permissive.render(escape_markdown(line))).text
    expected = line.encode("utf-8", "replace").decode()
    assert shown.split() == expected.replace("\x00", "\ufffd").split()


def test_a_cut_in_a_fence_leaves_no_open_fence() -> None:
    head, tail = "intro\n```python\nx = 1\n", "y = 2\n```\nend"
    assert "<code>x = 1\n" in render_html(balanced(head))
    rest = render_html(balanced(tail, dropped=head))
    assert "<code>y = 2\n" in rest and "<p>end</p>" in rest
