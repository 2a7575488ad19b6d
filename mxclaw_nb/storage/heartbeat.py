"""The thread of a running turn: it renews the lease and passes on what others say to the turn."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future

from mxclaw_nb.protocol import (
    ApprovalAnswered,
    LeaseGone,
    LeaseLost,
    MxclawError,
    StopRequested,
    StoreError,
    TurnSignal,
)

from . import approvals, leases
from .database import Connection
from .identity import Clock
from .leases import LeaseTiming
from .readers import Readers
from .workers import start_thread

RETRY_S = 1.0
_LOG = logging.getLogger(__name__)


class Heartbeat:
    """Lives from ``start`` to ``stop``, or until the lease is lost.

    ``renew`` hands a renewal to the writer and returns at once. ``on_signal`` is called on this thread.
    """

    def __init__(
        self,
        session: int,
        token: str,
        *,
        readers: Readers,
        renew: Callable[[], Future[None]],
        on_signal: Callable[[TurnSignal], None],
        timing: LeaseTiming,
        clock: Clock,
    ) -> None:
        self._session, self._token = session, token
        self._readers, self._renew, self._on_signal = readers, renew, on_signal
        self._timing, self._clock = timing, clock
        self.ended: Future[None] = Future()
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._lost: str | None = None
        self._renewed_at = self._tried_at = 0.0
        self._renewal: Future[None] | None = None
        self._stop_told = False
        self._answers_told: set[str] = set()

    def start(self) -> None:
        """Start the thread. Raises StoreError if there can be none."""
        try:
            self._thread = start_thread(self._run, "mxclaw-lease")
        except StoreError:
            self.ended.set_result(None)
            raise

    def wake(self) -> None:
        """Look for signals now. From any thread."""
        self._wake.set()

    def lost(self, reason: str) -> None:
        """The writer met the fence: tell the turn and end. From any thread."""
        self._lost = reason
        self._wake.set()

    def end(self) -> None:
        """Ask the thread to end; it does so as soon as it is not inside ``on_signal``. From any thread."""
        self._ending = True
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait, at most so long, until the thread has ended (after ``end``)."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._beat()
        finally:
            self.ended.set_result(None)

    def _beat(self) -> None:
        self._renewed_at = self._tried_at = self._clock()
        while not self._ending:
            try:
                with self._readers.lent() as connection:
                    seen = -1
                    while not self._ending:
                        if self._lost is not None:
                            self._tell(LeaseGone(self._lost))
                            return
                        version = connection.raw.execute("PRAGMA data_version").fetchone()[0]
                        if self._wake.is_set() or version != seen:
                            self._wake.clear()
                            seen = version
                            if not self._look(connection):
                                continue
                        self._renew_if_due()
                        self._wake.wait(self._timing.poll_s)
                        if not connection.is_current():
                            break
            except (MxclawError, sqlite3.Error) as error:
                _LOG.debug("The lease's thread could not look at the store: %s", error)
                self._wake.wait(self._timing.poll_s)

    def _renew_if_due(self) -> None:
        """Renew in time; again soon, and not only when the next one is due, if that failed."""
        now = self._clock()
        if now - self._renewed_at < self._timing.renew_s or now - self._tried_at < min(RETRY_S, self._timing.renew_s):
            return
        if self._renewal is None or self._renewal.done():
            self._tried_at = now
            self._renewal = self._renew()
            self._renewal.add_done_callback(self._renewed)

    def _renewed(self, renewal: Future[None]) -> None:
        error = renewal.exception()
        if isinstance(error, LeaseLost):
            self.lost(error.message)
        elif error is None:
            self._renewed_at = self._clock()

    def _look(self, connection: Connection) -> bool:
        """Pass on what is new; False if the lease is gone."""
        with connection.snapshot() as snapshot:
            try:
                leases.require(snapshot, self._session, self._token)
            except LeaseLost as error:
                if not self._ending:
                    self._lost = error.message
                return False
            stopper = leases.stop_requested_by(snapshot, self._session, self._token)
            answered = approvals.answered(snapshot, self._session, self._token)
        if stopper is not None and not self._stop_told:
            self._stop_told = True
            self._tell(StopRequested(stopper))
        for approval in answered:
            if approval.id not in self._answers_told and approval.answer is not None:
                self._answers_told.add(approval.id)
                self._tell(ApprovalAnswered(approval.id, approval.answer, approval.by or ""))
        return True

    def _tell(self, signal: TurnSignal) -> None:
        if self._ending:
            return
        try:
            self._on_signal(signal)
        except Exception:  # noqa: BLE001 - the lease must outlive a listener's fault
            _LOG.exception("A turn failed to take a signal")
