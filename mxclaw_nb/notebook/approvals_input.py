"""Asking a person about one call with one line of input, where there are no buttons."""

from __future__ import annotations

from mxclaw_nb.protocol import Answer, Choice, PermissionRequested
from mxclaw_nb.text import escape_invisible, one_line

_WORDS: dict[str, Choice] = {"y": "allow_once", "yes": "allow_once", "s": "allow_session"}


def question(request: PermissionRequested) -> str:
    """What is asked, on one line of plain text."""
    return f"Allow {one_line(request.name, 60)}? {one_line(request.summary, 160)}"


def parse_answer(line: str, choices: tuple[Choice, ...]) -> Answer:
    """What a typed line means: y, s, n, or a word to the model, which denies. Never allows what was not offered."""
    word = line.strip()
    wanted = _WORDS.get(word.lower())
    if wanted is not None:
        return Answer(wanted) if wanted in choices else Answer("deny")
    return Answer("deny", "" if word.lower() in ("", "n", "no") else word)


def ask_by_input(request: PermissionRequested) -> Answer:
    """Ask in the front end's input field; blocks this thread. Raises KeyboardInterrupt, and EOFError as a denial."""
    print(f"{question(request)}\n{escape_invisible(request.detail.text)}\n{one_line(request.reason, 300)}", flush=True)
    session = "[s] for this session, " if "allow_session" in request.choices else ""
    try:
        return parse_answer(input(f"Allow? [y] once, {session}[n] no, or write why not: "), request.choices)
    except EOFError:
        return Answer("deny")
