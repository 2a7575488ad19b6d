"""The static record of a turn: what stays in the saved notebook. Pure: a state in, a MIME bundle out.

Bounded in bytes as they will lie in the .ipynb file, so that a notebook with a hundred turns stays one that opens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mxclaw_nb.text import one_line, plain

from .cards import answer_words, card_html, duration, remark_html, row_html, status_words, title
from .folding import Call, Remark, Reply, TurnState
from .markdown import balanced, escape_markdown, render_html, safe_markdown
from .styles import STYLE
from .untrusted import cut_middle, text_to_html

RECORD_BYTES = 20_000
"""What a turn may add to a saved notebook."""
SHOW_BYTES = 200_000
"""What ``%mxclaw show`` may, since somebody asked to see it."""

Bundle = Mapping[str, str]

_OUTCOME = {"completed": "completed", "failed": "failed", "interrupted": "interrupted"}


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a turn the record holds: characters of replies, of a card's inside, and the number of items."""

    reply: int
    card: int
    items: int
    plain: int


_BUDGETS = (
    Budget(6000, 2400, 60, 2000),
    Budget(5000, 1400, 50, 1500),
    Budget(4000, 900, 40, 1200),
    Budget(3000, 500, 30, 1000),
    Budget(2000, 300, 24, 800),
    Budget(1400, 0, 20, 600),
    Budget(800, 0, 14, 400),
    Budget(400, 0, 6, 300),
)
_SHOW_BUDGETS = (Budget(80_000, 20_000, 400, 8000), Budget(40_000, 6000, 200, 4000), Budget(15_000, 2000, 100, 2000))


def saved_bytes(bundle: Bundle) -> int:
    """The size of the bundle in a saved notebook: one JSON string a line, indented as Jupyter does."""
    lines = [line for text in bundle.values() for line in text.splitlines(keepends=True)]
    return sum(len(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace")) + 12 for line in lines) + 400


def record(state: TurnState, *, limit: int = RECORD_BYTES) -> dict[str, str]:
    """The turn as text/html, text/markdown and text/plain, at most ``limit`` bytes in a saved notebook."""
    budgets = _BUDGETS if limit <= RECORD_BYTES else _SHOW_BUDGETS + _BUDGETS
    bundle: dict[str, str] = {}
    for budget in budgets:
        bundle = {
            "text/html": record_html(state, budget),
            "text/markdown": record_markdown(state, budget),
            "text/plain": record_plain(state, budget),
        }
        if saved_bytes(bundle) <= limit:
            return bundle
    # Something that no budget foresees: the plain text is always small.
    words = record_plain(state, budgets[-1])
    return {
        "text/html": f"<pre>{text_to_html(words)}</pre>",
        "text/markdown": escape_markdown(words),
        "text/plain": words,
    }


def show_command(state: TurnState) -> str:
    """What brings the whole turn back from the store."""
    return f"%mxclaw show {state.turn_id or state.session_id}".rstrip()


def outcome(state: TurnState) -> str:
    """How it ended, in one word."""
    return _OUTCOME.get(state.phase, "not finished when this was shown")


def session_words(state: TurnState) -> str:
    """The session, and that it is taken up again if it is."""
    if not state.resumed:
        return f"session {state.session_id}" if state.session_id else ""
    return f"session {state.session_id} resumed, {state.resumed:,} message{'s' if state.resumed != 1 else ''}"


def is_news(state: TurnState, part: str) -> bool:
    """Whether a part of the head says what is said nowhere else, so that the narrowest page shows it too."""
    return part == state.note or (bool(state.resumed) and part == session_words(state))


def facts(state: TurnState) -> list[str]:
    """The head's parts: how it ended, model, time, rounds, tokens, session."""
    parts = [outcome(state), state.model]
    if state.seconds is not None:
        parts.append(duration(state.seconds))
    if state.rounds:
        parts.append(f"{state.rounds} round{'s' if state.rounds != 1 else ''}")
    if state.input_tokens or state.output_tokens:
        about = "about " if state.estimated else ""
        parts.append(f"{about}{state.input_tokens:,} tokens in, {state.output_tokens:,} out")
    if state.cost:
        parts.append(f"${state.cost:.4f}")
    return [one_line(part, 120) for part in (*parts, session_words(state), state.note) if part]


def failure_words(state: TurnState) -> str:
    """Why it did not complete, as a sentence; empty if it did."""
    if state.phase not in ("interrupted", "failed"):
        return ""
    return state.failure_reason or f"It ended without saying how; {show_command(state)} shows what is known of it."


def _shown(state: TurnState, budget: Budget) -> tuple[list[Call | Reply | Remark], int, list[Call | Reply | Remark]]:
    """The first items, how many are left out, and the last ones."""
    items = [item for item in state.items if not isinstance(item, Reply) or item.text.strip()]
    if len(items) <= budget.items:
        return items, 0, []
    first = budget.items // 3
    last = budget.items - first
    return items[:first], len(items) - budget.items, items[-last:]


def _reply_budget(state: TurnState, budget: Budget, reply: Reply) -> int:
    """The last reply gets the most; what went before shares a third of the room."""
    replies = [item for item in state.items if isinstance(item, Reply)]
    return budget.reply if reply is replies[-1] else max(budget.reply // 3 // max(len(replies) - 1, 1), 80)


def _cut_reply(text: str, limit: int, state: TurnState) -> tuple[str, str, str]:
    head, cut, tail = cut_middle(text, limit)
    if not cut:
        return head, "", ""
    gap = f"{cut:,} characters left out; {show_command(state)} shows them"
    return balanced(head), gap, balanced(tail, dropped=text[: len(text) - len(tail)])


def record_html(state: TurnState, budget: Budget) -> str:
    """The HTML part. Reads well with and without its style sheet."""
    kind = {"completed": "ok", "failed": "bad", "interrupted": "ask"}.get(state.phase, "run")
    glyph = {"completed": "✓", "failed": "✕", "interrupted": "■"}.get(state.phase, "·")
    first, *rest = facts(state)
    head = "".join(
        f'<span class="mxc-{"opt" if place and not is_news(state, part) else "main"}">{text_to_html(part)}</span> '
        for place, part in enumerate(rest)
    )
    before, omitted, after = _shown(state, budget)
    body = "".join(_item_html(item, state, budget) for item in before)
    if omitted:
        command = text_to_html(show_command(state))
        body += f'<div class="mxc-dim">{omitted} steps left out; <code>{command}</code> shows them</div>'
        body += "".join(_item_html(item, state, budget) for item in after)
    reason = failure_words(state)
    foot = f'<div class="mxc-foot" role="status">{text_to_html(one_line(reason, 600))}</div>' if reason else ""
    return (
        f'{STYLE}<div class="mxc mxc-rec" role="group" aria-label="agent turn, {text_to_html(first)}">'
        f'<div class="mxc-head mxc-{kind}"><span><span class="mxc-i" aria-hidden="true">{glyph}</span>'
        f" <b>{text_to_html(first)}</b></span> {head}</div>"
        f'<div class="mxc-body" tabindex="0" role="region" aria-label="transcript">{body}</div>{foot}</div>'
    )


def _item_html(item: Call | Reply | Remark, state: TurnState, budget: Budget) -> str:
    if isinstance(item, Call):
        more = f"; {show_command(state)} shows them"
        return card_html(item, budget.card, more=more) if budget.card else row_html(item)
    if isinstance(item, Remark):
        return remark_html(item)
    head, gap, tail = _cut_reply(item.text, _reply_budget(state, budget, item), state)
    text = render_html(head)
    if gap:
        text += f'<p class="mxc-dim">[{text_to_html(gap)}]</p>{render_html(tail)}'
    if item.incomplete:
        text += '<p class="mxc-dim mxc-warn">The reply was cut off here.</p>'
    return f'<div class="mxc-text">{text}</div>'


def record_markdown(state: TurnState, budget: Budget) -> str:
    """The Markdown part: the replies, and one line a call."""
    first, *rest = (escape_markdown(part) for part in facts(state))
    blocks = [f"**agent turn {first}**" + "".join(f" · {part}" for part in rest)]
    before, omitted, after = _shown(state, budget)
    for item in (
        *before,
        *((f"{omitted} steps left out; {show_command(state)} shows them",) if omitted else ()),
        *after,
    ):
        if isinstance(item, str):
            blocks.append(f"*{escape_markdown(item)}*")
        elif isinstance(item, Call):
            blocks.append(f"- {escape_markdown(_call_line(item))}")
        elif isinstance(item, Remark):
            blocks.append(f"*{escape_markdown(one_line(item.text, 300))}*")
        else:
            head, gap, tail = _cut_reply(item.text, _reply_budget(state, budget, item) // 2, state)
            blocks.append(safe_markdown(head).strip("\n"))
            if gap:
                blocks += [f"*{escape_markdown(gap)}*", safe_markdown(tail).strip("\n")]
    if reason := failure_words(state):
        blocks.append(f"**{escape_markdown(one_line(reason, 600))}**")
    return "\n\n".join(blocks) + "\n"


def _call_line(call: Call) -> str:
    words = (
        [answer_words(call)] if call.status == "denied" and call.answer else [status_words(call), answer_words(call)]
    )
    notes = ", ".join(note for note in words if note)
    return f"{one_line(call.name, 60)} {title(call, 120)} ({notes})"


def record_plain(state: TurnState, budget: Budget) -> str:
    """The short plain part."""
    lines = [f"[agent turn {' · '.join(facts(state))}]"]
    calls = state.calls
    lines += [f"- {_call_line(call)}" for call in calls[-6:]]
    if len(calls) > 6:
        lines.insert(1, f"- ({len(calls) - 6} calls before)")
    head, cut, tail = cut_middle(plain(state.final_text).strip(), budget.plain)
    if head:
        lines.append(f"{head}[... {cut:,} characters ...]{tail}" if cut else head)
    if reason := failure_words(state):
        lines.append(one_line(reason, 600))
    return "\n".join(lines)
