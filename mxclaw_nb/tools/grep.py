"""grep: lines that match a regular expression."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, Field

from ..files import Folder
from ..protocol import CallPreview, Risk, ToolContext, ToolFailure, ToolResult
from ..workspace import Place, Workspace, quoted
from .common import Arguments, Hidden, counted, human_size, name_below, on_thread, preview_reading, workspace_of
from .encodings import SAMPLE, detect
from .kinds import kind_of_binary
from .output import boundary_after, boundary_before
from .search.confirm import Line, LineReader
from .search.dialect import DialectError, Expression, translate
from .search.engine import Query, Search, SearchFailed, SearchTimedOut, find_ripgrep
from .search.patterns import Glob, PatternError

MOST_MATCHES = 100
LINE_LENGTH = 500  # characters
TIME_LIMIT_S = 20.0
_BEFORE = 120  # characters of a long line that are shown before its match
_LONGEST_PATTERN = 10_000


class GrepArguments(Arguments):
    pattern: str = Field(
        min_length=1,
        max_length=_LONGEST_PATTERN,
        description="A regular expression, matched line by line (no look-around, no back-references).",
    )
    path: str = Field(default=".", description="The folder or file to search, relative to the workspace.")
    glob: str | None = Field(
        default=None,
        description="Search only files whose path below `path` matches, for example `*.py` (in any folder), "
        "`src/**/*.ts`, or `!*.min.js` for all others.",
    )
    ignore_case: bool = Field(default=False, description="Whether upper and lower case are the same.")


class Grep:
    """Matching lines as ``path:line:text`` in the order of the paths."""

    name = "grep"
    description = (
        "Search file contents in the workspace by a regular expression. Gives at most 100 lines as `path:line:text`, "
        "sorted by path. Hidden files are searched; binary files, .git, and what .gitignore excludes are not."
    )
    risk: Risk = "read"
    concurrency_safe = True
    arguments: type[BaseModel] = GrepArguments

    def __init__(self, *, ripgrep: bool = True, time_limit_s: float = TIME_LIMIT_S) -> None:
        """``ripgrep`` false means the own matcher even where ripgrep is installed."""
        self._ripgrep = ripgrep
        self._time_limit_s = time_limit_s

    async def preview(self, arguments: GrepArguments, context: ToolContext) -> CallPreview:
        """Where would be searched. Raises ToolFailure for a path that may not be read."""
        preview = await preview_reading(self.name, arguments.path, context)
        where = preview.summary.removeprefix(f"{self.name} ")
        return replace(preview, summary=f"{self.name} {quoted(arguments.pattern)} in {where}")

    async def run(self, arguments: GrepArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
        """The lines. Raises ToolFailure: bad pattern, binary file, or the time is over."""
        call = _Call(arguments, context, self._time_limit_s, ripgrep=self._ripgrep)
        return await on_thread(call.run, on_cancel=call.stop)


class _Call:
    """One search, from arguments to the text that the model reads."""

    def __init__(self, arguments: GrepArguments, context: ToolContext, time_limit_s: float, *, ripgrep: bool) -> None:
        self._arguments = arguments
        self._context = context
        self._time_limit_s = time_limit_s
        self._use_ripgrep = ripgrep
        self._search: Search | None = None
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        if self._search is not None:
            self._search.stop()

    def run(self) -> ToolResult:
        arguments = self._arguments
        workspace = workspace_of(self._context)
        place = workspace.resolve_for_reading(arguments.path)
        if _unprintable(arguments.pattern):
            raise ToolFailure("The pattern holds half a character, which text files do not.")
        try:
            expression = translate(arguments.pattern)
        except DialectError as error:
            raise ToolFailure(f"The pattern {quoted(arguments.pattern)} cannot be searched for: {error}") from None
        filters = _Filter(arguments.glob, Hidden.of(self._context.settings.deny, "grep"), workspace, place)
        try:
            if place.path.is_dir():
                with workspace.open_folder(place) as folder:
                    found = self._run(expression, filters, workspace, place, folder)
            else:
                descriptor = _open_text(workspace, place, filters)
                try:
                    found = self._run(expression, filters, workspace, place, descriptor)
                finally:
                    os.close(descriptor)
        except SearchTimedOut:
            raise ToolFailure(
                f"The search was stopped after {self._time_limit_s:g} s. Use a simpler pattern, or a narrower path."
            ) from None
        except SearchFailed as error:
            raise ToolFailure(f"The pattern {quoted(arguments.pattern)} cannot be searched for: {error}") from None
        except OSError as error:
            raise ToolFailure(f"The search could not be run: {error.strerror or error}.") from None
        return ToolResult(_report(arguments, place, found, filters))

    def _run(
        self, expression: Expression, filters: _Filter, workspace: Workspace, place: Place, where: Folder | int
    ) -> _Found:
        query = Query(
            expression, self._arguments.ignore_case, filters.include, filters.exclude, workspace.home,
            filters.keep, MOST_MATCHES, self._time_limit_s,
        )  # fmt: skip
        self._search = Search(query, where, ripgrep=find_ripgrep(workspace.root) if self._use_ripgrep else None)
        if self._stopped:
            self._search.stop()
        outcome = self._search.run()
        own_file = (lambda _found: False) if place.output else workspace.is_own_file
        own_folder = (lambda _key: False) if place.output else workspace.is_refused
        lines, gone = [], 0
        with LineReader(where, refused_file=own_file, refused_folder=own_folder) as reader:
            for match in outcome.matches:
                line = reader.line(match)
                if line is None:
                    gone += 1
                else:
                    lines.append(f"{name_below(place, match.path)}:{match.line}:{_cut(line)}")
        return _Found(lines, gone, outcome.more, outcome.unreadable)


@dataclass(frozen=True, slots=True)
class _Found:
    """The lines to show; ``gone`` counts matches that were not there any more when they were read again."""

    lines: list[str]
    gone: int
    more: bool
    unreadable: bool


class _Filter:
    """Which of the files below a place count: by the glob argument, by deny rules, and never our own."""

    def __init__(self, glob: str | None, hidden: Hidden, workspace: Workspace, place: Place) -> None:
        negated = glob is not None and glob.startswith("!")
        self.include = None if negated or not glob else glob
        self.exclude = glob[1:] if negated and glob else None
        try:
            self._include = Glob(self.include, any_depth=True) if self.include else None
            self._exclude = Glob(self.exclude, any_depth=True) if self.exclude else None
        except PatternError as error:
            raise ToolFailure(f"The glob {quoted(glob or '')} cannot be used: {error}.") from None
        self._rules, self._workspace, self._top = hidden, workspace, place.path
        self._may_be_ours = not place.output and workspace.may_hold_home(place.path)
        self._known: dict[str, bool] = {}
        self.hidden = 0  # files with matches that a deny rule keeps back

    def keep(self, path: str) -> bool:
        """Whether the file at ``path`` below the place counts."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._decide(path)
        return known

    def _decide(self, path: str) -> bool:
        full = self._top / path if path else self._top
        if self.denied(full):
            self.hidden += 1
            return False
        if not path:
            return True
        if self._may_be_ours and self._workspace.names_home(full):
            return False
        if self._include is not None and not self._include.matches(path):
            return False
        names = path.split("/")
        ways = ("/".join(names[: end + 1]) for end in range(len(names)))
        return self._exclude is None or not any(self._exclude.matches(way) for way in ways)

    def denied(self, path: Path) -> bool:
        """Whether a deny rule forbids reading the file."""
        return self._rules.hides(str(path))


def _open_text(workspace: Workspace, place: Place, filters: _Filter) -> int:
    """A descriptor at the start of the file to search. Raises ToolFailure if it is binary or a rule forbids it."""
    if filters.denied(place.path):
        raise ToolFailure(f"A deny rule of the user forbids reading {place.shown}.", status="denied")
    descriptor = workspace.open_file(place)
    try:
        sample = os.read(descriptor, SAMPLE)
        if detect(sample, whole=False) is None:
            kind = f"{kind_of_binary(sample)}, {human_size(os.fstat(descriptor).st_size)}"
            raise ToolFailure(f"{place.shown} is a binary file ({kind}); only text is searched.")
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _report(arguments: GrepArguments, place: Place, found: _Found, filters: _Filter) -> str:
    notes = []
    if found.more:
        notes.append(f"{MOST_MATCHES} matches shown, there are more: narrow the pattern, the path or the glob")
    if filters.hidden:
        notes.append(f"{counted(filters.hidden, 'file')} kept back by a deny rule")
    if found.unreadable:
        notes.append("something could not be read and was not searched")
    if found.gone:
        notes.append(
            f"{counted(found.gone, 'match')} left out: the file may not be read, or was changed during the search"
        )
    if not found.lines:
        if place.path.is_dir():
            notes.append("not searched: binary files and what .gitignore excludes")
        within = f" in files matching {quoted(arguments.glob)}" if arguments.glob else ""
        tail = f" ({'; '.join(notes)})" if notes else ""
        return f"No matches for {quoted(arguments.pattern)} in {place.shown}{within}{tail}."
    return "\n".join(found.lines) + (f"\n({'; '.join(notes)})" if notes else "")


def _cut(line: Line) -> str:
    """The matching line as text, cut around the match if it is long."""
    text = line.data.decode("utf-8", "backslashreplace").replace("\0", "␀")
    if line.starts and line.ends and len(text) <= LINE_LENGTH:
        return text
    match_start = len(line.data[: line.column].decode("utf-8", "backslashreplace"))
    start = boundary_after(text, max(0, match_start - _BEFORE))
    before = "" if line.starts and not start else "…"
    room = LINE_LENGTH - len(before)
    if line.ends and len(text) - start <= room:
        return before + text[start:]
    return f"{before}{text[start : boundary_before(text, min(len(text), start + room - 1))]}…"


def _unprintable(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
