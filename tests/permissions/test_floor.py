"""The disaster floor: what no mode lets through, and what it must leave alone.

The commands are lines of two data files (``⏎`` is a newline) and are only ever looked at; nothing here runs one.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mxclaw_nb.permissions import disaster

HOME = "/home/u/.mx-claw"
DATA = Path(__file__).with_name("data")


def commands(name: str) -> list[str]:
    lines = (DATA / name).read_text("utf-8").splitlines()
    return [line.replace("⏎", "\n") for line in lines if line]


LEFT_ALONE = [
    "",
    " ",
    "#",
    "ls #\n",
    "mkfs.ext4 disk.img",
    "fdisk -l /dev/sda",
    "cp /dev/sda disk.img",
    "chmod -R g+w .",
]


@pytest.mark.parametrize("command", commands("disasters.txt"))
def test_a_catastrophe_is_refused_however_it_is_spelled(command: str) -> None:
    assert disaster(command, HOME)


@pytest.mark.parametrize("command", [*commands("everyday.txt"), *LEFT_ALONE])
def test_ordinary_work_is_left_alone(command: str) -> None:
    assert disaster(command, HOME) is None


@pytest.mark.parametrize(
    "unit",
    [
        "'", "$(", "`", "a;", "bash -c ", "\\", "{a,b}", "x=$x$x;", "x(){", '"$(', "${", "<<a\n", "<(", "../",
        "find / -exec ", "cd a;", "sudo ", "eval ", "trap '", "echo a|sh|", "if ", "rm *?[a]/", "bash<<<'",
        "\0", "\ud800",
    ],
)  # fmt: skip
def test_hostile_text_neither_raises_nor_takes_longer_than_its_length_explains(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        start = time.process_time()
        disaster(text, HOME)
        return time.process_time() - start

    assert seconds(32_000) < 10 * max(seconds(8_000), 0.05)  # 4 times as long; 16 times would be quadratic


@pytest.mark.parametrize("home", ["/srv/mx", "/home/u/my claw", "", "/"])
def test_a_home_anywhere_is_out_of_reach_and_nothing_else(home: str) -> None:
    assert disaster("ls /tmp /srv/mxx '/home/u/my clawx'", home) is None
    if home.strip("/"):
        assert disaster(f"cat '{home}/config.json'", home)
        assert disaster(f"cd '{home.rpartition('/')[0]}' && cat '{home.rpartition('/')[2]}'/config.json", home)
