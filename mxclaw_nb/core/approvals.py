"""Asking a person about one call, durably, and waiting for the first answer from anywhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mxclaw_nb.protocol import (
    Answer,
    CallPreview,
    Detail,
    PermissionRequested,
    PermissionResolved,
    TurnWriter,
    Verdict,
    new_id,
)

from .emitter import Emitter

UNANSWERED = Answer("deny")


@dataclass(slots=True)
class _OpenEnd:
    """A request that was shown and whose answer was not yet."""

    call_id: str
    answer: Answer = UNANSWERED
    by: str = "cancelled"


class Approvals:
    """The approvals of one turn. A request is a row; the answer may come from any process, the first one wins."""

    def __init__(self, writer: TurnWriter, emitter: Emitter, *, timeout_s: float, can_answer: bool) -> None:
        self._writer = writer
        self._emitter = emitter
        self._timeout_s = timeout_s
        self._can_answer = can_answer
        self._waiting: dict[str, asyncio.Future[tuple[Answer, str]]] = {}
        self._open_ends: dict[str, _OpenEnd] = {}
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, call_id: str, name: str, preview: CallPreview, verdict: Verdict) -> tuple[Answer, str]:
        """The answer and who gave it (``nobody`` where nobody can be asked, ``timeout`` after the limit)."""
        async with self._one_at_a_time:
            request_id = new_id("a")
            if not self._can_answer:
                self._emitter.emit(self._requested(request_id, call_id, name, preview, verdict))
                self._emitter.emit(self._resolved(request_id, call_id, UNANSWERED, "nobody"))
                return UNANSWERED, "nobody"
            future: asyncio.Future[tuple[Answer, str]] = asyncio.get_running_loop().create_future()
            self._waiting[request_id] = future
            open_end = _OpenEnd(call_id)
            try:
                await self._emitter.commit(
                    lambda _stamp: [self._requested(request_id, call_id, name, preview, verdict)],
                    written=lambda: self._open_ends.update({request_id: open_end}),
                )
                answer, by = open_end.answer, open_end.by = await self._wait(request_id, future)
            finally:
                del self._waiting[request_id]
            await self._emitter.commit(
                lambda _stamp: [self._resolved(request_id, call_id, answer, by)],
                grant=verdict.grant if answer.choice == "allow_session" else None,
                written=lambda: self._close(request_id),
            )
            return answer, by

    def _close(self, request_id: str) -> None:
        del self._open_ends[request_id]

    def answered(self, request_id: str, answer: Answer, by: str) -> None:
        """The row has its answer: wake whoever waits. Harmless for an unknown or already woken request."""
        future = self._waiting.get(request_id)
        if future is not None and not future.done():
            future.set_result((answer, by))

    def loose_ends(self) -> list[PermissionResolved]:
        """The answer to each request that the end of the turn leaves open: a denial, unless somebody had answered.

        The store denies the rows that still wait.
        """
        return [
            self._resolved(request_id, end.call_id, end.answer, end.by) for request_id, end in self._open_ends.items()
        ]

    async def _wait(self, request_id: str, future: asyncio.Future[tuple[Answer, str]]) -> tuple[Answer, str]:
        done, _ = await asyncio.wait({future}, timeout=self._timeout_s)
        if done:
            return future.result()
        row = await self._writer.resolve(request_id, UNANSWERED, "timeout")
        return row.answer or UNANSWERED, row.by or "timeout"

    def _requested(
        self, request_id: str, call_id: str, name: str, preview: CallPreview, verdict: Verdict
    ) -> PermissionRequested:
        return PermissionRequested(
            **self._emitter.stamp(),
            request_id=request_id,
            call_id=call_id,
            name=name,
            summary=preview.summary,
            detail=Detail(kind=preview.detail_kind, text=preview.detail),
            reason=verdict.reason,
            choices=verdict.choices,
        )

    def _resolved(self, request_id: str, call_id: str, answer: Answer, by: str) -> PermissionResolved:
        return PermissionResolved(
            **self._emitter.stamp(), request_id=request_id, call_id=call_id, answer=answer.choice, by=by
        )
