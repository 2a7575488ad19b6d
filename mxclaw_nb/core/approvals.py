"""Asking a person about one call, durably, and waiting for the first answer from anywhere."""

from __future__ import annotations

import asyncio

from mxclaw_nb.protocol import (
    Answer,
    CallPreview,
    Detail,
    MxclawError,
    PermissionRequested,
    PermissionResolved,
    TurnWriter,
    Verdict,
    new_id,
)

from .emitter import Emitter

UNANSWERED = Answer("deny")


class Approvals:
    """The approvals of one turn. A request is a row; the answer may come from any process, the first one wins."""

    def __init__(self, writer: TurnWriter, emitter: Emitter, *, timeout_s: float, can_answer: bool) -> None:
        self._writer = writer
        self._emitter = emitter
        self._timeout_s = timeout_s
        self._can_answer = can_answer
        self._waiting: dict[str, asyncio.Future[tuple[Answer, str]]] = {}
        self._unresolved: dict[str, str] = {}
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
            self._unresolved[request_id] = call_id
            try:
                await self._open(request_id, call_id, name, preview, verdict)
                answer, by = await self._wait(request_id, future)
            finally:
                del self._waiting[request_id]
            grant = verdict.grant if answer.choice == "allow_session" else None
            await self._emitter.commit(lambda _stamp: [self._resolved(request_id, call_id, answer, by)], grant=grant)
            del self._unresolved[request_id]
            return answer, by

    async def _open(self, request_id: str, call_id: str, name: str, preview: CallPreview, verdict: Verdict) -> None:
        try:
            await self._emitter.commit(lambda _stamp: [self._requested(request_id, call_id, name, preview, verdict)])
        except MxclawError:
            del self._unresolved[request_id]  # nobody has seen it
            raise

    def answered(self, request_id: str, answer: Answer, by: str) -> None:
        """The row has its answer: wake whoever waits. Harmless for an unknown or already woken request."""
        future = self._waiting.get(request_id)
        if future is not None and not future.done():
            future.set_result((answer, by))

    def cancelled_events(self) -> list[PermissionResolved]:
        """One denial for each request that the end of the turn leaves open (the store denies the rows)."""
        return [
            self._resolved(request_id, call_id, UNANSWERED, "cancelled")
            for request_id, call_id in self._unresolved.items()
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
