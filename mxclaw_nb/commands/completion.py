"""Tab: what could come next after ``%mxclaw`` or ``%%agent``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import click

from mxclaw_nb.protocol import MODES, MxclawError, Settings

from .agent import AGENT_COMMAND
from .place import Call
from .root import root

_WAIT_S = 0.5
_SESSION_COMMANDS = {"use", "show", "fork", "delete", "rename", "stop"}


def complete(call: Call, line: str) -> list[str]:
    """Words that could stand where ``line`` (what was typed after ``%mxclaw``, up to the cursor) ends.

    Quick and quiet: what cannot be found out within half a second is left out.
    """
    words = line.split()
    unfinished = words.pop() if words and not line[-1:].isspace() else ""
    command: click.Command = root
    path: list[str] = []
    for word in words:
        if isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
            path.append(word)
    return _starting(unfinished, _candidates(call, command, path, words, unfinished))


def complete_agent(call: Call, line: str) -> list[str]:
    """As ``complete``, for the options after ``%%agent``."""
    words = line.split()
    unfinished = words.pop() if words and not line[-1:].isspace() else ""
    return _starting(unfinished, _candidates(call, AGENT_COMMAND, [], words, unfinished))


def _starting(unfinished: str, candidates: list[str]) -> list[str]:
    return [word for word in dict.fromkeys(candidates) if word.startswith(unfinished)]


def _candidates(call: Call, command: click.Command, path: list[str], words: list[str], unfinished: str) -> list[str]:
    previous = words[-1] if words else ""
    if previous == "--model":
        return _models(call)
    if previous == "--session":
        return _sessions(call)
    if previous == "--mode":
        return list(MODES)
    if unfinished.startswith("-"):
        options = [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
        return [*options, "--help"]
    if isinstance(command, click.Group):
        return command.list_commands(click.Context(command))
    last = path[-1] if path else ""
    if last in _SESSION_COMMANDS:
        return _sessions(call)
    if last in {"approve", "deny"}:
        return _approvals(call)
    if last == "set" and previous == "set":
        return list(Settings.model_fields)
    return []


def _models(call: Call) -> list[str]:
    names = []
    for name in call.app.directory.names():
        provider = call.app.directory.provider(name)
        if provider is not None:
            names += [f"{name}/{model}" for model in dict.fromkeys((provider.model, *provider.models)) if model]
    return names


def _sessions(call: Call) -> list[str]:
    async def read() -> list[str]:
        return [session.id for session in await call.app.store.sessions(limit=50)]

    return _soon(read())


def _approvals(call: Call) -> list[str]:
    async def read() -> list[str]:
        return [row.id for row in await call.app.store.pending_approvals()]

    return _soon(read())


def _soon(work: Coroutine[Any, Any, list[str]]) -> list[str]:
    """What ``work`` gives within half a second, on a loop of its own: Tab is pressed while the kernel's loop runs."""
    found: list[str] = []

    async def bounded() -> None:
        try:
            async with asyncio.timeout(_WAIT_S):
                found.extend(await work)
        except (MxclawError, TimeoutError):
            found.clear()  # nothing to offer is a fair answer

    thread = threading.Thread(target=lambda: asyncio.run(bounded()), name="mxclaw-complete", daemon=True)
    thread.start()
    thread.join(_WAIT_S * 2)
    return list(found)
