"""write_file: exactly what was shown, at one stroke, or nothing."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.protocol import ToolFailure

Desk = Any


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_and_its_folders_are_made(desk: Desk) -> None:
    text = desk.call("write_file", path="a/b/c.txt", content="设计\nline")
    assert (desk.workspace / "a/b/c.txt").read_bytes() == "设计\nline".encode()
    assert text == "Wrote a/b/c.txt: 2 lines, 11 bytes (new file)."


def test_content_is_taken_exactly(desk: Desk) -> None:
    for content in ("", "\r\n", "a\r\nb\nc\r", "\ufeffx", "no end", "\u2028\x0b\x1b\x7f"):
        desk.call("write_file", path="a.txt", content=content)
        assert (desk.workspace / "a.txt").read_bytes() == content.encode()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_f20_a_new_file_obeys_the_umask_and_an_old_one_keeps_its_mode(desk: Desk, umask: int) -> None:
    script = desk.file("run.sh", "old")
    script.chmod(0o755)
    before = os.umask(umask)
    try:
        desk.call("write_file", path="new.txt", content="x")
        desk.call("write_file", path="run.sh", content="new")
    finally:
        os.umask(before)
    assert mode_of(desk.workspace / "new.txt") == 0o666 & ~umask and mode_of(script) == 0o755


def test_f20_the_owner_is_kept(desk: Desk) -> None:
    path = desk.file("a", "old")
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    owner = (path.stat().st_uid, path.stat().st_gid)
    desk.call("write_file", path="a", content="new")
    assert (path.stat().st_uid, path.stat().st_gid) == owner


def test_a_read_only_file_is_left_alone(desk: Desk) -> None:
    path = desk.file("a", "old")
    path.chmod(0o444)
    assert "read-only (mode 0444)" in desk.fails("write_file", path="a", content="new")
    assert path.read_text() == "old"


def test_the_preview_is_the_diff_and_has_no_side_effect(desk: Desk) -> None:
    path = desk.file("a.txt", "one\ntwo\nthree\n")
    preview = desk.preview("write_file", path="a.txt", content="one\n2\nthree\n")
    assert preview.detail_kind == "diff" and preview.targets[0].path == path
    assert preview.detail == "--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    new = desk.preview("write_file", path="x/new.txt", content="one\ntwo\n")
    assert new.detail == "--- /dev/null\n+++ x/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
    assert path.read_text() == "one\ntwo\nthree\n" and os.listdir(desk.workspace) == ["a.txt"]


@pytest.mark.parametrize("change", ["content", "removed", "made", "moved", "link", "folder"])
def test_what_changed_since_the_preview_is_not_written_over(desk: Desk, change: str) -> None:
    path, arguments = desk.workspace / "a.txt", {"path": "a.txt", "content": "mine"}
    if change != "made":
        desk.file("a.txt", "old")
    desk.file("other", "other")
    preview = desk.preview("write_file", **arguments)
    if change in ("removed", "link", "folder"):
        path.unlink()
    if change == "link":
        path.symlink_to("other")
    elif change == "folder":
        path.mkdir()
    elif change in ("content", "made"):
        path.write_text("theirs")
    elif change == "moved":
        path.write_text("theirs")
        os.utime(path, ns=(0, 0))
    before = sorted((each.name, each.is_file() and each.read_bytes()) for each in desk.workspace.iterdir())
    with pytest.raises(ToolFailure):
        desk.run("write_file", preview, **arguments)
    assert before == sorted((each.name, each.is_file() and each.read_bytes()) for each in desk.workspace.iterdir())


def test_the_same_content_touched_meanwhile_is_still_the_same(desk: Desk) -> None:
    path = desk.file("a.txt", "old")
    preview = desk.preview("write_file", path="a.txt", content="new")
    os.utime(path)
    desk.run("write_file", preview, path="a.txt", content="new")
    assert path.read_text() == "new"


def test_half_a_character_is_refused(desk: Desk) -> None:
    tool = desk.tools["write_file"]
    arguments = tool.arguments.model_construct(path="a.txt", content="ab\ud83d")
    with pytest.raises(ToolFailure, match="lone surrogate"):
        asyncio.run(tool.preview(arguments, desk.context()))
    assert not (desk.workspace / "a.txt").exists()


def test_a_link_inside_is_written_through_and_stays(desk: Desk) -> None:
    desk.file("real/a.txt", "old")
    (desk.workspace / "link").symlink_to("real/a.txt")
    desk.call("write_file", path="link", content="new")
    assert (desk.workspace / "link").is_symlink() and (desk.workspace / "real/a.txt").read_text() == "new"


@pytest.mark.parametrize("target", ["../secret.txt", "/etc/passwd", "nowhere"])
def test_a_link_outside_or_to_nowhere_is_refused(desk: Desk, target: str) -> None:
    (desk.workspace / "link").symlink_to(target)
    desk.fails("write_file", status="denied", path="link", content="x")
    assert (desk.workspace.parent / "secret.txt").read_text() == "outside"


def test_what_is_no_file_is_not_replaced(desk: Desk) -> None:
    (desk.workspace / "folder").mkdir()
    os.mkfifo(desk.workspace / "pipe")
    assert "folder" in desk.fails("write_file", path="folder", content="x")
    assert "named pipe" in desk.fails("write_file", path="pipe", content="x")
    assert "workspace itself" in desk.fails("write_file", path=".", content="x")


def test_what_gets_lost_is_told(desk: Desk) -> None:
    desk.file("a.txt", "eins\r\nzwei\r\n".encode("utf-16"))
    preview = desk.preview("write_file", path="a.txt", content="eins\nzwei\n")
    assert "UTF-16-LE with BOM, becomes UTF-8" in preview.detail
    text = desk.call("write_file", path="a.txt", content="eins\nzwei\n")
    assert "the encoding was UTF-16-LE with BOM" in text and "line endings were CRLF" in text
    desk.file("b.bin", b"\0\1")
    assert "binary" in desk.preview("write_file", path="b.bin", content="x").detail


def test_the_open_notebook_is_never_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = desk.file("book.ipynb", "{}")
    desk.file("other.ipynb", "{}")
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    for name, more in (("write_file", {"content": "x"}), ("edit_file", {"old": "{", "new": "["})):
        assert "open right now" in desk.fails(name, status="denied", path="book.ipynb", **more)
    assert desk.preview("write_file", path="other.ipynb", content="{}").targets[0].protected


CHILD = """
import asyncio, json, sys
from pathlib import Path
from mxclaw_nb.protocol import ToolContext
from mxclaw_nb.tools import WriteFile
root = Path(sys.argv[1])
context = ToolContext("s", "t", "c", root, root.parent / "o", root.parent / "h")
tool = WriteFile()
async def main():
    number = 0
    while True:
        number += 1
        parsed = tool.arguments(path="a.txt", content=str(number % 10) * 300_000)
        print((await tool.run(parsed, context, await tool.preview(parsed, context))).content, flush=True)
asyncio.run(main())
"""


def test_f19_killed_at_any_moment_the_file_is_whole(desk: Desk) -> None:
    path = desk.file("a.txt", "0" * 300_000)
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(desk.workspace)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline()
        for _ in range(20):
            content = path.read_bytes()
            assert len(content) == 300_000 and len(set(content)) == 1
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        child.stdout.close()
        content = path.read_bytes()
        assert len(content) == 300_000 and len(set(content)) == 1


def test_f19_a_full_disk_is_a_failure_and_the_old_content_stays(desk: Desk) -> None:
    path = desk.file("a.txt", "old")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(desk.workspace)], capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )  # fmt: skip
    assert "a.txt was not changed: File too large." in done.stderr
    assert path.read_text() == "old" and os.listdir(desk.workspace) == ["a.txt"]


def test_hostile_text_is_visible_in_the_diff(desk: Desk) -> None:
    content = "a\u202eb\x1b[2Jc\u200b\n+++ fake\r\n"
    detail = desk.preview("write_file", path="a\u202e.txt", content=content).detail
    assert "\u202e" not in detail and "\x1b" not in detail and "\u200b" not in detail and "\r" not in detail
    assert "U+202E" in detail


def test_many_lines_are_compared_quickly(desk: Desk) -> None:
    desk.file("a.txt", "".join(f"{n % 7}\n" for n in range(60_000)))
    content = "".join(f"{n % 5}\n" for n in range(60_000))
    preview = desk.preview("write_file", path="a.txt", content=content)
    assert preview.detail.count("\n+") > 59_000
    assert json.dumps(preview.detail)
