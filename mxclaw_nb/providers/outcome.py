"""How one try to get a reply ended, when it did not end with one."""

from __future__ import annotations

from dataclasses import dataclass

from mxclaw_nb.protocol import EmptyStream, ModelError

from .errors import Failure
from .reply import ReplyReader
from .retry import RetryPolicy, worth_a_retry
from .target import Target


@dataclass(frozen=True, slots=True)
class Broken:
    """Why there is no completion. ``what`` is one clause for a notice; ``again``: asking again may help."""

    error: ModelError
    what: str
    again: bool = False

    @property
    def retry_after(self) -> float | None:
        """Seconds that the provider wants us to wait."""
        return self.error.retry_after


def refused(failure: Failure, target: Target, policy: RetryPolicy, retry_after: float | None = None) -> Broken:
    """The provider said no, by a status or in the stream."""
    hint = ""
    if retry_after is not None and retry_after > policy.longest_wait_s:
        hint = f"It may be asked again in {policy.when(retry_after)}."
    error = target.error(failure, retry_after=retry_after, hint=hint)
    status = f"status {failure.status}" if failure.status else "an error"
    return Broken(error, f"Provider {target.name} answered with {status}", worth_a_retry(failure))


def unreachable(reason: str, target: Target, *, again: bool = True, remedy: str = "") -> Broken:
    """No answer could be had."""
    what = f"Provider {target.name} at {target.base.origin} could not be reached ({target.clean(reason)})"
    remedy = remedy or "Check the address, the network and that the server runs."
    return Broken(ModelError(f"{what}. {remedy}"), what, again)


def cut_off(reason: str, target: Target, *, again: bool = True) -> Broken:
    """The answer began and broke off."""
    what = f"The reply of provider {target.name} broke off ({target.clean(reason)})"
    return Broken(ModelError(f"{what}. Try again."), what, again)


def too_slow(complaint: str, target: Target) -> Broken:
    """The provider took longer than the settings allow."""
    what = f"Provider {target.name} {complaint}"
    return Broken(ModelError(f"{what}. Try again, or raise the setting if it is only slow."), what)


def judged(reader: ReplyReader, broken: Broken | None, target: Target, policy: RetryPolicy) -> Broken | None:
    """What is wrong with a body that was read as far as it goes (``broken``: how reading it ended); None if nothing.

    A connection that breaks after the provider ended its reply has broken nothing.
    """
    if reader.failure is not None:
        if reader.foreign:
            what = (
                f"Provider {target.name} answered with content of type {target.clean(reader.failure.message)} "
                "instead of a completion"
            )
            return Broken(ModelError(f"{what}. Check the base URL; is it missing a /v1?", status=200), what)
        return refused(reader.failure, target, policy)
    if reader.finished and not reader.folder.empty:
        return None
    if broken is not None and not (reader.finished and reader.folder.empty):
        return broken
    if reader.folder.empty:
        what = f"Provider {target.name} sent an empty reply"
        return Broken(
            EmptyStream(f"{what}. Try again; if it stays so, the request may be more than it can take."), what
        )
    return cut_off("the stream ended without its end mark", target, again=False)
