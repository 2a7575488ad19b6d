"""The one tree of errors. Each has a stable ``code``, an exit status and a sentence that says what to do.

    MxclawError
    ├── UsageError                 usage               2   the words of a command or option are wrong
    │   ├── ConfigurationError     configuration       2   a file or variable that configures us is wrong
    │   └── ProviderNotReady       provider_not_ready  2   no model can be asked yet
    ├── NotFound                   not_found           1   no such session, approval, turn, ...
    ├── AlreadyAnswered            already_answered    1   somebody else answered this approval first
    ├── NotForAgents               refused             1   a command that an agent runs tried to act for the person
    ├── SessionBusy                session_busy        4   this process runs a turn of that session
    ├── LeaseHeld                  lease_held          4   another process does
    ├── LeaseLost                  lease_lost          1   another process took the session over
    ├── StoreError                 store_error         1   the database cannot be read or written
    ├── ModelError                 provider_error      1   the provider refused or failed
    │   ├── ContextOverflow        context_overflow    1   the request is longer than the model's window
    │   ├── StreamInterrupted      stream_interrupted  1   the stream broke after something was shown
    │   └── EmptyStream            empty_stream        1   the provider sent nothing
    ├── ToolFailure                tool_failure        1   a tool cannot do it; the model reads why
    └── TurnFailed                 (the turn's code)       how a front end reports a failed turn

No message may contain a secret. Messages are for people: what happened, then what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .model import Completion

EXIT_COMPLETED, EXIT_FAILED, EXIT_USAGE, EXIT_MAX_ITERATIONS, EXIT_BUSY = 0, 1, 2, 3, 4
EXIT_CANCELLED, EXIT_TERMINATED = 130, 143


class MxclawError(Exception):
    """Base of everything we raise on purpose. ``str(error)`` is the sentence, ``error.code`` its stable name."""

    code: str = "error"
    exit_status: int = EXIT_FAILED

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(MxclawError):
    code = "usage"
    exit_status = EXIT_USAGE


class ConfigurationError(UsageError):
    code = "configuration"


class ProviderNotReady(UsageError):
    code = "provider_not_ready"


class NotFound(MxclawError):
    code = "not_found"


class AlreadyAnswered(MxclawError):
    code = "already_answered"


class NotForAgents(MxclawError):
    """A command that an agent runs tried to do what only the person may: answer, stop, configure, start turns."""

    code = "refused"


class SessionBusy(MxclawError):
    code = "session_busy"
    exit_status = EXIT_BUSY


class LeaseHeld(MxclawError):
    code = "lease_held"
    exit_status = EXIT_BUSY


class LeaseLost(MxclawError):
    code = "lease_lost"


class StoreError(MxclawError):
    code = "store_error"


class ModelError(MxclawError):
    """The provider refused or failed. ``status`` is the HTTP status if there was one.

    ``retry_after`` is the number of seconds after which the provider says it may be asked again.
    """

    code = "provider_error"

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ContextOverflow(ModelError):
    code = "context_overflow"


class StreamInterrupted(ModelError):
    """The stream broke after something was shown; ``partial`` is what had arrived (``incomplete`` is true)."""

    code = "stream_interrupted"

    def __init__(self, message: str, partial: Completion, *, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.partial = partial


class EmptyStream(ModelError):
    code = "empty_stream"


class ToolFailure(MxclawError):
    """A tool cannot do what was asked. The sentence goes to the model as the call's result.

    ``status`` is the status of that result: ``error``, or ``denied`` where a limit refused it.
    """

    code = "tool_failure"

    def __init__(self, message: str, *, status: str = "error") -> None:
        super().__init__(message)
        self.status = status


class TurnFailed(MxclawError):
    """A turn that did not complete, as a front end reports it: the code and message of ``turn.failed``."""

    _EXIT: ClassVar[dict[str, int]] = {"max_iterations": EXIT_MAX_ITERATIONS, "cancelled": EXIT_CANCELLED}

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.exit_status = self._EXIT.get(code, EXIT_FAILED)
