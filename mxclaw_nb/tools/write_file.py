"""write_file: a whole file, at one stroke."""

from __future__ import annotations

from pydantic import BaseModel, Field

from ..protocol import CallPreview, Risk, ToolContext, ToolFailure, ToolResult
from ..workspace import Place, Workspace, quoted
from .changing import Present, check_still_judged, present, replace_file
from .common import Arguments, counted, human_size, on_thread, targets_of, workspace_of
from .diff import unified_diff
from .encodings import decode_whole


class WriteFileArguments(Arguments):
    path: str = Field(description="The file, relative to the workspace or absolute inside it.")
    content: str = Field(description="The whole new content, exactly as it shall be, in UTF-8.")


class WriteFile:
    """Writes a whole file; an old one is replaced at one stroke, so that it is never half written."""

    name = "write_file"
    description = (
        "Write a whole text file in the workspace, exactly the given content in UTF-8; folders are made as needed, a "
        "file that is there is replaced and keeps its mode. To change a part of a file use edit_file."
    )
    risk: Risk = "write"
    concurrency_safe = False
    arguments: type[BaseModel] = WriteFileArguments

    async def preview(self, arguments: WriteFileArguments, context: ToolContext) -> CallPreview:
        """The diff against the present content, or the whole new file. Raises ToolFailure."""
        return await on_thread(lambda: _preview(arguments, context))

    async def run(self, arguments: WriteFileArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
        """Write it. Raises ToolFailure, also if the file is not what the preview showed any more."""
        return await on_thread(lambda: _run(arguments, context, preview))


def _prepare(arguments: WriteFileArguments, context: ToolContext) -> tuple[Workspace, Place, bytes, Present]:
    workspace = workspace_of(context)
    place = workspace.resolve_for_writing(arguments.path)
    try:
        data = arguments.content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolFailure(
            f"The content holds half a character (a lone surrogate) at character {error.start + 1:,}; a file cannot. "
            "Nothing was written."
        ) from None
    return workspace, place, data, present(workspace, place)


def _preview(arguments: WriteFileArguments, context: ToolContext) -> CallPreview:
    _, place, data, current = _prepare(arguments, context)
    what = f"{counted(_count_lines(arguments.content), 'line')}, {human_size(len(data))}"
    if not current.exists:
        summary = f"write_file {quoted(place.shown)} (new, {what})"
        detail = unified_diff(place.shown, None, arguments.content) or f"+++ {place.shown}\n(an empty file)"
    else:
        summary = f"write_file {quoted(place.shown)} (replace, {what})"
        decoded = None if current.data is None else decode_whole(current.data)
        if decoded is None:
            note = f"(the present content, {human_size(current.size)}, is binary or too large to be compared)"
            detail = f"{note}\n{unified_diff(place.shown, None, arguments.content)}"
        else:
            detail = unified_diff(place.shown, decoded.text, arguments.content) or "(no change)"
            if decoded.encoding.mark or decoded.encoding.name != "utf-8":
                detail = f"(the present encoding, {decoded.encoding.title}, becomes UTF-8)\n{detail}"
    return CallPreview(summary, detail, "diff", targets_of(place), fingerprint=current.fingerprint)


def _run(arguments: WriteFileArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
    workspace, place, data, current = _prepare(arguments, context)
    check_still_judged(place, current, preview)
    replace_file(workspace, place, data, current.fingerprint)
    notes = ["replaced" if current.exists else "new file"]
    decoded = None if current.data is None else decode_whole(current.data)
    if decoded is not None:
        if decoded.encoding.name != "utf-8" or decoded.encoding.mark:
            notes.append(f"the encoding was {decoded.encoding.title}, it is UTF-8 now")
        if "\r\n" in decoded.text and "\r\n" not in arguments.content and "\n" in arguments.content:
            notes.append("line endings were CRLF, they are LF now")
    if "\\" in place.path.name:
        notes.append("the backslashes are part of the name on this system")
    lines = counted(_count_lines(arguments.content), "line")
    return ToolResult(f"Wrote {place.shown}: {lines}, {len(data):,} bytes ({'; '.join(notes)}).")


def _count_lines(text: str) -> int:
    return text.count("\n") + (bool(text) and not text.endswith("\n"))
