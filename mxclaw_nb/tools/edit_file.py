"""edit_file: one exact text in a file for another."""

from __future__ import annotations

from pydantic import BaseModel, Field

from ..protocol import CallPreview, Risk, ToolContext, ToolFailure, ToolResult
from ..workspace import Place, Workspace, quoted
from .changing import LARGEST, Present, check_still_judged, present, replace_file
from .common import Arguments, counted, human_size, on_thread, targets_of, workspace_of
from .diff import unified_diff
from .encodings import Decoded, decode_whole, visible
from .nearest import explain_missing
from .output import boundary_before
from .splicing import NotFound, NotUnique, Spliced, splice

_SNIPPET_LINES = 8
_SNIPPET_LENGTH = 300  # characters of a line


class EditFileArguments(Arguments):
    path: str = Field(description="The file, relative to the workspace or absolute inside it.")
    old: str = Field(description="The exact text to replace, white space included, without line numbers.")
    new: str = Field(description="The text to put in its place; may be empty.")
    replace_all: bool = Field(default=False, description="Replace every occurrence instead of the only one.")


class EditFile:
    """Replaces exact text; all other bytes, the encoding, the line endings and the mode stay as they are."""

    name = "edit_file"
    description = (
        "Replace an exact piece of text in a file of the workspace. `old` must occur exactly once, so take enough "
        "lines around it, or set `replace_all`. Everything else in the file stays as it is, byte by byte; line endings "
        "are taken care of. Read the file first."
    )
    risk: Risk = "write"
    concurrency_safe = False
    arguments: type[BaseModel] = EditFileArguments

    async def preview(self, arguments: EditFileArguments, context: ToolContext) -> CallPreview:
        """The diff. Raises ToolFailure if the edit cannot be made."""
        return await on_thread(lambda: _preview(arguments, context))

    async def run(self, arguments: EditFileArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
        """Make the edit and read it back. Raises ToolFailure, also if the file is not what the preview showed."""
        return await on_thread(lambda: _run(arguments, context, preview))


def _prepare(arguments: EditFileArguments, context: ToolContext) -> tuple[Workspace, Place, Present]:
    if not arguments.old:
        raise ToolFailure("`old` is empty. Give the text to replace, or use write_file for a whole file.")
    workspace = workspace_of(context)
    place = workspace.resolve_for_writing(arguments.path)
    if not place.exists:
        workspace.resolve_for_reading(arguments.path)  # says what is near
    return workspace, place, present(workspace, place)


def _preview(arguments: EditFileArguments, context: ToolContext) -> CallPreview:
    _, place, current = _prepare(arguments, context)
    decoded, spliced = _edit(arguments, place, current)
    return CallPreview(
        f"edit_file {quoted(place.shown)} ({counted(spliced.count, 'place')})",
        unified_diff(place.shown, decoded.text, spliced.text), "diff", targets_of(place),
        fingerprint=current.fingerprint,
    )  # fmt: skip


def _run(arguments: EditFileArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
    workspace, place, current = _prepare(arguments, context)
    check_still_judged(place, current, preview)
    decoded, spliced = _edit(arguments, place, current)
    replace_file(workspace, place, spliced.data, current.fingerprint)
    encoding = decoded.encoding
    guessed = ", a guess" if encoding.guessed else ""
    told = (
        f" The file's encoding, {encoding.title}{guessed}, was kept."
        if encoding.name != "utf-8" or encoding.mark
        else ""
    )
    done = f"Edited {place.shown}: replaced {counted(spliced.count, 'occurrence')}.{told}"
    return ToolResult(f"{done} It now reads:\n{_snippet(spliced)}")


def _edit(arguments: EditFileArguments, place: Place, current: Present) -> tuple[Decoded, Spliced]:
    if not current.exists:
        raise ToolFailure(f"{place.shown} does not exist. Use write_file to make it.")
    if current.data is None:
        raise ToolFailure(f"{place.shown} is larger than the {human_size(LARGEST)} that can be edited. Use a command.")
    decoded = decode_whole(current.data)
    if decoded is None:
        raise ToolFailure(f"{place.shown} is a binary file, or not in the encoding that its first bytes tell.")
    old, new = arguments.old.replace("\r\n", "\n"), arguments.new.replace("\r\n", "\n")
    if old == new:
        only = "" if arguments.old == arguments.new else " but for line endings, which edit_file keeps"
        raise ToolFailure(f"`old` and `new` are the same{only}. Nothing was changed.")
    if not decoded.encoding.sure and not new.isascii():
        raise ToolFailure(
            f"The encoding of {place.shown} cannot be told for sure ({decoded.encoding.title} is a mere guess), so "
            "characters outside ASCII are not put into it. Nothing was changed. Convert the file to UTF-8 first."
        )
    try:
        return decoded, splice(current.data, decoded, old, new, replace_all=arguments.replace_all)
    except NotFound:
        text = decoded.text.replace("\r\n", "\n")
        raise ToolFailure(
            f"`old` was not found in {place.shown}; nothing was changed.{explain_missing(text, old)}"
        ) from None
    except NotUnique as error:
        lines = ", ".join(str(line) for line in error.lines) + (", ..." if error.count > len(error.lines) else "")
        raise ToolFailure(
            f"`old` occurs {error.count:,} times in {place.shown}, at lines {lines}; nothing was changed. Take more "
            "lines around the one that is meant, or set replace_all."
        ) from None
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        named = f"{character!r} (U+{ord(character):04X})"
        title = decoded.encoding.title
        raise ToolFailure(
            f"{named} cannot be written in the encoding of {place.shown}, {title}. Nothing was changed."
        ) from None


def _snippet(spliced: Spliced) -> str:
    """The lines around the first change, numbered as read_file does."""
    lines = spliced.text.removesuffix("\n").split("\n")
    start = max(0, spliced.first_line - 3)
    kept = lines[start : start + _SNIPPET_LINES]
    return "\n".join(f"{start + index + 1:>6}\t{_cut(line.removesuffix(chr(13)))}" for index, line in enumerate(kept))


def _cut(line: str) -> str:
    return visible(line if len(line) <= _SNIPPET_LENGTH else line[: boundary_before(line, _SNIPPET_LENGTH)] + "…")
