"""The disaster floor: a small set of commands that no mode and no answer lets through.

It is a floor, not a fence: it catches the well-known ways to lose a machine or a home by one line, and a model that
reaches for our own commands or store. Everything else is the business of the modes, the person and the sandbox.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .words import simple_commands

_FORK_BOMB = re.compile(r"(?P<name>[\w:.]+)\s*\(\)\s*\{\s*(?P=name)\s*\|\s*(?P=name)\s*&\s*\}")
_DISK = re.compile(r"^/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|md\d|dm-|loop\d|mem|kmem|port)")
_TO_DISK = re.compile(r">\s*/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk)\w*")
_SYSTEM = {
    "/", "/*", "/.", "/..", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root",
    "/sbin", "/srv", "/sys", "/usr", "/var", "/Users", "/System", "/Library", "/Applications", "/private",
}  # fmt: skip
_HOME = {"~", "~/", "$HOME", "${HOME}", "~/*", "$HOME/*", "${HOME}/*", "~/.", "$HOME/", "${HOME}/", "~root"}
_OWN_VERBS = {"approve", "deny", "set", "stop", "session", "run", "rehearse", "trust", "model"}
_POWER = {"shutdown", "reboot", "poweroff", "halt"}


def disaster(command: str, home: str) -> str | None:
    """Why this command is refused in every mode, as the rest of a sentence; None if the floor has nothing against it.

    ``home`` is our own home directory (absolute): commands that name it are out of a model's reach.
    """
    if _FORK_BOMB.search(command):
        return "it is a fork bomb"
    if _TO_DISK.search(command):
        return "it overwrites a disk"
    if _names_our_home(command, home):
        return "it reaches into mxclaw's own home directory"
    for words in simple_commands(command):
        reason = _one(words, home)
        if reason:
            return reason
    return None


def _one(words: list[str], home: str) -> str | None:
    name, rest = words[0], words[1:]
    operands = [word for word in rest if not word.startswith("-")]
    flags = "".join(word[1:] for word in rest if re.match(r"^-[a-zA-Z]+$", word))
    long_flags = {word.split("=", 1)[0] for word in rest if word.startswith("--")}
    recursive = "r" in flags or "R" in flags or "--recursive" in long_flags
    wide = [word for word in operands if _is_everything(word)]
    if name == "rm" and (recursive or "--no-preserve-root" in long_flags) and wide:
        return f"it deletes {wide[0]} and everything in it"
    if name in {"chmod", "chown", "chgrp"} and recursive and wide:
        return f"it changes the owner or mode of everything in {wide[0]}"
    if name == "find" and wide and ("-delete" in rest or ("-exec" in rest and "rm" in rest)):
        return f"it deletes everything under {wide[0]}"
    if name == "mv" and len(operands) > 1 and _is_everything(operands[0]):
        return f"it moves {operands[0]} away"
    if name.split(".")[0] in {"mkfs", "mke2fs", "wipefs", "mkswap", "blkdiscard"} or (
        name == "shred" and _touches_disk(rest)
    ):
        return "it erases a file system or disk"
    if name == "dd" and any(word.startswith("of=") and _DISK.match(word[3:]) for word in rest):
        return "it overwrites a disk"
    if name in {"cp", "tee"} and _touches_disk(rest):
        return "it overwrites a disk"
    if name in {"fdisk", "sfdisk", "parted", "sgdisk"} and _touches_disk(rest):
        return "it changes a disk's partitions"
    if name in _POWER or (name in {"init", "telinit"} and rest[:1] in (["0"], ["6"])):
        return "it shuts the machine down"
    if name == "systemctl" and set(rest) & (_POWER | {"rescue", "emergency", "kexec"}):
        return "it shuts the machine down"
    if name == "kill" and "-1" in rest[1:] + ([rest[0]] if len(rest) == 1 else []):
        return "it kills every process"
    return _own(name, rest)


def _own(name: str, rest: list[str]) -> str | None:
    """Our own commands: a model that could run them could answer its own approvals."""
    if re.fullmatch(r"mxclaw(\.exe)?", name) and (not rest or set(rest) & _OWN_VERBS):
        return "a model may not run mxclaw's own commands"
    if re.match(r"^(python|pypy)[\d.]*$", name) and any(
        word.startswith("mxclaw_nb") and rest[index - 1 : index] in (["-m"], ["-Im"], ["-um"])
        for index, word in enumerate(rest)
    ):
        return "a model may not run mxclaw's own commands"
    return None


def _is_everything(word: str) -> bool:
    if word in _HOME:
        return True
    if not word.startswith("/"):
        return False
    plain = re.sub(r"/+", "/", word)
    plain = plain.rstrip("/") or "/"
    parts = PurePosixPath(plain).parts
    resolved: list[str] = []
    for part in parts[1:]:
        if part == "..":
            resolved[-1:] = []
        elif part not in {".", "*"}:
            resolved.append(part)
    return "/" + "/".join(resolved) in _SYSTEM


def _touches_disk(words: list[str]) -> bool:
    return any(_DISK.match(word) for word in words)


def _names_our_home(command: str, home: str) -> bool:
    """Whether the text names our home directory, in the spellings that need no evaluation."""
    unquoted = command.replace("\\\n", "").replace("\\", "").replace("'", "").replace('"', "")
    if home and home.rstrip("/") and re.search(re.escape(home.rstrip("/")) + r"(?=$|[/\s;|&)<>*?:,])", unquoted):
        return True
    return bool(
        re.search(r"(~|\$HOME|\$\{HOME\})/\.mx-claw(?=$|[/\s;|&)<>*?])|\$\{?MX_CLAW_HOME|\bMX_CLAW_HOME=", unquoted)
    )
