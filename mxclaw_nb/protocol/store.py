"""Between core and the session store: rows, the fenced writer of one turn, and the port that storage fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .events import Event, PermissionRequested, ToolCompleted
from .messages import Message
from .permissions import Answer
from .settings import Mode

SessionState = Literal["idle", "running", "failed"]


@dataclass(frozen=True, slots=True)
class Session:
    """A session's row. ``model`` is ``provider/model`` or None for the default; times are UTC, ISO 8601.

    ``notebook`` is the key of the notebook (or kernel) that the session belongs to, None for others. ``cost`` is
    in US dollars, None as soon as one request had no known price.
    """

    id: str
    title: str
    model: str | None
    mode: Mode
    workspace: str
    notebook: str | None
    state: SessionState
    created_at: str
    updated_at: str
    message_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0


@dataclass(frozen=True, slots=True)
class SessionChanges:
    """What to change of a session's row; None leaves a field as it is."""

    title: str | None = None
    model: str | None = None
    mode: Mode | None = None
    workspace: str | None = None
    notebook: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a session that a turn loads: the system message, if any, and the newest messages.

    ``omitted`` counts the messages between the two. The window's start moves in large steps only, so that the
    prompt prefix stays the same from turn to turn; it starts at a user message.
    """

    messages: tuple[Message, ...]
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Approval:
    """A pending or answered approval. ``answer`` is None while it waits; ``by`` says who answered."""

    id: str
    session_id: str
    turn_id: str
    call_id: str
    name: str
    summary: str
    detail_kind: str
    detail: str
    reason: str
    choices: tuple[str, ...]
    created_at: str
    answer: Answer | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that matches, with an excerpt of it."""

    session_id: str
    title: str
    message_id: str
    role: str
    excerpt: str
    created_at: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Another process asks this turn to stop."""

    by: str


@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """An approval of this turn got its answer, here or in another process."""

    request_id: str
    answer: Answer
    by: str


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """The lease was lost; nothing more can be written."""

    reason: str


TurnSignal = StopRequested | ApprovalAnswered | LeaseGone


class TurnWriter(Protocol):
    """The one writer of a running turn: it holds the session's lease, and every write checks its token (fencing).

    Renewal, and the watch for signals from other processes, run on a thread of its own until ``release``.
    Usable from one event loop; ``append`` and ``next_sequence`` from any thread.
    """

    session_id: str
    turn_id: str

    def next_sequence(self) -> int:
        """The next event number; reserves a durable block of 1,000 when the last one is used up."""
        ...

    def append(self, event: Event) -> None:
        """Queue an event for the next batch (20-50 ms, not synced). Never waits and never raises."""
        ...

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

        ``request`` opens an approval; ``grant`` is remembered for the session ("allow for this session").
        Usage events among ``events`` (or appended) are added to the session's totals once.
        Raises LeaseLost if the token is no longer ours (nothing is written) and StoreError for a full or broken disk
        (nothing is written, a later commit may succeed).
        """
        ...

    async def resolve(self, request_id: str, answer: Answer, by: str) -> Approval:
        """Answer an approval of this turn unless somebody did; returns the row as it then stands (first wins)."""
        ...

    async def release(
        self, *, messages: Sequence[Message] = (), events: Sequence[Event] = (), state: SessionState
    ) -> None:
        """Write the end of the turn, give the lease back and end the thread. Pending approvals of the turn
        are denied (``cancelled``). After a lost lease it writes nothing and does not raise."""
        ...


class SessionStore(Protocol):
    """The SQLite store. All methods may be called from any event loop; none blocks it."""

    async def create_session(
        self,
        *,
        workspace: str,
        model: str | None = None,
        mode: Mode = "ask",
        title: str = "",
        notebook: str | None = None,
    ) -> Session: ...

    async def session(self, session_id: str) -> Session:
        """By id or by a unique prefix of it. Raises NotFound (naming the nearest) or UsageError if it is ambiguous."""
        ...

    async def session_for_notebook(self, notebook: str) -> Session | None:
        """The session that this notebook used last."""
        ...

    async def sessions(self, *, limit: int = 50) -> Sequence[Session]:
        """The newest first."""
        ...

    async def update_session(self, session_id: str, changes: SessionChanges) -> Session: ...

    async def fork_session(self, session_id: str, *, title: str = "") -> Session:
        """A new session that shares all messages so far (the rows are not copied)."""
        ...

    async def delete_session(self, session_id: str) -> None:
        """Remove rows, index entries and outputs. Raises LeaseHeld while a turn is running."""
        ...

    async def search(self, query: str, *, limit: int = 20) -> Sequence[SearchHit]:
        """Messages that hold all the words of the query, in any language; any text is a valid query."""
        ...

    async def window(self, session_id: str, *, limit: int) -> Window: ...

    async def messages(self, session_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Message]:
        """Messages with a position greater than ``after``, in order."""
        ...

    async def events(
        self, session_id: str, *, after: int = 0, limit: int = 1000, turn_id: str | None = None
    ) -> Sequence[Event]:
        """Committed events with a sequence number greater than ``after``, in order."""
        ...

    async def last_turn_id(self, session_id: str) -> str | None: ...

    async def finished_calls(self, session_id: str) -> Mapping[tuple[str, str], ToolCompleted]:
        """``tool.completed`` events, by (turn id, call id), of calls that have no tool message."""
        ...

    async def grants(self, session_id: str) -> frozenset[str]:
        """What the user allowed for this session."""
        ...

    async def acquire(self, session_id: str, turn_id: str, *, on_signal: Callable[[TurnSignal], None]) -> TurnWriter:
        """Win the session's lease and mark it running. Raises LeaseHeld, naming holder, host, pid and age.

        ``on_signal`` is called from the lease's thread, within 0.2 s of the cause.
        """
        ...

    async def approval(self, request_id: str) -> Approval:
        """By id or unique prefix. Raises NotFound."""
        ...

    async def pending_approvals(self, session_id: str | None = None) -> Sequence[Approval]:
        """Approvals that wait, of turns that still run."""
        ...

    async def answer_approval(self, request_id: str, answer: Answer, by: str) -> Approval:
        """Answer it from anywhere: one compare-and-set. Raises NotFound or AlreadyAnswered."""
        ...

    async def request_stop(self, session_id: str, by: str) -> bool:
        """Ask the turn that runs in this session, in whatever process, to stop. False if none runs."""
        ...

    async def close(self) -> None:
        """Flush what is queued and end every thread. Idempotent."""
        ...
