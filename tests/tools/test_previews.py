"""What a person approves is what happens: the diff of a preview, carried out on the old text, gives the new one."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from mxclaw_nb.protocol import ToolFailure
from mxclaw_nb.text import escape_invisible
from mxclaw_nb.tools.encodings import decode_whole, visible

Desk = Any
Line = tuple[str, bool]  # as shown, and whether a newline ends it

_PIECES = [
    "a", "x = 1", " ", "\t", "é", "e\u0301", "中", "\n", "\n", "\r\n", "\r", "\u2028", "\x85", "\x0c", "\ufeff",
    "\u202e", "{", "\\", "-",
    "+", "@@", "--- a", "\u200b", "\U0001f600", "\\ No newline at end of file", "␍", "⟨U+202E⟩",
]  # fmt: skip
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\ No newline at end of file"


def lines(text: str, ending: str) -> list[Line]:
    return [
        (escape_invisible(visible(line.removesuffix(ending).replace("\r", "␍"))), line.endswith("\n"))
        for line in re.findall(r"[^\n]*\n|[^\n]+", text)
    ]


def carried_out(diff: str, before: list[Line]) -> list[Line]:
    """The lines after the change. Raises AssertionError where the diff does not fit."""
    rows = diff.split("\n")[2:]
    after: list[Line] = []
    at = index = 0
    while index < len(rows):
        found = _HUNK.fullmatch(rows[index])
        assert found is not None, rows[index]
        first, old_left, _, new_left = (1 if group is None else int(group) for group in found.groups())
        index += 1
        start = first - 1 if old_left else first
        after += before[at:start]
        at = start
        while old_left or new_left:
            sign, text = rows[index][:1], rows[index][1:]
            ended = rows[index + 1 : index + 2] != [_NO_NEWLINE]
            index += 1 if ended else 2
            if sign != "+":
                assert before[at] == (text, ended)
                at, old_left = at + 1, old_left - 1
            if sign != "-":
                after.append((text, ended))
                new_left -= 1
    return after + before[at:]


def fits(diff: str, old: str, new: str) -> bool:
    for ending in ("\n", "\r\n"):
        try:
            if carried_out(diff, lines(old, ending)) == lines(new, ending):
                return True
        except (AssertionError, IndexError):
            continue
    return False


@pytest.mark.parametrize("seed", range(4))
def test_a_preview_shows_exactly_what_the_call_then_does(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)

    def text(most: int) -> str:
        return "".join(chance.choice(_PIECES) for _ in range(chance.randrange(most)))

    done = 0
    while done < 50:
        name, mark = chance.choice([("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe")])
        data = mark + text(50).encode(name)
        decoded = decode_whole(data)
        if decoded is None or not decoded.text:
            continue
        file = desk.file("f.txt", data)
        arguments: dict[str, Any] = {"path": "f.txt"}
        tool = chance.choice(["edit_file", "write_file"])
        if tool == "edit_file":
            start = chance.randrange(len(decoded.text))
            old = decoded.text[start : start + chance.randrange(1, 12)]
            arguments |= {"old": old, "new": text(10), "replace_all": chance.random() < 0.5}
        else:
            arguments["content"] = chance.choice([text(50), decoded.text + text(5), text(5) + decoded.text])
        try:
            preview = desk.preview(tool, **arguments)
        except ToolFailure:
            continue
        assert file.read_bytes() == data
        if chance.random() < 0.2:
            file.write_bytes(data + b"!!")
            with pytest.raises(ToolFailure, match=r"has changed since|cannot be told|binary"):
                desk.run(tool, preview, **arguments)
            assert file.read_bytes() == data + b"!!"
            continue
        desk.run(tool, preview, **arguments)
        if tool == "edit_file":
            after = file.read_bytes()[len(decoded.encoding.mark) :].decode(decoded.encoding.name, "surrogateescape")
        else:
            after = file.read_bytes().decode()
            assert after == arguments["content"]
        diff = re.sub(r"\A\(the present encoding.*\n", "", preview.detail)
        assert diff == "(no change)" or fits(diff, decoded.text, after), (data, arguments, preview.detail)
        done += 1
