"""One running turn: the query loop. See ``docs/architecture.md`` for its steps and invariants."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

from mxclaw_nb.context import build_view, system_prompt
from mxclaw_nb.protocol import (
    ApprovalAnswered,
    Completion,
    Event,
    FailureCode,
    LeaseGone,
    LeaseLost,
    Message,
    MessageCompleted,
    MessageDelta,
    Mode,
    ModelError,
    ModelId,
    ModelRequest,
    MxclawError,
    Notice,
    ProviderNotice,
    ReasoningDelta,
    ReasoningDeltaEvent,
    Session,
    SessionState,
    StopRequested,
    StreamInterrupted,
    TextDelta,
    ToolSpec,
    TurnFailed,
    TurnSignal,
    TurnStarted,
    TurnWriter,
    Usage,
    UsageError,
    UsageEvent,
    UserInput,
    WireToolCall,
    new_id,
    tool_spec,
)
from mxclaw_nb.text import encodable

from .approvals import Approvals
from .arguments import clipped
from .bounded import finish
from .calls import CallRunner
from .channel import Channel
from .emitter import Emitter, Stamp
from .ending import MESSAGES, Ending, Failed, failure_code, in_words, last_event
from .naming import CallNames
from .options import Services, TurnOptions

_log = logging.getLogger(__name__)


class Turn:
    """Runs one turn in a task of its own on the loop that started it, and ends it cleanly whatever happens."""

    def __init__(self, services: Services, session: Session, user: UserInput, options: TurnOptions) -> None:
        self.id = new_id("t")
        self.session = session
        self.channel = Channel()
        self.loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self.loop.create_future()
        self.model: ModelId = options.model or services.resolve_model(session.model)
        self._services = services
        self._user = user
        self._options = options
        self._settings = services.settings()
        self._messages: list[Message] = []
        self._approvals: Approvals | None = None
        self._calls: CallRunner | None = None
        self._names = CallNames()
        self._stop: FailureCode | None = None
        self._stop_message: str | None = None
        self._partial: tuple[str, list[str]] | None = None
        self._cost: float = 0.0
        self._specs: Sequence[ToolSpec] = tuple(tool_spec(tool) for tool in services.tools.values())
        self.task = self.loop.create_task(self._main(), name=f"mxclaw turn {self.id}")

    def cancel(self, code: FailureCode = "cancelled", message: str | None = None) -> None:
        """Ask the turn to end; the first reason counts. On the turn's loop only; returns at once."""
        if self._stop is None and not self.task.done():
            self._stop, self._stop_message = code, message
            self.task.cancel()

    def signal(self, signal: TurnSignal) -> None:
        """Take a signal from the store; may be called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the turn is over
            self.loop.call_soon_threadsafe(self._on_signal, signal)

    def _on_signal(self, signal: TurnSignal) -> None:
        if isinstance(signal, ApprovalAnswered):
            if self._approvals is not None:
                self._approvals.answered(signal.request_id, signal.answer, signal.by)
        elif isinstance(signal, StopRequested):
            self.cancel("cancelled", f"The turn was stopped ({signal.by}).")
        elif isinstance(signal, LeaseGone):
            self.cancel("lease_lost")

    async def _main(self) -> None:
        try:
            writer = await self._acquire()
        except asyncio.CancelledError:
            self._refuse(TurnFailed("cancelled", MESSAGES["cancelled"]))
            return
        except BaseException as error:  # noqa: BLE001 - a refusal is the caller's, whatever it is
            self._refuse(error)
            return
        emitter = Emitter(writer, self.channel)
        if not self.started.done():
            self.started.set_result(None)
        timer = None
        if self._options.timeout_s is not None:
            timer = self.loop.call_later(self._options.timeout_s, self.cancel, "timeout")
        try:
            ending = await self._guarded(writer, emitter)
        finally:
            if timer is not None:
                timer.cancel()
        end = self.loop.create_task(self._finish(writer, emitter, ending))
        with contextlib.suppress(asyncio.CancelledError):
            await finish(end)

    def _refuse(self, error: BaseException) -> None:
        if not self.started.done():
            self.started.set_exception(error)
            self.started.exception()  # the caller may be gone: do not complain that nobody looked
        self.channel.close()

    async def _acquire(self) -> TurnWriter:
        """Win the lease; when cancelled meanwhile, give it back."""
        winning = self.loop.create_task(self._services.store.acquire(self.session.id, self.id, on_signal=self.signal))
        try:
            return await asyncio.shield(winning)
        except asyncio.CancelledError:
            await asyncio.wait({winning})
            if not winning.cancelled() and winning.exception() is None:
                await winning.result().release(state="idle")
            raise

    async def _guarded(self, writer: TurnWriter, emitter: Emitter) -> Ending:
        """The loop, with every way out turned into an ending."""
        try:
            return await self._rounds(writer, emitter)
        except asyncio.CancelledError:
            code = self._stop or "cancelled"
            state: SessionState = "idle" if code == "cancelled" else "failed"
            return Ending(state, self._stop_message or MESSAGES[code], code)
        except Failed as failed:
            return Ending("failed", str(failed), failed.code, failed.retry_after)
        except LeaseLost as error:
            return Ending("failed", str(error), "lease_lost")
        except ModelError as error:
            return Ending("failed", str(error), failure_code(error), error.retry_after)
        except MxclawError as error:
            return Ending("failed", str(error), failure_code(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours must still end the turn and free the session
            _log.exception("turn %s failed", self.id)
            return Ending("failed", in_words(error), "error")

    async def _rounds(self, writer: TurnWriter, emitter: Emitter) -> Ending:
        mode = self._options.mode or self.session.mode
        grants = await self._begin(emitter, mode)
        finished = await self._services.store.finished_calls(self.session.id)
        self._approvals = Approvals(
            writer,
            emitter,
            timeout_s=self._settings.approval_timeout_s,
            can_answer=self._options.can_answer,
        )
        self._calls = CallRunner(self._services, self.session, mode, emitter, self._approvals, self._messages, grants)
        budget = self._options.max_iterations or self._settings.max_iterations
        asked_again = False
        for _round in range(budget):
            self._go_on_or_end()
            view = build_view(self._messages, finished=finished, has_side_effects=self._has_side_effects)
            for warning in view.warnings if _round == 0 else ():
                self._notice(emitter, "warning", warning)
            completion = await self._ask(emitter, self._calls, view.messages)
            self._go_on_or_end()
            if completion.tool_calls:
                await self._calls.run(self.id)
            elif completion.finish_reason == "tool_calls" and not completion.text.strip() and not asked_again:
                asked_again = True  # it announced calls and sent none: ask once more, never in a loop
            else:
                self._explain(emitter, completion)
                return Ending("idle", completion.text)
        raise Failed(
            "max_iterations",
            f"The turn used up its {budget} round{'s' if budget > 1 else ''} before the model was done. "
            "Say 'continue' to go on, or allow more rounds with --max-iterations.",
        )

    async def _begin(self, emitter: Emitter, mode: Mode) -> frozenset[str]:
        """Load the window, and commit what the user said before the first byte goes to the model."""
        store = self._services.store
        window = await store.window(self.session.id, limit=self._settings.context_window_messages)
        grants = await store.grants(self.session.id)
        self._messages.extend(window.messages)
        self._names = CallNames(call.id for message in window.messages for call in message.tool_calls)
        fresh: list[Message] = []
        if not window.messages:
            fresh.append(Message(role="system", content=system_prompt(self.session.workspace), turn_id=self.id))
        text = encodable(self._user.text)
        fresh.append(Message(role="user", content=text, turn_id=self.id, attachments=self._user.attachments))
        await emitter.commit(
            lambda stamp: [TurnStarted(**stamp(), input=text, model=str(self.model), mode=mode)], messages=fresh
        )
        self._messages.extend(fresh)
        if window.omitted:
            self._notice(
                emitter,
                "info",
                f"The session is long: the model sees its newest messages, not the {window.omitted} oldest.",
            )
        return grants

    def _go_on_or_end(self) -> None:
        """Raise CancelledError if the turn was asked to end, whatever became of the cancellation that said so."""
        if self._stop is not None:
            raise asyncio.CancelledError

    async def _ask(self, emitter: Emitter, calls: CallRunner, view: Sequence[Message]) -> Completion:
        """One request to the model, streamed; its whole reply is committed before this returns."""
        message_id = new_id("m")
        parts: list[str] = []
        self._partial = (message_id, parts)
        request = ModelRequest(self.model, view, self._specs)
        completion: Completion | None = None
        stamp = emitter.stamp
        try:
            async with aclosing(self._services.provider.stream(request)) as stream:
                async for item in stream:
                    if isinstance(item, TextDelta):
                        parts.append(item.text)
                        emitter.emit(MessageDelta(**stamp(), message_id=message_id, delta=item.text))
                    elif isinstance(item, ReasoningDelta):
                        emitter.emit(ReasoningDeltaEvent(**stamp(), message_id=message_id, delta=item.text))
                    elif isinstance(item, ProviderNotice):
                        self._notice(emitter, item.level, item.text)
                    else:
                        completion = item
        except StreamInterrupted as error:
            await self._commit_reply(emitter, calls, message_id, replace(error.partial, tool_calls=()))
            raise
        if completion is None:
            raise Failed("empty_stream", "The provider ended its reply without anything in it. Try again.")
        await self._commit_reply(emitter, calls, message_id, completion)
        limit = self._options.max_cost
        if limit is not None and self._cost > limit:
            raise Failed("max_cost", f"The turn has cost {self._cost:.4f} US dollars, more than its limit of {limit}.")
        return completion

    async def _commit_reply(self, emitter: Emitter, calls: CallRunner, message_id: str, completion: Completion) -> None:
        incomplete = completion.incomplete or completion.finish_reason == "length"
        message = Message(
            role="assistant",
            id=message_id,
            content=encodable(completion.text),
            turn_id=self.id,
            tool_calls=self._names.settle(completion.tool_calls),
            reasoning=encodable(completion.reasoning),
            finish_reason=None if completion.finish_reason is None else clipped(completion.finish_reason),
            incomplete=incomplete,
        )

        def build(stamp: Callable[[], Stamp]) -> Sequence[Event]:
            events: list[Event] = [_message_completed(stamp(), message)]
            if completion.usage is not None:
                events.append(_usage(stamp(), completion.usage))
            return events

        if completion.usage is not None and completion.usage.cost is not None:
            self._cost += completion.usage.cost
        prepared = calls.prepare(message.tool_calls, truncated=completion.finish_reason == "length")

        def written() -> None:
            calls.announce(prepared)
            self._partial = None
            self._messages.append(message)

        await emitter.commit(build, messages=[message], written=written)

    def _explain(self, emitter: Emitter, completion: Completion) -> None:
        if completion.finish_reason == "length":
            self._notice(emitter, "warning", "The reply was cut off at the model's output limit.")
        elif not completion.text.strip():
            self._notice(emitter, "warning", "The model returned an empty reply.")

    async def _finish(self, writer: TurnWriter, emitter: Emitter, ending: Ending) -> None:
        """Write the end of the turn, give the lease back and show the last events. Never raises."""
        ends: list[Event] = []
        try:
            messages, ends = self._loose_ends(emitter)
            last = last_event(emitter.stamp(), ending)
            await writer.release(messages=messages, events=[*ends, last], state=ending.state)
        except Exception as error:  # noqa: BLE001 - the session must be freed and the screen told, whatever happens
            _log.exception("the end of turn %s could not be written", self.id)
            if ending.code is None:  # not on disk, so not done
                ending = Ending("failed", f"The end of the turn could not be saved. {in_words(error)}", "error")
            last = last_event(emitter.last_stamp(), ending)
            if not isinstance(error, MxclawError):
                with contextlib.suppress(MxclawError):  # logged above; the lease ends by itself
                    await writer.release(state="failed")
        emitter.show([*ends, last])
        self.channel.close()

    def _loose_ends(self, emitter: Emitter) -> tuple[list[Message], list[Event]]:
        """What the turn leaves open, ended: text that was shown, approvals that wait, calls without a result."""
        messages: list[Message] = []
        events: list[Event] = []
        if self._partial is not None and self._partial[1]:
            message_id, parts = self._partial
            text = encodable("".join(parts))
            partial = Message(role="assistant", id=message_id, content=text, turn_id=self.id, incomplete=True)
            messages.append(partial)
            events.append(_message_completed(emitter.stamp(), partial))
        if self._approvals is not None:
            events.extend(self._approvals.loose_ends())
        if self._calls is not None:
            results, completed = self._calls.loose_ends()
            messages.extend(results)
            events.extend(completed)
        return messages, events

    def _has_side_effects(self, name: str) -> bool:
        tool = self._services.tools.get(name)
        return tool is None or tool.risk != "read"

    def _notice(self, emitter: Emitter, level: Literal["info", "warning"], text: str) -> None:
        emitter.emit(Notice(**emitter.stamp(), level=level, text=text))


def check_prompt(user: UserInput) -> None:
    """Refuse a prompt with nothing in it. Raises UsageError."""
    if not user.text.strip() and not user.attachments:
        raise UsageError("The prompt is empty. Write what the agent should do.")


def _message_completed(stamp: Stamp, message: Message) -> MessageCompleted:
    return MessageCompleted(
        **stamp,
        message_id=message.id,
        text=message.content,
        tool_calls=tuple(
            WireToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in message.tool_calls
        ),
        finish_reason=message.finish_reason,
        incomplete=message.incomplete,
    )


def _usage(stamp: Stamp, usage: Usage) -> UsageEvent:
    return UsageEvent(
        **stamp,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost=usage.cost,
        estimated=usage.estimated,
    )
