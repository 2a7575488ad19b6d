"""read_file: any file, within its bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Desk = Any


def test_lines_come_numbered(desk: Desk) -> None:
    desk.file("a.py", "one\n\ttwo\n\nfour")
    assert desk.call("read_file", path="a.py") == "     1\tone\n     2\t\ttwo\n     3\t\n     4\tfour"


def test_offset_and_limit_choose_a_page_and_the_rest_is_told(desk: Desk) -> None:
    desk.file("a", "".join(f"line {n}\n" for n in range(1, 11)))
    text = desk.call("read_file", path="a", offset=3, limit=2)
    assert text == "     3\tline 3\n     4\tline 4\n(lines 3-4 of 10 shown; go on with offset=5)"
    assert desk.call("read_file", path="a", offset=10).splitlines() == ["    10\tline 10"]


@pytest.mark.parametrize("end", ["", "\n"])
def test_f26_an_offset_behind_the_end_names_the_line_count(desk: Desk, end: str) -> None:
    desk.file("a", "1\n2\n3" + end)
    for offset in (4, 5, 100):
        assert f"offset {offset} is behind the end: a has 3 lines" in desk.fails("read_file", path="a", offset=offset)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_f25_an_empty_file_is_said_to_be_empty(desk: Desk, content: bytes) -> None:
    desk.file("a", content)
    assert "a is empty" in desk.call("read_file", path="a")
    assert "a is empty" in desk.call("read_file", path="a", offset=5)


def test_f24_devices_and_pipes_are_refused_before_they_are_opened(desk: Desk) -> None:
    os.mkfifo(desk.workspace / "pipe")
    assert "a named pipe" in desk.fails("read_file", path="pipe")
    for path in ("/dev/zero", "/dev/stdin", "/proc/kmsg", "/dev/fd/0"):
        desk.fails("read_file", status="denied", path=path)
    (desk.workspace / "zero").symlink_to("/dev/zero")
    desk.fails("read_file", status="denied", path="zero")
    assert "is a folder" in desk.fails("read_file", path=".")


def test_f24_a_device_inside_the_workspace_is_refused(desk: Desk) -> None:
    """Only root can make one; elsewhere a socket stands for it."""
    import socket

    node = desk.workspace / "node"
    try:
        os.mknod(node, 0o020600, os.makedev(1, 5))
        kind = "a character device"
    except PermissionError:
        with socket.socket(socket.AF_UNIX) as unix:
            here = os.open(".", os.O_RDONLY)
            os.chdir(desk.workspace)
            try:
                unix.bind("node")
            finally:
                os.fchdir(here)
                os.close(here)
        kind = "a socket"
    assert kind in desk.fails("read_file", path="node")


MEASURED = """
import asyncio, resource, sys
from pathlib import Path
from mxclaw_nb.protocol import ToolContext
from mxclaw_nb.tools import ReadFile
root, arguments = Path(sys.argv[1]), sys.argv[2]
context = ToolContext("s", "t", "c", root, root.parent / "o", root.parent / "h")
tool = ReadFile()
async def main(text):
    parsed = tool.arguments.model_validate_json(text)
    return await tool.run(parsed, context, await tool.preview(parsed, context))
asyncio.run(main('{"path": "small"}'))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = asyncio.run(main(arguments))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(result.content))
"""


@pytest.mark.parametrize("arguments", ['{"path": "big", "limit": 1}', '{"path": "big"}'], ids=["F27", "F27-all"])
def test_f27_a_line_of_2_gib_costs_little_memory(desk: Desk, arguments: str) -> None:
    desk.file("small", "x\n")
    with desk.file("big", b"a" * 200_000).open("r+b") as file:
        file.truncate(2 << 30)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(desk.workspace), arguments],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    grown, length = map(int, done.stdout.split())
    assert grown < (20_000 if sys.platform == "linux" else 20_000_000) and length < 2_200


def test_a_long_line_is_cut_at_2000_characters(desk: Desk) -> None:
    desk.file("a", "x" * 2000 + "\n" + "y" * 2001 + "\nz\n")
    first, second, third, note = desk.call("read_file", path="a").split("\n")
    assert first == "     1\t" + "x" * 2000 and second == "     2\t" + "y" * 2000 + "…" and third == "     3\tz"
    assert note == "(1 line cut at 2,000 characters)"


@pytest.mark.parametrize(
    "cluster", ["👩‍👩‍👧‍👦", "e\u0301", "🇩🇪", "👍🏽", "कि", "각"], ids=lambda text: f"F30-{len(text)}"
)
def test_f30_no_cut_falls_inside_a_character(desk: Desk, cluster: str) -> None:
    for shift in range(len(cluster) + 1):
        desk.file("a", "x" * (2000 - shift) + cluster + "y" * 50)
        line = desk.call("read_file", path="a").split("\n")[0].removeprefix("     1\t")
        kept = line.removesuffix("…").lstrip("x")
        assert kept in ("", cluster), (shift, kept)


def test_at_most_50_kb_are_shown_and_the_way_on_is_right(desk: Desk) -> None:
    lines = [f"{n} " + "设" * 300 for n in range(1, 201)]
    desk.file("a", "\n".join(lines) + "\n")
    seen: list[str] = []
    while len(seen) < 200:
        text = desk.call("read_file", path="a", offset=len(seen) + 1)
        assert len(text.encode()) <= 50 * 1024 + 200
        seen += [line.split("\t", 1)[1] for line in text.split("\n") if "\t" in line]
        if len(seen) < 200:
            assert f"go on with offset={len(seen) + 1})" in text and "of 200 shown" in text
    assert seen == lines


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"\x89PNG\r\n\x1a\n\0\0", "PNG image"), (b"PK\x03\x04\0\0", "ZIP archive"), (b"\0" * 100, "only zero bytes"),
     (b"SQLite format 3\0", "SQLite database"), (bytes(range(1, 9)) * 50, "unknown kind"), (b"PAR1\0", "Parquet")],
)  # fmt: skip
def test_a_binary_file_is_refused_with_kind_and_size(desk: Desk, content: bytes, kind: str) -> None:
    desk.file("a", content)
    sentence = desk.fails("read_file", path="a")
    assert kind in sentence and f"{len(content)} B" in sentence


@pytest.mark.parametrize(
    ("codec", "text"),
    [("gb18030", "中文代码，测试一下编码\n"), ("cp932", "日本語のテキストです\n"), ("euc_kr", "한국어 문장입니다\n"),
     ("big5", "繁體中文的測試檔案\n"), ("cp1252", "le café déjà vu\n"), ("cp1251", "Привет, мир\n"),
     ("utf-16", "设计\nline\n"), ("utf-8-sig", "é\n"), ("utf-32", "é设\n"), ("euc_jp", "これはテストです\n")],
)  # fmt: skip
def test_other_encodings_are_read_and_named(desk: Desk, codec: str, text: str) -> None:
    desk.file("a", text.encode(codec))
    shown = desk.call("read_file", path="a")
    assert text.split("\n")[0] in shown and "(encoding: " in shown and "\ufffd" not in shown


def test_stray_bytes_are_shown_and_said_never_replaced(desk: Desk) -> None:
    desk.file("a", "设计 良い ñandú\n".encode() + b"bad \xff\xfe here\n")
    shown = desk.call("read_file", path="a")
    assert r"bad \xff\xfe here" in shown and "bytes that are no text" in shown and "\ufffd" not in shown


def test_a_nul_far_inside_does_not_reach_the_model(desk: Desk) -> None:
    desk.file("a", b"text\n" * 40_000 + b"a\0b\n")
    assert "a␀b" in desk.call("read_file", path="a", offset=40_001)


def test_crlf_is_not_shown_and_a_lone_cr_is_data(desk: Desk) -> None:
    desk.file("a", b"one\r\ntwo\rthree\r\n")
    assert desk.call("read_file", path="a") == "     1\tone\n     2\ttwo\rthree"


@pytest.mark.parametrize("arguments", [{"offset": 0}, {"offset": -1}, {"limit": 0}, {"offset": 1.5}, {"offset": "2"}])
def test_a_bad_page_is_a_schema_error(desk: Desk, arguments: dict[str, object]) -> None:
    desk.file("a", "x")
    with pytest.raises(ValueError, match="validation error"):
        desk.call("read_file", path="a", **arguments)


def test_f22_a_windows_path_reaches_the_file_of_that_name(desk: Desk) -> None:
    name = r"C:\Users\unicorn\table.txt"
    desk.file(name, "found")
    assert "found" in desk.call("read_file", path=name)
    assert [each.name for each in desk.workspace.iterdir()] == [name]


def test_a_missing_file_suggests_a_near_name(desk: Desk) -> None:
    desk.file("src/model.py")
    assert 'Did you mean "src/model.py"?' in desk.fails("read_file", path="src/modell.py")


def test_a_file_that_may_not_be_read_is_explained(desk: Desk) -> None:
    path: Path = desk.file("a", "x")
    path.chmod(0)
    if os.geteuid() != 0:
        assert "Permission denied" in desk.fails("read_file", path="a")
    else:
        assert "x" in desk.call("read_file", path="a")
