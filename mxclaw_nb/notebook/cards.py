"""A tool call as a compact card: status, name, summary, time; folded inside: what was asked, what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from mxclaw_nb.protocol import Detail
from mxclaw_nb.text import named_values, one_line

from .folding import Call, Remark
from .untrusted import cut_middle, progress_settled, text_to_html, visible_html

_SHORT, _ARGUMENTS = 80, 12
_BOX_LINES = 12
"""About as many lines as the box of a detail shows at once."""
_LOOKS: dict[str, tuple[str, str, str]] = {
    "waiting": ("run", "·", "waiting"),
    "asking": ("ask", "?", "waiting for an answer"),
    "running": ("run", "", "running"),
    "ok": ("ok", "✓", "done"),
    "error": ("bad", "✕", "failed"),
    "invalid": ("bad", "✕", "invalid call"),
    "denied": ("ask", "⊘", "denied"),
    "duplicate": ("ask", "=", "already done"),
    "interrupted": ("ask", "■", "interrupted"),
}
_ANSWERS = {"allow_once": "allowed once", "allow_session": "allowed for this session", "deny": "denied"}
_BY = {
    "user": "",
    "cli": " from a terminal",
    "timeout": ": nobody answered in time",
    "cancelled": ": the turn ended first",
    "nobody": ": nobody can be asked here",
}


def duration(seconds: float, *, whole: bool = False) -> str:
    """Such as ``0.4 s``, ``12 s``, ``3 min 05 s``; ``whole`` leaves out the tenths, for a clock that runs."""
    if seconds < 10 and not whole:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def status_words(call: Call) -> str:
    """The call's status in words, with the exit code."""
    words = _LOOKS[call.status][2]
    return f"{words}, exit {call.exit_code}" if call.exit_code else words


def answer_words(call: Call) -> str:
    """How its approval was answered and from where; empty if there was none."""
    if call.answer is None:
        return ""
    return _ANSWERS[call.answer] + _BY.get(call.answered_by, f" by {one_line(call.answered_by, 60)}")


def title(call: Call, limit: int = 160) -> str:
    """The call on one line of plain text."""
    summary = one_line(call.summary or _in_short(call.arguments), limit)
    return summary.removeprefix(call.name).lstrip(" :") if summary.startswith(call.name) else summary


def _in_short(arguments: str) -> str:
    """The arguments that have room on a line, for a call that nobody summarised; the first one if none has."""
    values = [value for _, value in named_values(arguments)]
    return " ".join([value for value in values if not _is_long(value)] or values[:1])


def _is_long(value: str) -> bool:
    return len(value) > _SHORT or "\n" in value


def pre(content: str, label: str) -> str:
    """A scrollable block that the keyboard reaches. ``content`` is HTML."""
    return f'<pre tabindex="0" role="region" aria-label="{text_to_html(label)}">{content}</pre>'


def diff_lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a unified diff, each with its kind: ``hunk`` for a heading, ``add``, ``del`` or nothing.

    Behind the first ``@@`` no line is a file's name: there ``--- x`` takes away a line that begins with two dashes.
    """
    in_hunk = False
    for line in text.removesuffix("\n").split("\n"):
        in_hunk = in_hunk or line.startswith("@@")
        if line.startswith("@@") or (not in_hunk and line.startswith(("--- ", "+++ "))):
            yield "hunk", line
        else:
            yield {"+": "add", "-": "del"}.get(line[:1], ""), line


def diff_html(text: str, escape: Callable[[str], str]) -> str:
    """A unified diff, a class a line."""
    # A block needs no line break behind it; without the style sheet the break is what separates the lines.
    return "".join(
        f'<span class="mxc-{kind}">{escape(line)}</span>' if kind else f"{escape(line)}\n"
        for kind, line in diff_lines(text)
    )


def size_words(detail: Detail) -> str:
    """What a summary does not say of the size: the lines a diff adds and takes away, those of a long command."""
    lines = detail.text.count("\n") + 1
    words: list[str] = []
    if detail.kind == "diff" and not detail.text.startswith("--- /dev/null"):
        kinds = Counter(kind for kind, _ in diff_lines(detail.text))
        changes = ((kinds["add"], "added"), (kinds["del"], "removed"))
        words = [f"{number:,} line{'s' if number != 1 else ''} {what}" for number, what in changes if number]
    elif detail.kind != "diff" and lines > _BOX_LINES:
        words = [f"{lines:,} lines"]
    if lines > _BOX_LINES:
        words.append("scroll to see all")
    return ", ".join(words)


def detail_html(detail: Detail) -> str:
    """What an approval is about, in full, every invisible character made visible."""
    if detail.kind == "diff":
        return pre(diff_html(detail.text, visible_html), "the change")
    return pre(visible_html(detail.text), "the command" if detail.kind == "command" else "the details")


def arguments_html(arguments: str, limit: int, *, more: str = "") -> str:
    """The arguments of a call, a name and its value a line, long values in a block; ``limit`` characters in all."""
    named = named_values(arguments)
    shown = named[:_ARGUMENTS]
    rows = []
    for name, value in shown:
        label = f"{text_to_html(one_line(name, 60))}: " if name else ""
        if name == "command" or _is_long(value):
            head, cut, tail = cut_middle(value, max(limit // len(shown), 60))
            gap = f'\n<span class="mxc-dim">[{cut:,} characters left out{more}]</span>\n' if cut else ""
            rows.append(f"<div>{label}</div>{pre(visible_html(head) + gap + visible_html(tail), name or 'arguments')}")
        else:
            rows.append(f"<div>{label}<code>{visible_html(value)}</code></div>")
    if len(named) > len(shown):
        rows.append(f'<div class="mxc-dim">{len(named) - len(shown):,} more arguments{more}</div>')
    return f'<div class="mxc-args">{"".join(rows)}</div>' if rows else ""


def output_html(text: str, limit: int, *, path: str | None = None, more: str = "") -> str:
    """Output of a tool, cut in its middle to ``limit`` characters; says how much is missing and where it is."""
    head, cut, tail = cut_middle(progress_settled(text), limit)
    if not head.strip() and not cut:
        return '<div class="mxc-dim">no output</div>'
    gap = f'\n<span class="mxc-dim">[{cut:,} characters left out{more}]</span>\n' if cut else ""
    block = pre(text_to_html(head.rstrip("\n") if not cut else head) + gap + text_to_html(tail), "output")
    stored = f'<div class="mxc-dim">full output: <code>{text_to_html(one_line(path, 300))}</code></div>' if path else ""
    return block + stored


def head_html(call: Call, *, seconds: float | None = None) -> str:
    """The card's one line. ``seconds`` is how long it has been running."""
    _, glyph, _ = _LOOKS[call.status]
    icon = '<span class="mxc-spin"></span>' if call.status == "running" else glyph
    shown = seconds if seconds is not None else call.duration_ms / 1000 if call.duration_ms else None
    notes = [f"exit {call.exit_code}"] if call.exit_code else []
    if shown is not None:
        notes.append(duration(shown))
    answer = answer_words(call)
    return (
        f'<span class="mxc-i" aria-hidden="true">{icon}</span> '
        f'<span class="mxc-sr">{status_words(call)}: </span>'
        f'<span class="mxc-name">{text_to_html(one_line(call.name, 60))}</span> '
        f'<span class="mxc-sum">{text_to_html(title(call))}</span> '
        f'<span class="mxc-time"><span class="mxc-opt">{text_to_html(answer)}{" · " if answer and notes else ""}</span>'
        f"{' · '.join(notes)}</span>"
    )


def card_html(call: Call, limit: int, *, more: str = "") -> str:
    """A finished call, folded; ``limit`` bounds the characters of what is inside."""
    kind = _LOOKS[call.status][0]
    inside = ""
    if (detail := call.detail) is not None and detail.text.strip():
        head, cut, tail = cut_middle(detail.text, limit // 2)
        gap = f"\n[{cut:,} characters left out{more}]\n" if cut else ""
        inside += detail_html(Detail(kind=detail.kind, text=head + gap + tail))
    else:
        inside += arguments_html(call.arguments, limit // 3, more=more)
    inside += output_html(call.result, limit // 2, path=call.output_path, more=more)
    return (
        f'<details class="mxc-call mxc-{kind}"><summary>{head_html(call)}</summary>'
        f'<div class="mxc-in">{inside}</div></details>'
    )


def row_html(call: Call) -> str:
    """A call as one line and nothing to unfold."""
    return f'<div class="mxc-call mxc-{_LOOKS[call.status][0]}"><div class="mxc-row">{head_html(call)}</div></div>'


def running_html(call: Call, seconds: float | None) -> str:
    """A call that has not ended: its line, and the last of its output as it comes."""
    kind = _LOOKS[call.status][0]
    tail = progress_settled(call.output)
    lines = tail.rstrip("\n").split("\n")[-12:] if tail.strip() else []
    inside = f'<div class="mxc-in">{pre(text_to_html(chr(10).join(lines)), "output so far")}</div>' if lines else ""
    row = head_html(call, seconds=seconds if call.status == "running" else None)
    return f'<div class="mxc-call mxc-{kind}"><div class="mxc-row">{row}</div>{inside}</div>'


def remark_html(remark: Remark, columns: int = 600) -> str:
    kind = {"info": "mxc-dim", "warning": "mxc-dim mxc-warn", "error": "mxc-dim mxc-err"}[remark.level]
    return f'<div class="{kind}">{text_to_html(one_line(remark.text, columns))}</div>'
