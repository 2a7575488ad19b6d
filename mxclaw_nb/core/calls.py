"""The calls of one reply: one call's life, and how a batch of them is run.

Every failure becomes a result that the model can read. Only the end of the turn itself (cancellation, a lost lease,
a store that cannot be written) leaves this module as an exception.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from mxclaw_nb.permissions import decide
from mxclaw_nb.protocol import (
    CallPreview,
    LeaseLost,
    Message,
    Mode,
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
from .arguments import InvalidArguments, parse_arguments, validate_arguments
from .duplicates import DuplicateGuard, call_key
from .emitter import Emitter
from .options import Services

_PARALLEL = 8
_LIVE_OUTPUT_CHARACTERS = 64_000
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


class CallRunner:
    """Runs the tool calls of one turn. ``messages`` grows by one tool message a call, as they are stored."""

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
        self._open: dict[str, ToolCall] = {}
        self._started: dict[str, float] = {}

    async def run(self, turn_id: str, calls: Sequence[ToolCall], *, truncated: bool) -> None:
        """Give every call of a reply its result, stored and shown.

        All read-only, concurrency-safe and valid: in parallel, at most eight at once; else one after the other in
        the order of the reply. ``truncated``: the reply hit the output limit.
        """
        prepared = self._prepare_all(calls, truncated)
        self._open = {item.call.id: item.call for item in prepared}
        parallel = len(prepared) > 1 and all(
            isinstance(item, _Prepared) and item.tool.risk == "read" and item.tool.concurrency_safe for item in prepared
        )
        if not parallel:
            for item in prepared:
                await self._settle(turn_id, item)
            return
        slots = asyncio.Semaphore(_PARALLEL)

        async def one(item: _Prepared | _Refused) -> None:
            async with slots:
                await self._settle(turn_id, item)

        await _all_or_none([asyncio.ensure_future(one(item)) for item in prepared])

    def interrupted(self) -> tuple[list[Message], list[ToolCompleted]]:
        """Results for the calls that the end of the turn leaves without one; each call is given out once."""
        messages: list[Message] = []
        events: list[ToolCompleted] = []
        for call in self._open.values():
            text = NEVER_STARTED
            if call.id in self._started:
                text = INTERRUPTED_NOW + (INTERRUPTED_EFFECTS if self._has_side_effects(call.name) else "")
            result = ToolResult(text, status="interrupted")
            event = self._completed(call, result)
            messages.append(self._message(event.turn_id, call, result))
            events.append(event)
        self._open = {}
        return messages, events

    def _has_side_effects(self, name: str) -> bool:
        tool = self._services.tools.get(name)
        return tool is None or tool.risk != "read"

    def _prepare_all(self, calls: Sequence[ToolCall], truncated: bool) -> list[_Prepared | _Refused]:
        seen: set[str] = set()
        prepared: list[_Prepared | _Refused] = []
        for index, call in enumerate(calls, 1):
            if call.id in seen:
                result = ToolResult("Rejected: a call with the same id stands earlier in this reply.", "duplicate")
                prepared.append(_Refused(_with_free_id(call, seen), result))
            else:
                prepared.append(self._prepare(call, truncated and index == len(calls)))
            seen.add(prepared[-1].call.id)
        return prepared

    def _prepare(self, call: ToolCall, truncated: bool) -> _Prepared | _Refused:
        tool = self._services.tools.get(call.name)
        if tool is None:
            names = ", ".join(self._services.tools)
            return _Refused(
                call, ToolResult(f"There is no tool named {call.name!r}. The tools are: {names}.", "invalid")
            )
        try:
            value = parse_arguments(call.arguments, truncated=truncated)
            arguments = validate_arguments(tool.arguments, value)
        except InvalidArguments as problem:
            return _Refused(call, ToolResult(str(problem), "invalid"))
        return _Prepared(call, tool, arguments, call_key(call.name, value))

    async def _settle(self, turn_id: str, item: _Prepared | _Refused) -> None:
        """Bring one call to its result and commit it."""
        result = item.result if isinstance(item, _Refused) else await self._live(turn_id, item)
        result = _storable(result)
        message = self._message(turn_id, item.call, result)
        self._open.pop(item.call.id, None)
        await self._emitter.commit(lambda _stamp: [self._completed(item.call, result)], messages=[message])
        self._messages.append(message)

    async def _live(self, turn_id: str, item: _Prepared) -> ToolResult:
        """One call's life from the duplicate check to its result."""
        refusal = self._guard.refusal(item.key)
        if refusal:
            return ToolResult(refusal, "duplicate")
        self._guard.begin(item.key)
        context = self._context(turn_id, item.call)
        try:
            preview = await item.tool.preview(item.arguments, context)
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
            result = ToolResult(f"Tool failed: {type(error).__name__}: {error}", "error")
        if result.timed_out or result.status in {"denied", "interrupted"}:
            self._guard.forget(item.key)
        else:
            self._guard.finished(item.key, result.content, side_effects=item.tool.risk != "read")
        return result

    async def _permission(self, item: _Prepared, preview: CallPreview) -> ToolResult | None:
        """None if the call may run, else its denial."""
        verdict = decide(
            PermissionQuery(
                tool=item.call.name,
                risk=item.tool.risk,
                mode=self._mode,
                preview=preview,
                home=str(self._services.home),
                deny=self._services.settings().deny,
                session_allows=frozenset(self._grants),
            )
        )
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
        self._started[item.call.id] = time.monotonic()
        self._emitter.emit(
            ToolStarted(
                **self._emitter.stamp(),
                call_id=item.call.id,
                name=item.call.name,
                arguments=encodable(item.call.arguments),
                summary=preview.summary,
            )
        )
        return await item.tool.run(item.arguments, context, preview)

    def _context(self, turn_id: str, call: ToolCall) -> ToolContext:
        room = _LIVE_OUTPUT_CHARACTERS

        def emit(delta: str) -> None:
            nonlocal room
            if room <= 0 or call.id not in self._open:
                return
            shown = encodable(delta[:room])
            room -= len(shown)
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
        )

    def _completed(self, call: ToolCall, result: ToolResult) -> ToolCompleted:
        started = self._started.get(call.id)
        return ToolCompleted(
            **self._emitter.stamp(),
            call_id=call.id,
            name=call.name,
            status=result.status,
            result=result.content,
            exit_code=result.exit_code,
            duration_ms=0 if started is None else round((time.monotonic() - started) * 1000),
            output_path=result.output_path,
        )

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
        await _cancel_all(tasks)
        raise
    failed = next((task for task in done if not task.cancelled() and task.exception()), None)
    if failed is not None:
        await _cancel_all(tasks)
        failed.result()


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=5)


def _storable(result: ToolResult) -> ToolResult:
    content = encodable(result.content)
    if content is result.content:
        return result
    return ToolResult(content, result.status, result.exit_code, result.output_path, result.timed_out)


def _with_free_id(call: ToolCall, seen: set[str]) -> ToolCall:
    number = 2
    while f"{call.id}-{number}" in seen:
        number += 1
    return ToolCall(f"{call.id}-{number}", call.name, call.arguments)
