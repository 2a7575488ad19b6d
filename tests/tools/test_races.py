"""Somebody swaps folders and files for links that lead out, all the time: nothing outside is ever read or changed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.protocol import ToolFailure
from mxclaw_nb.tools import Grep

Desk = Any
SECONDS = 4.0


class Swapper(threading.Thread):
    """Replaces ``dir`` and ``dir/f.txt`` by links to what is outside, and puts them back, until told to stop."""

    def __init__(self, workspace: Path, outside: Path) -> None:
        super().__init__(name="swapper", daemon=True)
        self.here, self.outside = workspace / "dir", outside
        self.swaps, self.enough = 0, threading.Event()

    def run(self) -> None:
        while not self.enough.is_set():
            with suppress(OSError):
                for path, target in ((self.here, self.outside), (self.here / "f.txt", self.outside / "f.txt")):
                    aside = path.with_name("aside")
                    os.rename(path, aside)
                    os.symlink(target, path)
                    os.unlink(path)
                    os.rename(aside, path)
                    self.swaps += 1
                continue
            self.mend()

    def mend(self) -> None:
        """A tool made the folder anew while it was away: put everything back."""
        with suppress(OSError):
            aside = self.here.with_name("aside")
            if self.here.is_symlink():
                self.here.unlink()
            if aside.exists():
                shutil.rmtree(self.here, ignore_errors=True)
                os.rename(aside, self.here)
            if (self.here / "aside").exists():
                os.replace(self.here / "aside", self.here / "f.txt")


@pytest.mark.parametrize("ripgrep", [True, False], ids=["ripgrep", "own"])
def test_nothing_swapped_in_is_followed(desk: Desk, tmp_path: Path, ripgrep: bool) -> None:
    desk.tools["grep"] = Grep(ripgrep=ripgrep)
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("f.txt", "only-outside.txt"):
        (outside / name).write_text("OUTSIDE\n")
    desk.file("dir/f.txt", "INSIDE\n")
    calls = [
        ("read_file", {"path": "dir/f.txt"}), ("grep", {"pattern": "SIDE", "path": "dir"}),
        ("list_dir", {"path": "dir"}),
        ("grep", {"pattern": "SIDE", "path": "dir/f.txt"}), ("glob", {"pattern": "dir/*"}),
        ("write_file", {"path": "dir/new/x.txt", "content": "INSIDE\n"}),
        ("edit_file", {"path": "dir/f.txt", "old": "INSIDE", "new": "INSIDE again"}),
    ]  # fmt: skip
    descriptors = len(os.listdir("/dev/fd"))
    swapper = Swapper(desk.workspace, outside)
    swapper.start()
    outcomes = set()
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            for name, arguments in calls:
                try:
                    text = desk.call(name, **arguments)
                except ToolFailure as failure:
                    outcomes.add(failure.status)
                else:
                    outcomes.add("ok")
                    assert "OUTSIDE" not in text and "only-outside" not in text, name
    finally:
        swapper.enough.set()
        swapper.join(10)
    assert swapper.swaps > 10 and {"ok", "denied"} <= outcomes
    assert sorted(os.listdir(outside)) == ["f.txt", "only-outside.txt"]
    assert (outside / "f.txt").read_text() == "OUTSIDE\n"
    assert len(os.listdir("/dev/fd")) == descriptors


def test_a_hard_link_to_a_file_of_ours_is_neither_read_nor_found(desk: Desk) -> None:
    desk.home.mkdir()
    (desk.home / "secrets.json").write_text("needle\n")
    os.link(desk.home / "secrets.json", desk.workspace / "innocent.txt")
    for ripgrep in (True, False):
        desk.tools["grep"] = Grep(ripgrep=ripgrep)
        assert "needle" not in desk.call("grep", pattern="need.e").replace('"need.e"', "")
        desk.fails("grep", status="denied", pattern="needle", path="innocent.txt")
    desk.fails("read_file", status="denied", path="innocent.txt")
    desk.fails("edit_file", status="denied", path="innocent.txt", old="needle", new="x")
    desk.fails("write_file", status="denied", path="innocent.txt", content="x")
