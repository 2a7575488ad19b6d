"""When to ask again, and after how long."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from .errors import Failure

_RETRIED_4XX = frozenset({408, 409, 429})


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most ``tries`` in all; waits of ``first_wait_s``, doubled each time, with up to a quarter more or less.

    A provider that asks for a longer pause gets it, up to ``longest_wait_s``. ``sleep``, ``random`` (0 to 1) and
    ``now`` are there for tests.
    """

    tries: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    now: Callable[[], datetime] = _now

    def wait(self, failed_tries: int, retry_after: float | None) -> float:
        """Seconds to wait after that many failed tries (from 1): what the provider says, never less than our own."""
        backoff: float = self.first_wait_s * 2 ** (failed_tries - 1) * (0.75 + self.random() / 2)
        return max(backoff, retry_after or 0.0)

    def may_retry(self, failed_tries: int, retry_after: float | None) -> bool:
        """Whether there is a try left and the provider does not want a longer pause than we are ready to make."""
        return failed_tries < self.tries and (retry_after or 0.0) <= self.longest_wait_s

    def retry_after(self, headers: Mapping[str, str]) -> float | None:
        """Seconds that the provider asks us to wait (``retry-after-ms``, ``Retry-After`` in seconds or as a date)."""
        milliseconds = _number(headers.get("retry-after-ms", ""))
        if milliseconds is not None:
            return milliseconds / 1000
        text = headers.get("retry-after", "").strip()
        seconds = _number(text)
        if seconds is not None or not text:
            return seconds
        try:
            date = parsedate_to_datetime(text)
        except ValueError:
            return None
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return max((date - self.now()).total_seconds(), 0.0)

    def when(self, retry_after: float) -> str:
        """A waiting time for people: how long, and until when."""
        minutes, seconds = divmod(round(retry_after), 60)
        hours, minutes = divmod(minutes, 60)
        parts = [f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (seconds, "s")) if n] or ["0 s"]
        try:
            until = datetime.fromtimestamp(self.now().timestamp() + retry_after, UTC)
        except (OverflowError, ValueError, OSError):
            return "a very long time"
        return f"{' '.join(parts[:2])} (at {until:%Y-%m-%d %H:%M:%S} UTC)"


def worth_a_retry(failure: Failure) -> bool:
    """Whether the same request may succeed a little later."""
    status = failure.status
    if status is None or failure.quota or failure.overflow:
        return False
    return status in _RETRIED_4XX or status >= 500


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e10 else None
