"""The matcher for where ripgrep is missing: a program of its own, since a regular expression may never come back.

It is given one JSON object as its argument, searches below its working directory (or its standard input), and prints
what ``rg --null --line-number --column --byte-offset`` would. The kernel ends it when its time is over, also when
whoever started it is gone.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import signal
import stat
import sys
from typing import BinaryIO

from .patterns import Glob
from .walking import Found, Walk

MOST_IN_A_FILE = 101
LONGEST_SHOWN = 4_096  # bytes of a line that are printed; the reader looks the rest up
_LONGEST_LINE = 8 << 20  # bytes of a line that are searched
_HEAD = 1 << 16  # bytes in which a NUL makes a file binary; one behind them ends its search there
_BAD_PATTERN, _UNREADABLE = 3, 2


def request(
    pattern: str, *, ignore_case: bool, include: str | None, exclude: str | None, home: tuple[int, int] | None,
    limit_s: int, standard_input: bool,
) -> str:  # fmt: skip
    """The program's argument."""
    return json.dumps([pattern, ignore_case, include, exclude, home, limit_s, standard_input])


def main() -> None:
    """Run the request in ``sys.argv[1]``. Exit status: 0 found, 1 nothing, 2 something unreadable, 3 bad pattern."""
    pattern, ignore_case, include, exclude, home, limit_s, standard_input = json.loads(sys.argv[1])
    if hasattr(signal, "alarm"):
        signal.alarm(limit_s)  # its default action ends the process inside the matcher, too
    try:
        regex = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        print(f"{error}", file=sys.stderr)
        sys.exit(_BAD_PATTERN)
    out = sys.stdout.buffer
    if standard_input:
        sys.exit(0 if _search(sys.stdin.buffer, b"<stdin>", regex, out) else 1)
    wanted = Glob(include, any_depth=True) if include else None
    unwanted = Glob(exclude, any_depth=True) if exclude else None

    def refused(path: str) -> bool:
        return unwanted is not None and unwanted.matches(path)

    walk = Walk(".", lambda path, key: list(key) != home and not refused(path))
    found = unreadable = False
    for each in walk:
        if each.is_folder or refused(each.path) or (wanted is not None and not wanted.matches(each.path)):
            continue
        try:
            found = _search_file(each, regex, out) or found
        except OSError:
            unreadable = True
    out.flush()
    sys.exit(_UNREADABLE if unreadable or walk.skipped else 0 if found else 1)


def _search_file(found: Found, regex: re.Pattern[str], out: BinaryIO) -> bool:
    if not found.entry.is_file(follow_symlinks=False):
        return False
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(found.entry.name if found.folder is not None else found.path, flags, dir_fd=found.folder)
    with open(descriptor, "rb", buffering=1 << 16) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        return _search(file, b"./" + os.fsencode(found.path), regex, out)


def _search(file: BinaryIO, path: bytes, regex: re.Pattern[str], out: BinaryIO) -> bool:
    head = file.peek(_HEAD)[:_HEAD] if hasattr(file, "peek") else b""
    encoding = "utf-8"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
        text = file.read(_LONGEST_LINE).decode("utf-16", "replace")
        lines = [line.encode("utf-8") for line in text.splitlines(keepends=True)]
    elif b"\0" in head:
        return False
    count = offset = number = 0
    while count < MOST_IN_A_FILE:
        if encoding == "utf-16":
            line = lines[number] if number < len(lines) else b""
        else:
            line = file.readline(_LONGEST_LINE)
        if not line or (encoding == "utf-8" and b"\0" in line):
            break
        number += 1
        start, offset = offset, offset + len(line)
        while encoding == "utf-8" and not line.endswith(b"\n"):
            rest = file.readline(_LONGEST_LINE)
            offset += len(rest)
            if not rest or rest.endswith(b"\n"):
                break
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            line, offset = line.removeprefix(codecs.BOM_UTF8), offset - len(codecs.BOM_UTF8)
        decoded = line.decode("utf-8", "surrogateescape")
        match = regex.search(decoded)
        if match is None:
            continue
        column = len(decoded[: match.start()].encode("utf-8", "surrogateescape")) + 1
        out.write(b"%b\0%d:%d:%d:%b\n" % (path, number, column, start, line[:LONGEST_SHOWN]))
        count += 1
    out.flush()
    return count > 0
