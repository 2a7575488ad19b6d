"""The one writer of a running turn: its numbers, its batches, its commits, each behind the lease's fence."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from operator import attrgetter

from mxclaw_nb.protocol import (
    Answer,
    Approval,
    Event,
    LeaseLost,
    Message,
    NotFound,
    PermissionRequested,
    SessionState,
    StoreError,
    TurnStarted,
    now_iso,
)
from mxclaw_nb.text import encodable

from . import approvals, event_log, leases, sessions, transcript
from .database import Connection
from .heartbeat import Heartbeat
from .workers import carried_through, settled
from .writer import BATCH_S, Writer

BLOCK = 1_000
LARGEST_BLOCK = 16_000  # each further block of a turn is twice the last: a burst waits for the disk a few times only
RETRY_S = 1.0
BACKLOG = 20_000  # events kept in memory while the disk refuses them; beyond it deltas are given up
NUMBERS_WAIT_S = 10.0
SIGNAL_S = 2.0  # how long the end of a turn waits for a listener to take a signal
_sequence = attrgetter("sequence")


class SqliteTurnWriter:
    """``protocol.TurnWriter``. Made by ``SqliteStore.acquire``; ``first`` is the first number of its first block."""

    def __init__(
        self,
        *,
        session_id: str,
        turn_id: str,
        session: int,
        token: str,
        first: int,
        writer: Writer,
        given_up: Callable[[str], None],
        answered: Callable[[], None],
    ) -> None:
        self.session_id, self.turn_id = session_id, turn_id
        self.token = token
        self.heartbeat: Heartbeat | None = None
        self._session, self._writer = session, writer
        self._given_up, self._answered = given_up, answered
        self._numbers = threading.Lock()
        self._first, self._next, self._block = first, first, range(first, first + BLOCK)
        self._reservation: Future[range] | None = None
        self._pending: deque[Event] = deque()
        self._arming = threading.Lock()
        self._armed = False
        self._over = False
        # Of the writer's thread only:
        self._unwritten: list[Event] = []
        self._written = 0
        self._facts: set[int] = set()  # numbers of written events that are no deltas
        self._requests: set[str] = set()
        self._streamed: set[str] = set()
        self._finished: set[str] = set()
        self._model: str | None = None

    # Numbers

    def next_sequence(self) -> int:
        """The next event number. Waits only if a whole block was used up faster than the next could be reserved.

        Raises StoreError if none can be reserved, LeaseLost if the session is no longer ours.
        """
        with self._numbers:
            if self._next >= self._block.stop:
                self._enter_next_block()
            number = self._next
            self._next = number + 1
            half_used = self._block.stop - number <= len(self._block) // 2
            if half_used and self._reservation is None and not self._over:
                self._reservation = self._writer.submit(self._reserve)
            return number

    def _enter_next_block(self) -> None:
        if self._over:
            raise LeaseLost("This turn is over; it has no more event numbers.")
        reservation, self._reservation = self._reservation, None
        if reservation is None or (reservation.done() and reservation.exception() is not None):
            reservation = self._writer.submit(self._reserve)
        try:
            self._block = reservation.result(NUMBERS_WAIT_S)
        except TimeoutError as error:
            raise StoreError("The session store is too slow to number events; try again.") from error
        self._next = self._block.start

    def _reserve(self, connection: Connection) -> range:
        size = min(2 * len(self._block), LARGEST_BLOCK)
        with self._fenced(connection, durable=True) as raw:
            first = reserve_block(raw, self._session, size)
        return range(first, first + size)

    def _number_above(self, last: int) -> int | None:
        """As ``next_sequence`` but above ``last``, and never waiting: None if there is none at hand."""
        if not self._numbers.acquire(blocking=False):
            return None  # whoever holds it may be waiting for a block from this very thread
        try:
            number = max(self._next, last + 1)
            if number >= self._block.stop:
                return None
            self._next = number + 1
            return number
        finally:
            self._numbers.release()

    # Batches

    def append(self, event: Event) -> None:
        """Queue an event for the next batch. Never waits and never raises; after the turn it does nothing."""
        if self._over:
            return
        self._pending.append(event)
        if not self._armed:
            self._arm(BATCH_S)

    def _arm(self, delay: float) -> None:
        with self._arming:
            if self._armed:
                return
            try:
                self._writer.soon(self.flush, delay)
            except StoreError:  # closed, or no thread now: the next commit takes them along
                return
            self._armed = True

    def flush(self) -> None:
        """Write what was appended. On the writer's thread; what cannot be written now is tried again later."""
        with self._arming:
            self._armed = False
        if self._over:
            return
        try:
            self._write(self._writer.connection(), durable=False)
        except LeaseLost:
            return
        except StoreError:
            if len(self._unwritten) > BACKLOG:
                self._unwritten = [event for event in self._unwritten if event_log.source_of_delta(event) is None]
            self._arm(RETRY_S)

    # Commits

    async def commit(
        self,
        *,
        messages: Sequence[Message] = (),
        events: Sequence[Event] = (),
        state: SessionState | None = None,
        request: PermissionRequested | None = None,
        grant: str | None = None,
    ) -> None:
        """Write all this, with everything appended before, in one transaction that survives a power cut.

        A cancel that arrives meanwhile is delivered when the transaction has ended. Raises LeaseLost or StoreError;
        then nothing of it is written, and what was appended stays queued.
        """

        def job(connection: Connection) -> None:
            self._write(
                connection,
                durable=True,
                messages=messages,
                events=events,
                state=state,
                request=request,
                grant=grant,
            )

        await carried_through(self._writer.submit(job))

    async def resolve(self, request_id: str, answer: Answer, by: str) -> Approval:
        """Answer an approval of this turn unless somebody did; returns the row as it then stands."""

        def job(connection: Connection) -> Approval:
            with self._fenced(connection, durable=True) as raw:
                stored = approvals.find(raw, request_id)
                if stored.token != self.token:
                    raise NotFound(f"Approval {request_id!r} is not one of this turn.")
                approvals.answer(raw, stored, answer, by)
                return approvals.find(raw, stored.approval.id).approval

        approval = await carried_through(self._writer.submit(job))
        self._answered()
        return approval

    async def release(
        self, *, messages: Sequence[Message] = (), events: Sequence[Event] = (), state: SessionState
    ) -> None:
        """Write the end of the turn, give the lease back and end the thread. Raises StoreError if the end could not
        be written: the session is then marked failed, or left to the lease's end if even that is impossible."""
        if self._over:
            return
        if self.heartbeat is not None:
            self.heartbeat.end()

        def job(connection: Connection) -> None:
            try:
                self._write(connection, durable=True, messages=messages, events=events, state=state, release=True)
            except StoreError:
                try:
                    self._write(connection, durable=True, state="failed", release=True, bare=True)
                except StoreError:
                    self._given_up(self.token)
                raise
            finally:
                self._over = True

        try:
            await carried_through(self._writer.submit(job))
        except LeaseLost:
            pass
        finally:
            self._over = True
            await self._heartbeat_ended()

    async def _heartbeat_ended(self) -> None:
        if self.heartbeat is not None:
            with contextlib.suppress(TimeoutError):  # it hangs in on_signal; it ends when that returns
                async with asyncio.timeout(SIGNAL_S):
                    await settled(self.heartbeat.ended)
            self.heartbeat.join(0.1)

    @property
    def over(self) -> bool:
        """Whether the turn was released."""
        return self._over

    def end_heartbeat(self) -> None:
        """Stop renewing, as at the end of the program: the lease is left to its end. Blocks, bounded."""
        if self.heartbeat is not None:
            self.heartbeat.end()
            self.heartbeat.join(SIGNAL_S)

    # On the writer's thread

    def renew(self, now: Callable[[], float]) -> Future[None]:
        """Hand a renewal of the lease to the writer; from any thread."""

        def job(connection: Connection) -> None:
            with connection.transaction(durable=False) as raw:
                leases.renew(raw, self._session, self.token, now())

        return self._writer.submit(job)

    def _write(
        self,
        connection: Connection,
        *,
        durable: bool,
        messages: Sequence[Message] = (),
        events: Sequence[Event] = (),
        state: SessionState | None = None,
        request: PermissionRequested | None = None,
        grant: str | None = None,
        release: bool = False,
        bare: bool = False,
    ) -> None:
        """One fenced transaction. Numbers become visible in their order: what was appended earlier goes along, and
        an event that comes after a higher number was written gets a new one."""
        if self._over:
            raise LeaseLost("This turn is over; nothing more can be stored for it.")
        self._unwritten.extend(self._pending.popleft() for _ in range(len(self._pending)))
        if request is not None and request.request_id not in self._requests:
            events = (*events, request)
        batch, late = ([], []) if bare else self._in_order(events)
        if not (batch or durable):
            return
        encoded = event_log.encode(batch)
        rows = [transcript.encode(message) for message in messages]
        finished = self._finished.union(filter(None, map(event_log.source_finished_by, encoded.facts)))
        streamed = self._streamed | encoded.streamed
        with self._fenced(connection, durable=durable) as raw:
            event_log.add(raw, self._session, encoded.runs)
            for event in encoded.facts:
                if isinstance(event, TurnStarted):
                    self._model = encodable(event.model)
                event_log.record(raw, self._session, event, self._model)
            if rows:
                transcript.add(raw, self._session, rows)
            if request is not None:
                approvals.open_request(raw, self._session, self.token, request)
            if grant is not None:
                raw.execute(
                    "INSERT OR IGNORE INTO grants (session, allowed, granted_at) VALUES (?, ?, ?)",
                    (self._session, encodable(grant), now_iso()),
                )
            if state is not None:
                raw.execute("UPDATE sessions SET state = ? WHERE no = ?", (state, self._session))
            if rows or state is not None:
                sessions.touch(raw, self._session)
            if release:
                approvals.cancel_waiting(raw, self._session)
                event_log.drop_deltas(raw, self._session, self._first, frozenset(streamed - finished))
                leases.release(raw, self._session, self.token)
        self._unwritten = [] if release else late
        self._finished, self._streamed = finished, streamed
        if batch:
            self._written = batch[-1].sequence
        for event in encoded.facts:
            self._facts.add(event.sequence)
            if isinstance(event, PermissionRequested):
                self._requests.add(event.request_id)
        if self._unwritten:
            self._arm(BATCH_S)

    def _in_order(self, events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
        """What is to be written now, in order; and what came after a higher number was written and finds no new one."""
        batch: list[Event] = []
        late: list[Event] = []
        last = self._written
        for event in sorted((*self._unwritten, *events), key=_sequence):
            if event.sequence > last:
                batch.append(event)
                last = event.sequence
            elif event.sequence not in self._facts and event not in batch:
                late.append(event)
        while late and (number := self._number_above(last)) is not None:
            batch.append(late.pop(0).model_copy(update={"sequence": number}))
            last = number
        return batch, late

    @contextlib.contextmanager
    def _fenced(self, connection: Connection, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """A write transaction of the turn: the token is checked in it before anything is written."""
        with connection.transaction(durable=durable) as raw:
            self._check_fence(raw)
            yield raw

    def _check_fence(self, raw: sqlite3.Connection) -> None:
        """Raise LeaseLost, and tell the turn, unless the lease is ours in this transaction."""
        try:
            leases.require(raw, self._session, self.token)
        except LeaseLost as error:
            self._pending.clear()
            self._unwritten.clear()
            if self.heartbeat is not None:
                self.heartbeat.lost(error.message)
            raise


def reserve_block(connection: sqlite3.Connection, session: int, size: int = BLOCK) -> int:
    """Reserve the next numbers of a session for good; the first of them."""
    connection.execute("UPDATE sessions SET reserved_sequence = reserved_sequence + ? WHERE no = ?", (size, session))
    row = connection.execute("SELECT reserved_sequence FROM sessions WHERE no = ?", (session,)).fetchone()
    return int(row[0]) - size + 1
