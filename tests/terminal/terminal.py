"""A terminal for tests: a program under a pseudo-terminal, and the screen that a person would see."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence

import pexpect
import pyte

WAIT_S = 20.0


class Terminal:
    """A program in a terminal of ``columns`` by ``rows``; everything it printed is also in ``raw``."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        columns: int = 100,
        rows: int = 40,
        environment: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        wanted = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(environment or {})}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            if name not in (environment or {}):
                wanted.pop(name, None)
        self.process = pexpect.spawn(
            arguments[0], list(arguments[1:]), dimensions=(rows, columns), env=wanted, cwd=cwd, timeout=WAIT_S
        )
        self.screen.write_process_input = self.process.send  # a real terminal answers when asked where its cursor is

    @classmethod
    def python(cls, *arguments: str, **options: object) -> Terminal:
        """A terminal that runs this interpreter."""
        return cls([sys.executable, *arguments], **options)  # type: ignore[arg-type]

    # -- what a person does

    def press(self, keys: str) -> None:
        self.process.send(keys)

    def press_until(self, key: str, text: str) -> None:
        """Press a key until the screen shows this text: one that is read together with an earlier one is ignored."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.text() and time.monotonic() < deadline:
            self.press(key)
            self._read(0.3)
        self.wait_for(text)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    # -- what a person sees

    def _read(self, timeout_s: float) -> bool:
        try:
            data = self.process.read_nonblocking(65536, timeout_s)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def text(self) -> str:
        """All lines, those that have scrolled away included."""
        above = ["".join(line[column].data for column in sorted(line)).rstrip() for line in self.screen.history.top]
        return "\n".join([*above, *(line.rstrip() for line in self.screen.display)]).rstrip()

    def last_line(self) -> str:
        return self.text().rsplit("\n", 1)[-1]

    def wait_for(self, text: str, *, times: int = 1, timeout_s: float = WAIT_S) -> str:
        """Wait until the screen shows this text so many times; returns everything it shows."""
        deadline = time.monotonic() + timeout_s
        while self.text().count(text) < times:
            alive = self._read(0.05)
            if self.text().count(text) >= times:
                break
            if not alive or time.monotonic() > deadline:
                raise AssertionError(f"the terminal does not show {text!r}, but:\n{self.text()}")
        return self.text()

    def wait_until_gone(self, text: str, *, timeout_s: float = WAIT_S) -> str:
        """Wait until the screen does not show this text any more."""
        deadline = time.monotonic() + timeout_s
        while text in self.text():
            if not self._read(0.05) or time.monotonic() > deadline:
                raise AssertionError(f"the terminal still shows {text!r}:\n{self.text()}")
        return self.text()

    def wait_for_end(self, *, timeout_s: float = WAIT_S) -> int:
        """Wait until the program has ended; returns its exit status, or minus the signal that ended it."""
        deadline = time.monotonic() + timeout_s
        while self._read(0.05):
            if time.monotonic() > deadline:
                raise AssertionError(f"the program still runs after {timeout_s:g} s:\n{self.text()}")
        self.process.close()
        return self.process.exitstatus if self.process.exitstatus is not None else -(self.process.signalstatus or 0)

    def close(self) -> None:
        with contextlib.suppress(pexpect.ExceptionPexpect, OSError):
            self.process.close(force=True)
