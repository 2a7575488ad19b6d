"""Running the search: ripgrep where it is installed, else our own matcher; the same matches in the same order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mxclaw_nb.files import Folder

from . import matcher
from .dialect import Expression
from .patterns import Glob

_MOST_UNSORTED = 1_000  # matches read before the search starts again by path, to stop after the first hundred
_CHUNK = 1 << 16
_END_S = 1.0
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from mxclaw_nb.tools.search.matcher import main; main()"


class SearchFailed(Exception):
    """The search could not be done; the text says why, as the engine put it."""


class SearchTimedOut(Exception):
    """The search did not end within its time."""


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches. ``path`` is relative to the searched folder (empty for a single file).

    ``column`` (bytes, from 0) is where the match starts, ``offset`` where the line does in the file; ``text`` is at
    most its first 4,096 bytes.
    """

    path: str
    line: int
    column: int
    offset: int
    text: bytes

    def without_column(self) -> Match:
        """The same output read as if ripgrep had left the column out, as it does at the end of a file."""
        text = b"%d:%b" % (self.offset, self.text)
        return Match(self.path, self.line, len(text), self.column + 1, text)


@dataclass(frozen=True, slots=True)
class Query:
    """What to search for. ``keep`` says which paths (below the searched folder, empty for a file) count.

    ``include`` and ``exclude`` are glob patterns that ``keep`` knows too; here they only spare work.
    """

    expression: Expression
    ignore_case: bool
    include: str | None
    exclude: str | None
    home: Path
    keep: Callable[[str], bool]
    limit: int
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """``more``: there are more matches than the limit. ``unreadable``: something could not be read."""

    matches: list[Match]
    more: bool
    unreadable: bool


class Search:
    """One search of an open folder, or of a file whose descriptor is at its start.

    To be run on a thread; ``stop`` ends it from another one at once. ``ripgrep`` None means our own matcher.
    """

    def __init__(self, query: Query, where: Folder | int, *, ripgrep: str | None) -> None:
        self._query = query
        self._folder = where if isinstance(where, Folder) else None
        self._file = where if isinstance(where, int) else None
        self._ripgrep = ripgrep
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = self._timed_out = False

    def stop(self) -> None:
        """Kill the child, whether it runs already or is about to start. Thread-safe."""
        with self._guard:
            self._stopped = True
            if self._child is not None:
                self._child.kill()

    def run(self) -> Outcome:
        """The first matches by path and line. Raises SearchFailed, SearchTimedOut or OSError."""
        timer = threading.Timer(self._query.time_limit_s, self._time_is_over)
        timer.name, timer.daemon = "mxclaw-search-timer", True
        timer.start()
        try:
            sorts = self._ripgrep is None or self._folder is None
            outcome = self._once(in_order=sorts)
            if outcome is None:  # too many to sort: let the engine go by path, and stop it early
                outcome = self._once(in_order=True)
            assert outcome is not None
            return outcome
        finally:
            timer.cancel()
            timer.join(_END_S)

    def _time_is_over(self) -> None:
        self._timed_out = True
        self.stop()

    def _once(self, *, in_order: bool) -> Outcome | None:
        """One run of the engine; None if it must be run again in order."""
        query, found = self._query, list[Match]()
        child = self._start(in_order=in_order)
        complete = True
        try:
            assert child.stdout is not None and child.stderr is not None
            for match in _parse(child.stdout.fileno()):
                if not query.keep(match.path):
                    continue
                found.append(match)
                if len(found) > (query.limit if in_order else _MOST_UNSORTED):
                    complete = False
                    break
            if complete:
                message = child.stderr.read(_CHUNK).decode("utf-8", "replace")
                status = child.wait()
        finally:
            child.kill()
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
            child.wait(_END_S)
            with self._guard:
                self._child = None
        if self._timed_out:
            raise SearchTimedOut
        if not complete and not in_order:
            return None
        if complete:
            _refuse_failure(status, message)
        found.sort(key=lambda match: (match.path.split("/"), match.line))
        return Outcome(found[: query.limit], len(found) > query.limit, complete and status == 2)

    def _start(self, *, in_order: bool) -> subprocess.Popen[bytes]:
        command = self._own_command() if self._ripgrep is None else self._ripgrep_command(in_order=in_order)
        where: str | None = None
        if self._folder is not None:
            pinned = self._folder.descriptor is not None and os.path.isdir("/proc/self/fd")
            where = f"/proc/self/fd/{self._folder.descriptor}" if pinned else str(self._folder.path)
        with self._guard:
            if self._stopped:
                raise SearchTimedOut if self._timed_out else SearchFailed("it was stopped")
            self._child = subprocess.Popen(
                command, cwd=where, env=_environment(), bufsize=0, start_new_session=True,
                stdin=subprocess.DEVNULL if self._file is None else self._file,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            return self._child

    def _ripgrep_command(self, *, in_order: bool) -> list[str]:
        query = self._query
        command = [
            self._ripgrep or "rg", "--no-config", "--color=never", "--no-heading", "--with-filename", "--null",
            "--line-number", "--column", "--byte-offset", "--no-messages", "--crlf", "--hidden", "--no-require-git",
            "--no-ignore-global", "--no-ignore-dot", f"--max-count={matcher.MOST_IN_A_FILE}",
            f"--max-columns={matcher.LONGEST_SHOWN}", "--max-columns-preview", "--glob=!.git",
        ]  # fmt: skip
        if query.ignore_case:
            command.append("--ignore-case")
        if in_order and self._folder is not None:
            command.append("--sort=path")
        if self._folder is not None:
            if query.home.is_relative_to(self._folder.path) and query.home != self._folder.path:
                home = query.home.relative_to(self._folder.path).as_posix()
                command.append(f"--iglob=!/{_literal(home)}")
            if query.exclude and _is_simple(query.exclude):
                command.append(f"--glob=!{query.exclude}")
            command += _types(query.include)
        return [*command, f"--regexp={query.expression.ripgrep}", "--", "./" if self._file is None else "-"]

    def _own_command(self) -> list[str]:
        query = self._query
        try:
            found = os.stat(query.home)
            home = (found.st_dev, found.st_ino)
        except OSError:
            home = None
        asked = matcher.request(
            query.expression.python, ignore_case=query.ignore_case, include=query.include, exclude=query.exclude,
            home=home, limit_s=int(query.time_limit_s) + 2, standard_input=self._file is not None,
        )  # fmt: skip
        package = str(Path(__file__).resolve().parents[3])
        return [sys.executable, "-I", "-S", "-c", _BOOT, package, asked]


def find_ripgrep(root: Path) -> str | None:
    """Where ripgrep is, unless what PATH offers could have been put there by a tool (inside the workspace)."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    found = shutil.which("rg", path=os.pathsep.join(folders)) if folders else None
    return None if found is None or Path(os.path.realpath(found)).is_relative_to(root) else found


def _environment() -> dict[str, str]:
    kept = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP")
    return {"LC_ALL": "C.UTF-8", **{name: os.environ[name] for name in kept if name in os.environ}}


def _types(include: str | None) -> list[str]:
    """Options that spare files whose name the pattern cannot match. ``--glob`` would bring ignored ones back."""
    names = [each.rsplit("/", 1)[-1] for each in Glob(include).alternatives] if include else []
    if not names or any(name in ("", "**") or not _is_simple(name) for name in names):
        return []
    return [*(f"--type-add=mxclaw:{name.replace(':', '?')}" for name in names), "--type=mxclaw"]


def _is_simple(pattern: str) -> bool:
    """Whether ripgrep is sure to read the pattern as we do."""
    return not set(pattern) & set("[]{}\\,")


def _literal(path: str) -> str:
    return "".join(f"\\{character}" if character in "*?[]{}\\!" else character for character in path)


def _parse(descriptor: int) -> Iterator[Match]:
    """The matches in what the engine prints: ``path NUL line:column:offset:text``, as they arrive."""
    left = b""
    while True:
        data = os.read(descriptor, _CHUNK)
        left += data
        start = 0
        while True:
            nul = left.find(b"\0", start)
            end = left.find(b"\n", nul) if nul >= 0 else -1
            if end < 0:
                break
            path = left[start:nul]
            if b"\n./" in path:  # a warning went before
                path = b"./" + path.rpartition(b"\n./")[2]
            name = "" if path == b"<stdin>" else os.fsdecode(path.removeprefix(b"./"))
            yield _match(name, left[nul + 1 : end].removesuffix(b"\r"))
            start = end + 1
        left = left[start:]
        if not data:
            return


def _match(path: str, found: bytes) -> Match:
    """``line:column:offset:text``; ripgrep leaves the column out when the match is empty at the end of the file."""
    line, column, rest = found.split(b":", 2)
    offset, colon, text = rest.partition(b":")
    if not colon or not offset.isdigit() or int(column) - 1 > len(text) < matcher.LONGEST_SHOWN:
        return Match(path, int(line), len(rest), int(column), rest)
    return Match(path, int(line), int(column) - 1, int(offset), text)


def _refuse_failure(status: int, message: str) -> None:
    """Raise SearchFailed for what went wrong as a whole; a file that could not be read is no failure."""
    message = "\n".join(line for line in message.splitlines() if "(os error" not in line).strip()
    if status in (2, 3) and message:
        raise SearchFailed(message)
    if status not in (0, 1, 2):
        raise SearchFailed(message or f"the search ended with status {status}")
