"""How a cell ends that did not do what was asked: one line, and no traceback of ours."""

from __future__ import annotations

from mxclaw_nb.protocol import TurnFailed

_RED, _RESET = "\x1b[31m", "\x1b[0m"
_INTERRUPTED = f"{_RED}interrupted{_RESET}: nothing of it runs any more."


class TurnInterrupted(KeyboardInterrupt):
    """The turn was interrupted; nothing of it runs any more. A KeyboardInterrupt, so that "Run all" stops."""

    def __init__(self, message: str = "The turn was interrupted; nothing of it is running any more.") -> None:
        super().__init__(message)

    def _render_traceback_(self) -> list[str]:
        return [_INTERRUPTED]


def in_one_line(error: BaseException) -> BaseException:
    """The same error, which IPython will show as one line: its code and its sentence."""
    code = str(getattr(error, "code", "") or type(error).__name__)
    return _shown(error, f"{_RED}{code}{_RESET}: {' '.join(str(error).split())}")


def below_its_record(error: TurnFailed) -> BaseException:
    """The same for a turn whose record has just said how it ended and why: the line does not say it again."""
    if error.code == "cancelled":
        return _shown(error, _INTERRUPTED)
    return _shown(error, f"{_RED}failed{_RESET}: {error.code}, see above.")


def _shown(error: BaseException, line: str) -> BaseException:
    error._render_traceback_ = lambda: [line]  # type: ignore[attr-defined]
    error.__cause__ = None
    error.__suppress_context__ = True
    return error
