"""AgentCore: one place that starts turns, answers approvals and stops what runs. Knows no screen and no SQL."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import weakref
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Self

from mxclaw_nb.files import run_in_thread
from mxclaw_nb.process import inside_agent_command
from mxclaw_nb.protocol import (
    Answer,
    Approval,
    ApprovalAnswered,
    Event,
    NotForAgents,
    ProviderNotReady,
    Session,
    SessionBusy,
    UsageError,
    UserInput,
)

from .options import Services, TurnOptions
from .turn import Turn, check_prompt

_END_S = 5.0
"""How long closing a stream waits for its turn to end; every step of that end has a smaller bound of its own."""


class AgentCore:
    """The agent of one process. May be used from several event loops; each turn belongs to the loop it started on."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns: dict[str, Turn | None] = {}
        self._guard = threading.Lock()

    def submit_turn(self, session_id: str, user: UserInput, options: TurnOptions | None = None) -> TurnStream:
        """A turn in ``session_id``, as an async iterator of its events.

        The turn starts when the first event is asked for (or ``start`` is awaited), and runs in a task of its own.
        A refusal is raised there, not an event: UsageError, NotFound, ProviderNotReady, SessionBusy, LeaseHeld.
        Closing or dropping the iterator cancels the turn. A slow consumer gets merged deltas.
        """
        return TurnStream(self, session_id, user, options or TurnOptions())

    async def answer(self, request_id: str, answer: Answer, by: str) -> Approval:
        """Answer an approval, of this process or another. The first answer wins.

        Raises NotFound, AlreadyAnswered which says who was first, or NotForAgents in a command that an agent runs.
        """
        if await run_in_thread(inside_agent_command):
            raise NotForAgents("A command that the agent runs cannot answer for the person.")
        row = await self._services.store.answer_approval(request_id, answer, by)
        turn = self._turns.get(row.session_id)
        if turn is not None:
            turn.signal(ApprovalAnswered(row.id, answer, by))
        return row

    async def stop(self, session_id: str, by: str) -> bool:
        """Ask the turn that runs in a session, here or in another process, to stop. False if none runs."""
        turn = self._turns.get(session_id)
        if turn is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: it is over
                turn.loop.call_soon_threadsafe(turn.cancel, "cancelled", f"The turn was stopped ({by}).")
                return True
        return await self._services.store.request_stop(session_id, by)

    @property
    def running(self) -> Mapping[str, str]:
        """The turns that run in this process: turn id by session id."""
        return {session_id: turn.id for session_id, turn in self._turns.items() if turn is not None}

    def check(self, user: UserInput, options: TurnOptions, *, session_model: str | None) -> None:
        """Refuse a turn that could not be started whatever the session does: for callers that first make a session.

        Raises UsageError (nothing asked, limits that are none, an unknown price) or ProviderNotReady.
        """
        check_prompt(user)
        if options.max_iterations is not None and options.max_iterations < 1:
            raise UsageError("A turn needs at least one round: --max-iterations must be 1 or more.")
        for name, limit in (("--timeout", options.timeout_s), ("--max-cost", options.max_cost)):
            if limit is not None and not (math.isfinite(limit) and limit >= 0):
                raise UsageError(f"{name} must be a number that is not negative, and {limit} is none.")
        model = options.model or self._services.resolve_model(session_model)
        missing = self._services.ready(model)
        if missing is not None:
            raise ProviderNotReady(missing)
        if options.max_cost is not None and not self._services.provider.price_known(model):
            raise UsageError(f"The price of {model} is not known, so --max-cost cannot be kept. Leave it out.")

    async def _start(self, session_id: str, user: UserInput, options: TurnOptions) -> Turn:
        session = await self._services.store.session(session_id)
        self.check(user, options, session_model=session.model)
        self._claim(session.id)
        try:
            turn = self._launch(session, user, options)
        except BaseException:
            del self._turns[session.id]
            raise
        try:
            await asyncio.shield(turn.started)
        except asyncio.CancelledError:
            turn.cancel()
            await asyncio.wait({turn.task}, timeout=_END_S)
            raise
        return turn

    def _claim(self, session_id: str) -> None:
        """Make sure that no other turn of this process, on whatever loop, runs in the session."""
        with self._guard:
            if session_id in self._turns:
                running = self._turns[session_id]
                if running is None or not running.loop.is_closed():
                    raise SessionBusy(
                        f"Session {session_id} already runs a turn in this process. Wait for it, or stop it with "
                        f"%mxclaw stop {session_id}."
                    )
            self._turns[session_id] = None

    def _launch(self, session: Session, user: UserInput, options: TurnOptions) -> Turn:
        turn = Turn(self._services, session, user, options)
        self._turns[session.id] = turn
        turn.task.add_done_callback(lambda _task: self._forget(session.id, turn))
        return turn

    def _forget(self, session_id: str, turn: Turn) -> None:
        with self._guard:
            if self._turns.get(session_id) is turn:
                del self._turns[session_id]


class TurnStream:
    """The events of one turn. Iterate it once, on one loop; close it (``async with``) or drop it to cancel the turn."""

    def __init__(self, core: AgentCore, session_id: str, user: UserInput, options: TurnOptions) -> None:
        self._core = core
        self._session_id = session_id
        self._user = user
        self._options = options
        self._turn: Turn | None = None

    @property
    def turn_id(self) -> str | None:
        """The turn's id once it was started."""
        return self._turn.id if self._turn is not None else None

    async def start(self) -> None:
        """Start the turn now, so that a refusal is raised here. Later calls do nothing."""
        if self._turn is None:
            turn = self._turn = await self._core._start(self._session_id, self._user, self._options)
            weakref.finalize(self, _abandon, turn).atexit = False

    def cancel(self) -> None:
        """Ask the turn to end; go on iterating to see how it does. Safe from any thread."""
        if self._turn is not None:
            _abandon(self._turn)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        await self.start()
        assert self._turn is not None
        event = await self._turn.channel.get()
        if event is None:
            await asyncio.wait({self._turn.task}, timeout=_END_S)  # so that the session is free when the events end
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Cancel the turn if it still runs and wait until it has ended."""
        if self._turn is not None and not self._turn.task.done():
            self._turn.cancel()
            await asyncio.wait({self._turn.task}, timeout=_END_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _abandon(turn: Turn) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the turn is over
        turn.loop.call_soon_threadsafe(turn.cancel)
