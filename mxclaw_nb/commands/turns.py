"""Running a turn for a front end: ``%%agent`` and ``mxclaw run`` are one command."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mxclaw_nb.core import TurnOptions, TurnStream
from mxclaw_nb.protocol import (
    EXIT_COMPLETED,
    AlreadyAnswered,
    Answer,
    Event,
    Mode,
    ModelId,
    MxclawError,
    NotFound,
    Notice,
    ProviderNotReady,
    Session,
    TurnCompleted,
    TurnFailed,
    TurnFailedEvent,
    TurnHandle,
    TurnView,
    UsageError,
    UserInput,
)
from mxclaw_nb.providers import REHEARSAL_PROVIDER
from mxclaw_nb.text import one_line

from .place import Call
from .rehearsing import ensure_rehearsal

_DRAIN_S = 5.0
_KEY_VARIABLE = "MX_CLAW_API_KEY"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What ``%%agent`` or ``mxclaw run`` was told. None means: the session's own value or the setting."""

    text: str
    session: str | None = None
    new: bool = False
    model: str | None = None
    mode: Mode | None = None
    max_iterations: int | None = None
    workspace: Path | None = None
    timeout_s: float | None = None
    max_cost: float | None = None


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended. ``failure`` is None if it completed; ``text`` is the final reply."""

    session_id: str
    turn_id: str
    text: str = ""
    failure: TurnFailed | None = None

    @property
    def exit_status(self) -> int:
        return EXIT_COMPLETED if self.failure is None else self.failure.exit_status


async def run_turn(call: Call, request: TurnRequest, *, frontend_can_answer: bool | None = None) -> TurnOutcome:
    """Run one turn and show it. Raises what refuses it (UsageError, ProviderNotReady, SessionBusy, LeaseHeld, ...).

    A failed turn is an outcome, not an exception. When cancelled, the turn is ended first, its view closed, and the
    cancellation goes on.
    """
    await call.app.keep_house()
    found = await _existing_session(call, request)
    session_model = found.model if found is not None else None
    with _two_ways_on(call):
        model = _turn_model(call, request, session_model)
    wanted = str(model) if model is not None else session_model
    if wanted is not None and wanted.startswith(REHEARSAL_PROVIDER + "/"):
        ensure_rehearsal(call.app)
    can_answer = call.frontend.can_answer if frontend_can_answer is None else frontend_can_answer
    options = TurnOptions(
        model=model,
        mode=request.mode,
        max_iterations=request.max_iterations,
        timeout_s=request.timeout_s,
        max_cost=request.max_cost,
        can_answer=can_answer,
    )
    user = UserInput(request.text)
    try:
        with _two_ways_on(call):
            call.app.core.check(user, options, session_model=session_model)  # so a refusal leaves no session behind
    finally:
        if note := call.app.directory.config.take_note():
            call.frontend.say(note, level="warning")
    session = await _session_for(call, request, found)
    async with call.app.core.submit_turn(session.id, user, options) as stream:
        with _two_ways_on(call):
            await stream.start()
        return await _show(call, session, request, stream)


async def _show(call: Call, session: Session, request: TurnRequest, stream: TurnStream) -> TurnOutcome:
    answers = _Answers(call)
    handle = TurnHandle(
        session_id=session.id,
        prompt=request.text,
        answer=answers.give,
        stop=stream.cancel,
        workspace=session.workspace,
        max_iterations=request.max_iterations or call.app.settings.load().max_iterations,
        earlier_messages=session.message_count,
    )
    view = call.frontend.open_turn(handle)
    try:
        last = await _watch(stream, view)
    finally:
        await answers.close()
        await view.close()
    turn_id = stream.turn_id or ""
    if isinstance(last, TurnCompleted):
        return TurnOutcome(session.id, turn_id, last.text)
    if isinstance(last, TurnFailedEvent):
        return TurnOutcome(session.id, turn_id, failure=TurnFailed(last.code, last.message))
    failure = TurnFailed("error", "The turn ended without saying how. This is a bug in mxclaw.")
    return TurnOutcome(session.id, turn_id, failure=failure)


async def _watch(stream: TurnStream, view: TurnView) -> Event | None:
    """Show every event; when cancelled, end the turn and show the rest of them first."""
    last: Event | None = None

    async def show() -> None:
        nonlocal last
        async for event in stream:
            view.on_event(event)
            if not isinstance(event, Notice):
                last = event

    try:
        await show()
    except asyncio.CancelledError:
        stream.cancel()
        rest = asyncio.ensure_future(show())
        deadline = asyncio.get_running_loop().time() + _DRAIN_S
        while not rest.done() and (left := deadline - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                await asyncio.wait({rest}, timeout=left)
        rest.cancel()
        raise
    return last


class _Answers:
    """Takes a screen's answers from any thread and gives them to core on the turn's loop."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def give(self, request_id: str, answer: Answer) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the turn is over
            self._loop.call_soon_threadsafe(self._start, request_id, answer)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)

    def _start(self, request_id: str, answer: Answer) -> None:
        task = self._loop.create_task(self._answer(request_id, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request_id: str, answer: Answer) -> None:
        try:
            await self._call.app.core.answer(request_id, answer, "user")
        except (AlreadyAnswered, NotFound):
            pass  # answered elsewhere first: the event that says so is on its way
        except MxclawError as error:  # it still waits, and can be answered again from elsewhere
            self._call.frontend.say(f"The answer to {request_id} could not be given. {error}", level="error")


async def _existing_session(call: Call, request: TurnRequest) -> Session | None:
    """The session that the turn goes on with, None for a new one. Raises UsageError if it works in another folder."""
    if request.session:
        session = await call.app.store.session(request.session)
        if request.workspace is not None and not _same_folder(str(request.workspace), session.workspace):
            raise UsageError(
                f"Session {session.id} works in {session.workspace}, not in {request.workspace}. "
                "Leave --workspace out, or start a new session there."
            )
        return session
    return None if request.new or not call.place.keeps_session else await call.current_session()


def _same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


async def _session_for(call: Call, request: TurnRequest, found: Session | None) -> Session:
    if found is not None:
        if request.session:
            await call.use_session(found)
        return found
    if request.workspace is not None:
        call.place.workspace = request.workspace
    return await call.new_session(title=one_line(request.text, 60))


def _turn_model(call: Call, request: TurnRequest, session_model: str | None) -> ModelId | None:
    if request.model is None:
        return None
    provider = session_model.partition("/")[0] if session_model else None
    return call.app.directory.parse(request.model, provider)


@contextlib.contextmanager
def _two_ways_on(call: Call) -> Iterator[None]:
    """A ProviderNotReady from within says how to go on: configure, or rehearse; what it has said is not repeated."""
    try:
        yield
    except ProviderNotReady as error:
        raise ProviderNotReady(f"{error} {_ways_after(str(error), call)}") from None


def _ways_after(said: str, call: Call) -> str:
    config = str(call.app.home / "config.json")
    rehearse = f"{call.place.prefix} rehearse."
    if config in said:
        return f"Or try everything without a provider: {rehearse}"
    key = "" if _KEY_VARIABLE in said else f" and put its key into {_KEY_VARIABLE}"
    return f"Configure a provider in {config}{key}, or try everything without one: {rehearse}"
