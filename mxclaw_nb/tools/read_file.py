"""read_file: some lines of a text file, numbered, whatever its size and encoding."""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections.abc import Iterator

from pydantic import BaseModel, Field

from ..protocol import CallPreview, Risk, ToolContext, ToolFailure, ToolResult
from ..workspace import Place
from .common import Arguments, counted, human_size, on_thread, preview_reading, workspace_of
from .encodings import SAMPLE, Encoding, detect, visible
from .kinds import kind_of_binary
from .output import boundary_before

LINE_LENGTH = 2_000  # characters
PAGE_BYTES = 50 * 1024
_KEPT = LINE_LENGTH + 64  # characters of a line, enough to see whether a cut falls inside a grapheme cluster
_COUNTED = 16 << 20  # bytes of a file up to which all lines are counted for the notice
_TIME_LIMIT_S = 30.0


class ReadFileArguments(Arguments):
    path: str = Field(description="The file, relative to the workspace or absolute inside it.")
    offset: int = Field(default=1, ge=1, description="The first line to show, counted from 1.")
    limit: int = Field(default=2000, ge=1, description="How many lines to show at most.")


class ReadFile:
    """Numbered lines of a text file: at most 2,000 characters a line and 50 KB in all."""

    name = "read_file"
    description = (
        "Read a text file in the workspace. Lines come numbered, as `number<TAB>text`; the number and the tab are not "
        "part of the file. At most 2,000 characters of a line and 50 KB in all are shown; go on with `offset`. "
        "Binary files are refused. Stored outputs of this session may be read by the path that was given with them."
    )
    risk: Risk = "read"
    concurrency_safe = True
    arguments: type[BaseModel] = ReadFileArguments

    async def preview(self, arguments: ReadFileArguments, context: ToolContext) -> CallPreview:
        """What would be read. Raises ToolFailure for a path that may not be read."""
        return await preview_reading(self.name, arguments.path, context)

    async def run(self, arguments: ReadFileArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
        """The page. Raises ToolFailure: no regular file, binary, or the offset lies behind the end."""
        stop = threading.Event()
        return await on_thread(lambda: _read(arguments, context, stop), on_cancel=stop.set)


def _read(arguments: ReadFileArguments, context: ToolContext, stop: threading.Event) -> ToolResult:
    workspace = workspace_of(context)
    place = workspace.resolve_for_reading(arguments.path)
    descriptor = workspace.open_file(place)
    try:
        size = os.fstat(descriptor).st_size
        try:
            sample = os.read(descriptor, SAMPLE)
            encoding = detect(sample, whole=len(sample) >= size)
            if encoding is None:
                raise ToolFailure(
                    f"{place.shown} is a binary file ({kind_of_binary(sample)}, {human_size(size)}); only text can be "
                    "shown. Use a command or Python to look into it."
                )
            if len(sample) == len(encoding.mark):
                return ToolResult(f"{place.shown} is empty ({size} bytes).")
            return _page(arguments, place, encoding, _decoded(descriptor, sample, encoding, place, stop), size)
        except OSError as error:
            raise ToolFailure(f"{place.shown} cannot be read: {error.strerror or error}.") from None
    finally:
        os.close(descriptor)


def _decoded(descriptor: int, sample: bytes, encoding: Encoding, place: Place, stop: threading.Event) -> Iterator[str]:
    """The text of the file, piece by piece."""
    decoder = codecs.getincrementaldecoder(encoding.name)(encoding.errors)
    deadline = time.monotonic() + _TIME_LIMIT_S
    data = sample[len(encoding.mark) :]
    while True:
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise ToolFailure(
                f"{place.shown} is not all {encoding.title}: {error.reason}. Use a command or Python to look into it."
            ) from None
        if text:
            yield text
        if not data:
            return
        if stop.is_set() or time.monotonic() > deadline:
            raise ToolFailure(f"Reading {place.shown} took longer than {_TIME_LIMIT_S:.0f} s. Use grep, or a command.")
        data = os.read(descriptor, SAMPLE)


def _page(
    arguments: ReadFileArguments, place: Place, encoding: Encoding, pieces: Iterator[str], size: int
) -> ToolResult:
    first = arguments.offset
    lines = _lines(_after(pieces, first - 1, place))
    shown: list[str] = []
    room, cut, strange, full = PAGE_BYTES, 0, False, False
    for text in lines:
        seen = visible(text[: boundary_before(text, LINE_LENGTH)] + "…" if len(text) > LINE_LENGTH else text)
        line = f"{first + len(shown):>6}\t{seen}"
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            full = True
            break
        shown.append(line)
        cut += len(text) > LINE_LENGTH
        strange = strange or seen.removesuffix("…") != text[: len(seen.removesuffix("…"))]
        if len(shown) == arguments.limit:
            break
    if not shown:
        raise _behind_the_end(first, first - 1, place)
    counting = size <= _COUNTED
    rest = (1 if full else 0) + sum(1 for _ in lines) if counting else 0
    last = first + len(shown) - 1
    notes = []
    if rest or (not counting and (full or len(shown) == arguments.limit)):
        total = f" of {last + rest:,}" if counting else ""
        which = f"line {first:,}" if last == first else f"lines {first:,}-{last:,}"
        notes.append(f"{which}{total} shown; go on with offset={last + 1}")
    if cut:
        notes.append(f"{counted(cut, 'line')} cut at {LINE_LENGTH:,} characters")
    if encoding.name != "utf-8" or encoding.mark:
        guess = ", guessed" if encoding.guessed and encoding.sure else ", a mere guess" if encoding.guessed else ""
        notes.append(f"encoding: {encoding.title}{guess}")
    if strange:
        notes.append("bytes that are no text are shown as \\xNN or ␀")
    return ToolResult("\n".join(shown) + (f"\n({'; '.join(notes)})" if notes else ""))


def _after(pieces: Iterator[str], skipped: int, place: Place) -> Iterator[str]:
    """The pieces of the text after so many lines. Raises ToolFailure if there are fewer."""
    passed, begun = 0, False
    for text in pieces:
        here = text.count("\n")
        if passed + here < skipped:
            passed, begun = passed + here, not text.endswith("\n")
            continue
        start = 0
        for _ in range(skipped - passed):
            start = text.index("\n", start) + 1
        yield text[start:]
        yield from pieces
        return
    raise _behind_the_end(skipped + 1, passed + begun, place)


def _behind_the_end(offset: int, lines: int, place: Place) -> ToolFailure:
    return ToolFailure(f"offset {offset} is behind the end: {place.shown} has {counted(lines, 'line')}.")


def _lines(pieces: Iterator[str]) -> Iterator[str]:
    """Each line without its ending, and no more of it than tells where to cut; one that is longer comes at once."""
    part, given, begun = "", False, False
    for text in pieces:
        start = 0
        while True:
            end = text.find("\n", start)
            stop = len(text) if end < 0 else end
            if not given:
                part += text[start : min(stop, start + _KEPT - len(part))]
                if len(part) == _KEPT:
                    yield part
                    given = True
            if end < 0:
                begun = begun or stop > start
                break
            if not given:
                yield part.removesuffix("\r")
            part, given, begun = "", False, False
            start = end + 1
    if begun and not given:
        yield part
