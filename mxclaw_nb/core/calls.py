"""The calls of one reply: one call's life, and how a batch of them is run.

Every failure becomes a result that the model can read. Only the end of the turn itself (cancellation, a lost lease,
a store that cannot be written) leaves this module as an exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from mxclaw_nb.files import run_in_thread
from mxclaw_nb.permissions import decide
from mxclaw_nb.protocol import (
    CallPreview,
    LeaseLost,
    Message,
    Mode,
    MxclawError,
    PermissionQuery,
    Session,
    StoreError,
    Tool,
    ToolCall,
    ToolCompleted,
    ToolContext,
    ToolFailure,
    ToolOutput,
    ToolResult,
    ToolStarted,
    ToolStatus,
)
from mxclaw_nb.text import encodable

from .approvals import Approvals
from .arguments import InvalidArguments, clipped, parse_arguments, validate_arguments
from .bounded import cancelled_soon, in_time
from .duplicates import DuplicateGuard, call_key
from .emitter import Emitter
from .options import Services

_log = logging.getLogger(__name__)
_PARALLEL = 8
_LIVE_OUTPUT_CHARACTERS = 64_000
_LONG_COMMAND = 4_000  # characters beyond which a verdict takes longer than the event loop should wait
_BATCH_END_S = 30.0  # each call of a batch has its own, shorter bound
INTERRUPTED_NOW = "The call was interrupted before it returned."
INTERRUPTED_EFFECTS = " What it changed until then is unknown: check before you repeat it."
NEVER_STARTED = "The turn ended before this call was started. Nothing was done."


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A call that may run: its tool, its validated arguments and what makes it the same as another."""

    call: ToolCall
    tool: Tool
    arguments: BaseModel
    key: str


@dataclass(frozen=True, slots=True)
class _Refused:
    """A call that never runs, and why."""

    call: ToolCall
    result: ToolResult


Prepared = _Prepared | _Refused
"""A call of a reply, looked at before the reply is stored."""


@dataclass(slots=True)
class _Open:
    """A call that the model was promised a result for; ``result`` is there before it is stored."""

    call: ToolCall
    started: float | None = None
    result: ToolResult | None = None


class CallRunner:
    """Runs the tool calls of one turn. ``messages`` grows by one tool message a call, as they are stored.

    A reply's calls are announced in the moment in which the reply is stored, so that none of them can be left without
    its result, wherever the turn ends.
    """

    def __init__(
        self,
        services: Services,
        session: Session,
        mode: Mode,
        emitter: Emitter,
        approvals: Approvals,
        messages: list[Message],
        grants: frozenset[str],
    ) -> None:
        self._services = services
        self._session = session
        self._mode = mode
        self._emitter = emitter
        self._approvals = approvals
        self._messages = messages
        self._grants = set(grants)
        self._guard = DuplicateGuard()
        self._prepared: list[Prepared] = []
        self._open: dict[str, _Open] = {}

    def prepare(self, calls: Sequence[ToolCall], *, truncated: bool) -> list[Prepared]:
        """Look up, parse and validate the calls of a reply, whose ids are unique.

        ``truncated``: the reply hit the output limit.
        """
        last = len(calls) - 1
        return [self._prepare(call, truncated and index == last) for index, call in enumerate(calls)]

    def announce(self, prepared: Sequence[Prepared]) -> None:
        """These calls were promised a result: their reply is stored."""
        self._prepared = list(prepared)
        self._open = {item.call.id: _Open(item.call) for item in prepared}

    async def run(self, turn_id: str) -> None:
        """Give every announced call its result, stored and shown.

        All read-only, concurrency-safe and valid: in parallel, at most eight at once; else one after the other in
        the order of the reply.
        """
        prepared, self._prepared = self._prepared, []
        parallel = len(prepared) > 1 and all(
            isinstance(item, _Prepared) and item.tool.risk == "read" and item.tool.concurrency_safe for item in prepared
        )
        if not parallel:
            for item in prepared:
                await self._settle(turn_id, item)
            return
        slots = asyncio.Semaphore(_PARALLEL)

        async def one(item: Prepared) -> None:
            async with slots:
                await self._settle(turn_id, item)

        await _all_or_none([asyncio.ensure_future(one(item)) for item in prepared])

    def loose_ends(self) -> tuple[list[Message], list[ToolCompleted]]:
        """Results for the calls that the end of the turn leaves without one; each call is given out once.

        A call that has run keeps the result that it came to, even if that could not be stored until now.
        """
        messages: list[Message] = []
        events: list[ToolCompleted] = []
        for entry in self._open.values():
            result = entry.result or self._interrupted(entry)
            event = self._completed(entry, result)
            messages.append(self._message(event.turn_id, entry.call, result))
            events.append(event)
        self._open = {}
        return messages, events

    def _interrupted(self, entry: _Open) -> ToolResult:
        if entry.started is None:
            return ToolResult(NEVER_STARTED, "interrupted")
        effects = INTERRUPTED_EFFECTS if self._has_side_effects(entry.call.name) else ""
        return ToolResult(INTERRUPTED_NOW + effects, "interrupted")

    def _has_side_effects(self, name: str) -> bool:
        tool = self._services.tools.get(name)
        return tool is None or tool.risk != "read"

    def _prepare(self, call: ToolCall, truncated: bool) -> Prepared:
        tool = self._services.tools.get(call.name)
        if tool is None:
            names = ", ".join(self._services.tools)
            return _Refused(
                call, ToolResult(f"There is no tool named {clipped(call.name)!r}. The tools are: {names}.", "invalid")
            )
        try:
            value = parse_arguments(call.arguments, truncated=truncated)
            arguments = validate_arguments(tool.arguments, value)
        except InvalidArguments as problem:
            return _Refused(call, ToolResult(str(problem), "invalid"))
        return _Prepared(call, tool, arguments, call_key(call.name, value))

    async def _settle(self, turn_id: str, item: Prepared) -> None:
        """Bring one call to its result and commit it."""
        result = item.result if isinstance(item, _Refused) else await self._live(turn_id, item)
        entry = self._open[item.call.id]
        entry.result = result = self._storable(result)
        message = self._message(turn_id, item.call, result)

        def written() -> None:
            del self._open[item.call.id]
            self._messages.append(message)

        await self._emitter.commit(lambda _stamp: [self._completed(entry, result)], messages=[message], written=written)

    async def _live(self, turn_id: str, item: _Prepared) -> ToolResult:
        """One call's life from the duplicate check to its result."""
        refusal = self._guard.refusal(item.key)
        if refusal:
            return ToolResult(refusal, "duplicate")
        self._guard.begin(item.key)
        context = self._context(turn_id, item.call)
        try:
            preview = await in_time(item.tool.preview(item.arguments, context), f"The preview of {item.call.name}")
            denial = await self._permission(item, preview)
            if denial is not None:
                self._guard.forget(item.key)
                return denial
            result = await self._execute(item, context, preview)
        except ToolFailure as failure:
            status: ToolStatus = "denied" if failure.status == "denied" else "error"
            result = ToolResult(str(failure), status)
        except (LeaseLost, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - a tool's bug is the model's to read, never the screen's
            _log.exception("the tool %s failed", item.call.name)
            result = ToolResult(f"Tool failed: {type(error).__name__}: {clipped(str(error), 2_000)}", "error")
        if result.timed_out or result.status in {"denied", "interrupted"}:
            self._guard.forget(item.key)
        else:
            self._guard.finished(item.key, result.content, side_effects=item.tool.risk != "read")
        return result

    async def _permission(self, item: _Prepared, preview: CallPreview) -> ToolResult | None:
        """None if the call may run, else its denial."""
        query = PermissionQuery(
            tool=item.call.name,
            risk=item.tool.risk,
            mode=self._mode,
            preview=preview,
            home=str(self._services.home),
            deny=self._services.settings().deny,
            session_allows=frozenset(self._grants),
        )
        long = len(preview.command or "") > _LONG_COMMAND
        verdict = await run_in_thread(lambda: decide(query)) if long else decide(query)
        if verdict.decision == "allow":
            return None
        if verdict.decision != "ask":
            return ToolResult(f"Permission denied. {verdict.reason}", "denied")
        answer, by = await self._approvals.ask(item.call.id, item.call.name, preview, verdict)
        if answer.choice == "allow_session" and verdict.grant is not None:
            self._grants.add(verdict.grant)
        if answer.choice != "deny":
            return None
        if by == "nobody":
            return ToolResult(
                f"Permission denied. {verdict.reason} Nobody can be asked here, so the call was not executed.", "denied"
            )
        if by == "timeout":
            return ToolResult("Permission denied: nobody answered in time. The call was not executed.", "denied")
        note = f" They say: {answer.note}" if answer.note.strip() else ""
        return ToolResult(f"Permission denied by the user. The call was not executed.{note}", "denied")

    async def _execute(self, item: _Prepared, context: ToolContext, preview: CallPreview) -> ToolResult:
        self._open[item.call.id].started = time.monotonic()
        self._emitter.emit(
            ToolStarted(
                **self._emitter.stamp(),
                call_id=item.call.id,
                name=item.call.name,
                arguments=item.call.arguments,
                summary=encodable(preview.summary),
            )
        )
        return await in_time(item.tool.run(item.arguments, context, preview), f"The tool {item.call.name}")

    def _context(self, turn_id: str, call: ToolCall) -> ToolContext:
        room = _LIVE_OUTPUT_CHARACTERS

        def emit(delta: str) -> None:
            nonlocal room
            entry = self._open.get(call.id)
            if room <= 0 or entry is None or entry.result is not None:
                return
            shown = self._services.redact(encodable(delta[:room]))
            room -= len(shown)
            with contextlib.suppress(MxclawError):  # no more numbers: whatever is stored next says why
                self._emitter.emit(ToolOutput(**self._emitter.stamp(), call_id=call.id, delta=shown))

        home = self._services.home
        return ToolContext(
            session_id=self._session.id,
            turn_id=turn_id,
            call_id=call.id,
            workspace=Path(self._session.workspace),
            outputs=home / "outputs" / self._session.id,
            home=home,
            settings=self._services.settings(),
            emit=emit,
            redact=self._services.redact,
        )

    def _completed(self, entry: _Open, result: ToolResult) -> ToolCompleted:
        started = entry.started
        return ToolCompleted(
            **self._emitter.stamp(),
            call_id=entry.call.id,
            name=entry.call.name,
            status=result.status,
            result=result.content,
            exit_code=result.exit_code,
            duration_ms=0 if started is None else round((time.monotonic() - started) * 1000),
            output_path=result.output_path,
        )

    def _storable(self, result: ToolResult) -> ToolResult:
        """The result as it may be kept and shown: every character encodable, no key in it."""
        content = self._services.redact(encodable(result.content))
        path = None if result.output_path is None else encodable(result.output_path)
        if content is result.content and path is result.output_path:
            return result
        return replace(result, content=content, output_path=path)

    def _message(self, turn_id: str, call: ToolCall, result: ToolResult) -> Message:
        return Message(
            role="tool",
            content=result.content,
            turn_id=turn_id,
            tool_call_id=call.id,
            name=call.name,
            status=result.status,
        )


async def _all_or_none(tasks: list[asyncio.Task[None]]) -> None:
    """Await all; when one raises, or we are cancelled, cancel the others and wait for them first."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError:
        await cancelled_soon(tasks, _BATCH_END_S)
        raise
    failed = next((task for task in done if not task.cancelled() and task.exception()), None)
    if failed is not None:
        await cancelled_soon(tasks, _BATCH_END_S)
        failed.result()
