"""The session store: the port's methods, each a read on a reader's thread or a transaction on the writer's."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from mxclaw_nb.protocol import (
    AlreadyAnswered,
    Answer,
    Approval,
    Event,
    LeaseHeld,
    Message,
    Mode,
    SearchHit,
    Session,
    SessionChanges,
    SessionState,
    SessionStore,
    ToolCompleted,
    TurnSignal,
    TurnWriter,
    Window,
    now_iso,
)
from mxclaw_nb.text import encodable

from . import approvals, event_log, leases, removal, search, sessions, transcript
from .database import Connection, Database
from .heartbeat import Heartbeat
from .identity import Clock, ProcessIdentity, system_clock, this_process
from .leases import LeaseTiming, Observer
from .readers import Readers
from .turn import SqliteTurnWriter, reserve_block
from .workers import IDLE_S, JOIN_S, carried_through, run_into, settled, start_thread
from .writer import Writer

T = TypeVar("T")


class SqliteStore(SessionStore):
    """``protocol.SessionStore`` in one SQLite file. Thread-safe; usable from several event loops at once.

    Its threads start on first need and end about a second after the last one; ``close`` ends them at once.
    """

    def __init__(
        self,
        database: Database,
        connection: Connection,
        *,
        timing: LeaseTiming,
        clock: Clock,
        identity: ProcessIdentity,
    ) -> None:
        """Use ``open``."""
        self._database, self._timing, self._clock = database, timing, clock
        self._writer = Writer(database, connection, idle_s=IDLE_S)
        self._readers = Readers(database, idle_s=IDLE_S)
        self._given_up: set[str] = set()
        self._observer = Observer(identity, clock, given_up=self._given_up)
        self._turns: dict[str, SqliteTurnWriter] = {}
        self._turns_lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._outputs = database.home / "outputs"

    @classmethod
    def open(
        cls,
        home: Path,
        *,
        on_warning: Callable[[str], None] | None = None,
        timing: LeaseTiming | None = None,
        clock: Clock = system_clock,
        identity: ProcessIdentity | None = None,
    ) -> SqliteStore:
        """Open the store of the home folder, making both if they are missing. Quick; starts no thread.

        ``on_warning`` is told, from any thread, what the person should know: a damaged file that was set aside, a
        disk that bears no write-ahead log. Raises StoreError if the store cannot be used.
        """
        database = Database(home, on_warning)
        connection = database.writer()
        store = cls(
            database, connection, timing=timing or LeaseTiming(), clock=clock, identity=identity or this_process()
        )
        with connection.snapshot() as snapshot:
            interrupted = removal.unfinished(snapshot)
        if interrupted:
            store._writer.soon(store._go_on_removing, 0.0)
        return store

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await settled(self._readers.submit(work))

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def job(connection: Connection) -> T:
            with connection.transaction(durable=True) as raw:
                return work(raw)

        return await carried_through(self._writer.submit(job))

    def _runs(self, connection: sqlite3.Connection) -> sessions.RunsNow:
        return lambda no: leases.live(connection, no, self._observer) is not None

    def _holds(self, connection: sqlite3.Connection) -> approvals.HoldsLease:
        def holds(no: int, token: str) -> bool:
            lease = leases.live(connection, no, self._observer)
            return lease is not None and lease.token == token

        return holds

    # Sessions

    async def create_session(
        self,
        *,
        workspace: str,
        model: str | None = None,
        mode: Mode = "ask",
        title: str = "",
        notebook: str | None = None,
    ) -> Session:
        """A new, empty session."""

        def create(raw: sqlite3.Connection) -> Session:
            no = sessions.create(raw, workspace=workspace, model=model, mode=mode, title=title, notebook=notebook)
            return sessions.read(raw, no, self._runs(raw))

        return await self._write(create)

    async def session(self, session_id: str) -> Session:
        """By id or by a unique prefix of it. Raises NotFound (naming the nearest) or UsageError if it is ambiguous."""
        return await self._read(lambda raw: sessions.find(raw, session_id, self._runs(raw)))

    async def session_for_notebook(self, notebook: str) -> Session | None:
        """The session that this notebook used last."""
        return await self._read(lambda raw: sessions.of_notebook(raw, notebook, self._runs(raw)))

    async def sessions(self, *, limit: int = 50) -> Sequence[Session]:
        """The newest (last used) first."""
        return await self._read(lambda raw: sessions.newest(raw, limit, self._runs(raw)))

    async def update_session(self, session_id: str, changes: SessionChanges) -> Session:
        """Change what is not None. Raises NotFound."""

        def update(raw: sqlite3.Connection) -> Session:
            no = sessions.number_of(raw, session_id)
            sessions.update(raw, no, changes)
            return sessions.read(raw, no, self._runs(raw))

        return await self._write(update)

    async def fork_session(self, session_id: str, *, title: str = "") -> Session:
        """A new session that shares all messages so far (the rows are not copied). Raises NotFound."""

        def fork(raw: sqlite3.Connection) -> Session:
            no = sessions.fork(raw, sessions.number_of(raw, session_id), title)
            return sessions.read(raw, no, self._runs(raw))

        return await self._write(fork)

    async def delete_session(self, session_id: str) -> None:
        """Remove rows, index entries and outputs; what forks still show stays until they go too.

        Raises NotFound, or LeaseHeld while a turn is running.
        """

        def depart(raw: sqlite3.Connection) -> None:
            no = sessions.number_of(raw, session_id)
            self._refuse_if_running(raw, no, session_id)
            sessions.depart(raw, no)

        await self._write(depart)
        while await settled(self._writer.submit(lambda connection: removal.free_piece(connection, self._outputs))):
            pass

    def _go_on_removing(self) -> None:
        """A removal that the end of a program interrupted, piece by piece, on the writer's thread."""
        if removal.free_piece(self._writer.connection(), self._outputs):
            self._writer.soon(self._go_on_removing, 0.01)

    def _refuse_if_running(self, raw: sqlite3.Connection, no: int, session_id: str) -> None:
        lease = leases.find(raw, no)
        if lease is not None and (standing := leases.standing(raw, lease, self._observer)).live:
            raise leases.held(lease, session_id, standing)

    # What was said and done

    async def search(self, query: str, *, limit: int = 20) -> Sequence[SearchHit]:
        """Messages that hold all the words of the query, the newest first; any text is a valid query."""
        return await self._read(lambda raw: search.search(raw, query, limit))

    async def window(self, session_id: str, *, limit: int) -> Window:
        """The system message and the newest messages (see ``transcript.window``). Raises NotFound."""
        return await self._read(lambda raw: transcript.window(raw, sessions.number_of(raw, session_id), limit))

    async def messages(self, session_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Message]:
        """Messages with a position greater than ``after``, in order. Raises NotFound."""
        after = min(after, sessions.OPEN_END)
        limit = None if limit is None else max(0, min(limit, sessions.OPEN_END))
        return await self._read(lambda raw: transcript.messages(raw, sessions.number_of(raw, session_id), after, limit))

    async def events(
        self, session_id: str, *, after: int = 0, limit: int = 1000, turn_id: str | None = None
    ) -> Sequence[Event]:
        """Committed events with a sequence number greater than ``after``, in order. Raises NotFound."""
        after = min(after, sessions.OPEN_END)
        return await self._read(
            lambda raw: event_log.read(
                raw, sessions.number_of(raw, session_id), after=after, limit=limit, turn_id=turn_id
            )
        )

    async def last_turn_id(self, session_id: str) -> str | None:
        """The latest turn that has left an event. Raises NotFound."""
        return await self._read(lambda raw: event_log.last_turn(raw, sessions.number_of(raw, session_id)))

    async def finished_calls(self, session_id: str) -> Mapping[tuple[str, str], ToolCompleted]:
        """``tool.completed`` events, by (turn id, call id), of calls that have no tool message. Raises NotFound."""
        return await self._read(lambda raw: event_log.finished_calls(raw, sessions.number_of(raw, session_id)))

    async def grants(self, session_id: str) -> frozenset[str]:
        """What the user allowed for this session. Raises NotFound."""

        def read(raw: sqlite3.Connection) -> frozenset[str]:
            no = sessions.number_of(raw, session_id)
            return frozenset(row[0] for row in raw.execute("SELECT allowed FROM grants WHERE session = ?", (no,)))

        return await self._read(read)

    # Turns

    async def acquire(self, session_id: str, turn_id: str, *, on_signal: Callable[[TurnSignal], None]) -> TurnWriter:
        """Win the session's lease and mark it running. Raises NotFound, LeaseHeld, StoreError.

        ``on_signal`` is called from the lease's thread, within 0.2 s of the cause. A cancel that arrives meanwhile
        gives the lease back.
        """
        token = secrets.token_hex(16)
        future = self._writer.submit(lambda connection: self._take(connection, session_id, turn_id, token))
        try:
            session, first, state = await carried_through(future)
        except asyncio.CancelledError:
            if future.exception() is None:
                session, first, state = future.result()
                await self._turn(session_id, turn_id, session, token, first).release(state=state)
            raise
        turn = self._turn(session_id, turn_id, session, token, first)
        turn.heartbeat = Heartbeat(
            session,
            token,
            readers=self._readers,
            renew=lambda: turn.renew(self._clock),
            on_signal=on_signal,
            timing=self._timing,
            clock=self._clock,
        )
        try:
            turn.heartbeat.start()
        except BaseException:
            await turn.release(state=state)
            raise
        with self._turns_lock:
            self._turns = {t: other for t, other in self._turns.items() if not other.over}
            self._turns[token] = turn
        return turn

    def _take(self, connection: Connection, session_id: str, turn_id: str, token: str) -> tuple[int, int, SessionState]:
        """The session's number, the first event number, and the state before."""
        refusal: LeaseHeld | None = None
        with connection.transaction(durable=True) as raw:
            no = sessions.number_of(raw, session_id)
            state = sessions.read(raw, no, self._runs(raw)).state
            lease = leases.find(raw, no)
            if lease is not None:
                standing = leases.standing(raw, lease, self._observer)
                if standing.live:
                    refusal = leases.held(lease, session_id, standing)
                    if not standing.comparable:
                        leases.remember_sighting(raw, lease, self._observer)
                else:
                    leases.release(raw, no, lease.token)
            if refusal is None:
                approvals.cancel_waiting(raw, no)
                leases.take(raw, no, token, encodable(turn_id), self._observer, self._timing)
                first = reserve_block(raw, no)
                raw.execute(
                    "INSERT INTO turns (session, first_sequence, turn_id) VALUES (?, ?, ?)",
                    (no, first, encodable(turn_id)),
                )
                raw.execute("UPDATE sessions SET state = 'running' WHERE no = ?", (no,))
                sessions.touch(raw, no)
        if refusal is not None:
            raise refusal
        return no, first, state

    def _turn(self, session_id: str, turn_id: str, session: int, token: str, first: int) -> SqliteTurnWriter:
        return SqliteTurnWriter(
            session_id=session_id,
            turn_id=turn_id,
            session=session,
            token=token,
            first=first,
            writer=self._writer,
            given_up=self._given_up.add,
            answered=self._wake_turns,
        )

    def _wake_turns(self) -> None:
        """Something was written that a turn of this process may be waiting for."""
        with self._turns_lock:
            turns = list(self._turns.values())
        for turn in turns:
            if turn.heartbeat is not None:
                turn.heartbeat.wake()

    async def request_stop(self, session_id: str, by: str) -> bool:
        """Ask the turn that runs in this session now, in whatever process, to stop. False if none runs."""

        def request(raw: sqlite3.Connection) -> bool:
            lease = leases.live(raw, sessions.number_of(raw, session_id), self._observer)
            if lease is None:
                return False
            leases.request_stop(raw, lease, encodable(by), now_iso())
            return True

        asked = await self._write(request)
        self._wake_turns()
        return asked

    # Approvals

    async def approval(self, request_id: str) -> Approval:
        """By id or unique prefix. Raises NotFound, or UsageError if it is ambiguous."""
        return await self._read(lambda raw: approvals.find(raw, request_id).as_seen(self._holds(raw)))

    async def pending_approvals(self, session_id: str | None = None) -> Sequence[Approval]:
        """Approvals that wait, of turns that still run, the oldest first."""

        def read(raw: sqlite3.Connection) -> Sequence[Approval]:
            no = None if session_id is None else sessions.number_of(raw, session_id)
            return approvals.waiting(raw, no, self._holds(raw))

        return await self._read(read)

    async def answer_approval(self, request_id: str, answer: Answer, by: str) -> Approval:
        """Answer it from anywhere: one compare-and-set. Raises NotFound, AlreadyAnswered (naming who answered), or
        UsageError for an answer that is not offered."""

        def give(raw: sqlite3.Connection) -> tuple[bool, Approval]:
            stored = approvals.find(raw, request_id)
            seen = stored.as_seen(self._holds(raw))
            if seen.answer is not None and stored.approval.answer is None:
                return False, seen
            won = approvals.answer(raw, stored, answer, by)
            return won, approvals.find(raw, stored.approval.id).approval

        won, approval = await self._write(give)
        if not won:
            choice = approval.answer.choice if approval.answer else "deny"
            raise AlreadyAnswered(
                f"Approval {approval.id} was answered before: {choice}, by {approval.by}. Nothing was changed."
            )
        self._wake_turns()
        return approval

    # The end

    async def close(self) -> None:
        """Flush what is queued and end every thread. Idempotent. Leases of turns that still run are left to end."""
        with self._turns_lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
        future: Future[None] = Future()
        thread = start_thread(lambda: run_into(future, self._end), "mxclaw-store-close")
        await carried_through(future)
        thread.join(JOIN_S)

    def _end(self) -> None:
        with self._turns_lock:
            turns = [turn for turn in self._turns.values() if not turn.over]

        def last() -> None:
            for turn in turns:
                turn.flush()

        ended = self._writer.close(last)
        for turn in turns:
            turn.end_heartbeat()
        ended.result(JOIN_S)
        self._writer.join()
        self._readers.close()
