"""The disaster floor: a small set of commands that no mode and no answer lets through.

It is a floor, not a fence: it catches the well-known ways to lose a machine or a home by one line, and a model that
reaches for our own commands or store. Everything else is the business of the modes, the person and the sandbox.
"""

from __future__ import annotations

import re

from .places import is_disk, is_everything, is_our_home, names_our_home
from .words import Command, joined, simple_commands

_FORK_BOMB = re.compile(
    r"(?<![^\s(){};|&])(?P<name>[^\s(){};|&]{1,64})\s{0,9}(?:\(\s{0,9}\))?\s{0,9}"
    r"\{\s{0,9}(?P=name)\s{0,9}[|&]\s{0,9}(?P=name)\s{0,9}[&;}]"
)
_POWER = {"shutdown", "reboot", "poweroff", "halt"}
_SYSTEMD_POWER = _POWER | {"rescue", "emergency", "kexec", "hibernate", "suspend", "hybrid-sleep"}
_OWN_VERBS = {"approve", "deny", "set", "stop", "session", "run", "rehearse", "trust", "model"}
_ERASERS = {"mkfs", "mke2fs", "wipefs", "mkswap", "blkdiscard", "shred", "hdparm", "nvme", "cryptsetup", "badblocks"}
_HARMLESS = {
    "wipefs": {"-n", "--no-act", "-J", "--json"}, "hdparm": {"-I", "-i", "-t", "-T", "-tT", "-C", "-g"},
    "nvme": {"list", "id-ctrl", "id-ns", "smart-log", "list-ns"}, "badblocks": {"-n"},
    "cryptsetup": {"status", "luksDump", "isLuks", "luksOpen", "open", "luksUUID"},
}  # fmt: skip
_PARTITIONERS = {"fdisk", "sfdisk", "parted", "sgdisk", "gdisk", "cfdisk"}
_LISTING = {"-l", "--list", "-p", "--print", "print", "-d", "--dump", "-V", "-v", "--version"}
_NARROWING = {"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-samefile", "-inum", "-empty"}
_GLOBAL_GIT = {"-C", "-c", "--git-dir", "--work-tree"}


def disaster(command: str, home: str) -> str | None:
    """Why this command is refused in every mode, as the rest of a sentence; None if the floor has nothing against it.

    ``home`` is our own home directory (absolute): commands that name it are out of a model's reach.
    """
    if _FORK_BOMB.search(command):
        return "it is a fork bomb"
    if names_our_home(command, home):
        return "it reaches into mxclaw's own home directory"
    for each in simple_commands(command):
        reason = _one(each, home)
        if reason:
            return reason
    return None


def _one(command: Command, home: str) -> str | None:
    words = [joined(command.folder, word) if _may_be_path(word) else word for word in command.words[1:]]
    if any(is_our_home(word, home) for word in [*words, *(joined(command.folder, path) for path in command.writes)]):
        return "it reaches into mxclaw's own home directory"
    if any(is_disk(path) for path in command.writes):
        return "it overwrites a disk"
    if any(path.endswith("/sysrq-trigger") and path.startswith("/proc") for path in command.writes):
        return "it tells the kernel to crash or restart"
    name = command.words[0]
    rest = command.words[1:]
    return _deletes(name, command) or _erases(name, rest) or _stops(name, rest) or _own(command)


def _may_be_path(word: str) -> bool:
    return not word.startswith("-") and len(word) < 4_096


def _deletes(name: str, command: Command) -> str | None:
    """Deleting, moving or opening up a whole system or home."""
    rest = command.words[1:]
    operands = [word for word in rest if not word.startswith("-") and word]
    flags = "".join(word[1:] for word in rest if re.match(r"^-[a-zA-Z]+$", word))
    long_flags = {word.split("=", 1)[0] for word in rest if word.startswith("--")}
    recursive = "r" in flags or "R" in flags or "--recursive" in long_flags
    wide = [word for word in operands if is_everything(joined(command.folder, word))]
    if name == "rm" and (recursive or "--no-preserve-root" in long_flags) and wide:
        return f"it deletes {wide[0]} and everything in it"
    if name in {"chmod", "chown", "chgrp"} and recursive and wide:
        return f"it changes the owner or mode of everything in {wide[0]}"
    if name == "find" and wide and not _narrowed(rest) and ("-delete" in rest or _runs_rm(rest)):
        return f"it deletes everything under {wide[0]}"
    source = command.source
    if name == "rm" and source is not None and source.words[0] == "find" and not _narrowed(source.words):
        below = [word for word in source.words[1:] if is_everything(joined(source.folder, word))]
        if below:
            return f"it deletes everything under {below[0]}"
    if name == "mv" and len(operands) > 1 and (moved := [word for word in wide if word != operands[-1]]):
        return f"it moves {moved[0]} away"
    if name == "rsync" and any(flag.startswith("--del") for flag in long_flags) and operands[-1:] == wide[-1:] != []:
        return f"it deletes what is in {wide[-1]}"
    return None


def _narrowed(words: list[str]) -> bool:
    """Whether a find looks only for some names."""
    if "!" in words or "-not" in words:
        return False
    pairs = zip(words, [*words[1:], ""], strict=True)
    return any(word in _NARROWING and (word == "-empty" or value.strip("*./") != "") for word, value in pairs)


def _runs_rm(words: list[str]) -> bool:
    return any(word in ("-exec", "-execdir", "-ok") for word in words) and any(
        word.rsplit("/", 1)[-1] == "rm" for word in words
    )


def _erases(name: str, rest: list[str]) -> str | None:
    """Disks."""
    operands = [word for word in rest if not word.startswith("-")]
    kind = name.split(".")[0]
    touches = any(is_disk(word) for word in rest)
    if kind in _ERASERS and touches and not _HARMLESS.get(kind, set()) & set(rest):
        return "it erases a file system or disk"
    if name == "dd" and any(word.startswith("of=") and is_disk(word[3:]) for word in rest):
        return "it overwrites a disk"
    if name in {"cp", "mv", "install"} and len(operands) > 1 and is_disk(operands[-1]):
        return "it overwrites a disk"
    if name in {"tee", "truncate"} and touches:
        return "it overwrites a disk"
    if name in _PARTITIONERS and touches and not _LISTING & set(rest):
        return "it changes a disk's partitions"
    if name == "diskutil" and rest and re.match(r"(?i)(erase|partition|zero|random|secureErase)", rest[0]):
        return "it erases a file system or disk"
    return None


def _stops(name: str, rest: list[str]) -> str | None:
    """The machine, or everything that runs on it."""
    if name in _POWER and not {"--help", "--version", "-c", "--show"} & set(rest):
        return "it shuts the machine down"
    if name in {"init", "telinit"} and rest[:1] in (["0"], ["6"]):
        return "it shuts the machine down"
    if name in {"systemctl", "loginctl"}:
        verb = next((word for word in rest if not word.startswith("-")), "")
        if verb in _SYSTEMD_POWER:
            return "it shuts the machine down"
    if name == "kill" and "-1" in rest[1:] + ([rest[0]] if len(rest) == 1 else []):
        return "it kills every process"
    if name == "killall5":
        return "it kills every process"
    return None


def _own(command: Command) -> str | None:
    """Our own commands: a model that could run them could answer its own approvals."""
    name, rest = command.words[0], command.words[1:]
    if re.fullmatch(r"mxclaw(\.exe)?", name) and (not rest or set(rest) & _OWN_VERBS):
        return "a model may not run mxclaw's own commands"
    if name == "$()" and rest[:1] and rest[0] in ("approve", "deny"):
        return "a model may not run mxclaw's own commands"
    if re.match(r"^(python|pypy)[\d.]*$", name) and re.search(
        r"(^| )-[a-zA-Z]*m ?mxclaw_nb($|[ .])", " ".join(rest[:12])
    ):
        return "a model may not run mxclaw's own commands"
    return None


def without_global_options(words: list[str]) -> list[str]:
    """A git command without the options that go before its verb: ``git -C x push`` is ``git push``."""
    if words[0] != "git":
        return words
    index = 1
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in _GLOBAL_GIT else 1
    return ["git", *words[index:]]
