"""Asking a person about one call with buttons: it shows exactly what would happen, and says what was answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from mxclaw_nb.protocol import Answer, Choice, PermissionRequested
from mxclaw_nb.text import one_line

from .cards import detail_html, size_words
from .untrusted import text_to_html
from .widgets import Widget, button, close_all, column, html, row, text_field

DETAIL_CHARACTERS = 200_000
"""The most that a page is given of one detail; if there is more, the question says so and does not hide it."""

_VALUE_S = 0.3
"""How long after Enter the field's value is read, in seconds."""

_BUTTONS: dict[Choice, tuple[str, str, str]] = {
    "allow_once": ("Allow once", "Do this now, and ask again the next time", "success"),
    "allow_session": ("Allow for this session", "Do this, and the like of it, without asking in this session", ""),
    "deny": ("Deny", "Do not do this; the model is told so and goes on", "danger"),
}


def question_html(request: PermissionRequested) -> str:
    """The question with everything that a person needs to answer it."""
    detail = request.detail
    missing = len(detail.text) - DETAIL_CHARACTERS
    count = size_words(detail)
    warning = ""
    if missing > 0:
        detail = detail.model_copy(update={"text": detail.text[:DETAIL_CHARACTERS]})
        words = f"The last {missing:,} characters are not shown here. Deny, unless you know them."
        warning = f'<div class="mxc-err">{words}</div>'
    shown = detail_html(detail) if detail.text.strip() else ""
    # A command is below in full; twice on one screen is once too often.
    summary = "" if detail.kind == "command" and shown else text_to_html(one_line(request.summary, 300))
    return (
        f'<div class="mxc" role="alert"><div class="mxc-ask"><span class="mxc-i" aria-hidden="true">?</span> '
        f'<b>Allow <span class="mxc-name">{text_to_html(one_line(request.name, 60))}</span>?</b> '
        f'{summary} <span class="mxc-dim">{count}</span></div>{shown}{warning}'
        f'<div class="mxc-dim">{text_to_html(one_line(request.reason, 300))}</div></div>'
    )


class Question:
    """The widgets of one pending approval. ``give`` may be called on any thread; nothing here prints or waits."""

    def __init__(self, request: PermissionRequested, give: Callable[[Answer], None]) -> None:
        self.request = request
        self._give = give
        self._detail = html(question_html(request), width="auto")
        self._buttons = [self._button(choice) for choice in request.choices]
        self._loop = asyncio.get_running_loop()
        self._word = text_field(
            "why not, or what to do instead", "A word to the model that goes with the denial", self._entered
        )
        self._send = button("Deny with this note", "Deny, and tell the model what you wrote", self._deny_with_word)
        self._state = html("", margin="0 0 0 8px")
        self.box = column(
            [
                self._detail,
                row([*self._buttons, self._state], flex_flow="row wrap", align_items="center"),
                row([self._word, self._send], flex_flow="row wrap", align_items="center"),
            ],
            width="auto",
        )
        self.box.add_class("mxc-asks")

    def _button(self, choice: Choice) -> Widget:
        label, tooltip, style = _BUTTONS[choice]
        return button(label, tooltip, lambda: self._give(Answer(choice)), style=style)

    def _deny_with_word(self) -> None:
        self._give(Answer("deny", self._word.value.strip()))

    def _entered(self) -> None:
        """Enter in the field: the page sends that before the value, which is a message behind."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the turn is over
            self._loop.call_soon_threadsafe(self._loop.call_later, _VALUE_S, self._deny_if_written)

    def _deny_if_written(self) -> None:
        if self._word.value.strip() and not self._word.disabled:
            self._deny_with_word()

    def freeze(self, answer: Answer) -> None:
        """An answer was given here: no second one, and say so at once."""
        for widget in (*self._buttons, self._word, self._send):
            widget.disabled = True
        label = "Denied" if answer.choice == "deny" else _BUTTONS[answer.choice][0].replace("Allow", "Allowed")
        self._state.value = f'<span class="mxc mxc-dim" role="status">{label}, passing it on</span>'

    def close(self) -> None:
        """Close the widgets; whatever shows the box must have let go of it."""
        close_all(self.box)
