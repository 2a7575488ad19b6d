"""Places that a command must not destroy or reach: the system, a home, a disk, and our own home directory.

Paths as a command names them, unevaluated: ``~`` stands for the user's home, wildcards for whatever they may match.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from fnmatch import fnmatchcase
from functools import lru_cache

_DISK = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|r?disk|mapper/|md\d|dm-|loop\d|mem$|kmem$|port$)")
_SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/sbin", "/srv", "/sys",
    "/usr", "/var", "/Users", "/System", "/Library", "/Applications", "/private", "/usr/bin", "/usr/lib", "/usr/lib64",
    "/usr/local", "/usr/sbin", "/usr/share", "/usr/include", "/var/lib", "/private/etc", "/private/var", "/home/*",
    "/Users/*",
)  # fmt: skip
_ALIAS = re.compile(r"^/proc/(self|thread-self|\d+)/(root|cwd/\.\.)(?=/|$)")
_UP = re.compile(r"\.\.(/\.\.){3,}(/\.?\*+)?/?")
_DEFAULT_HOME = "~/.mx-claw"


@lru_cache(maxsize=1024)
def is_disk(path: str) -> bool:
    """Whether a path names a disk or the machine's memory."""
    return _DISK.match(_normal(path)) is not None


@lru_cache(maxsize=1024)
def is_everything(path: str) -> bool:
    """Whether a path stands for the whole system, a large part of it, or a whole home."""
    if _UP.fullmatch(path):
        return True
    path = _normal(path)
    if path.startswith("~"):
        name, _, below = path[1:].partition("/")
        return "/" not in name and (below == "" or _matches_everything(below))
    if not path.startswith("/"):
        return False
    parts = [part for part in path.split("/") if part]
    while parts and _matches_everything(parts[-1]):
        parts.pop()
    if not parts:
        return True
    short = "/" + "/".join(parts)
    return any(
        fnmatchcase(short, place) or (_is_pattern(short) and "*" not in place and fnmatchcase(place, short))
        for place in _SYSTEM
        if place.count("/") == len(parts)
    )


@lru_cache(maxsize=1024)
def is_our_home(path: str, home: str) -> bool:
    """Whether a path lies in our own home directory (or is it), or a wildcard in it may match that."""
    path = _normal(path).lower()
    if not path.startswith(("/", "~")):
        return False
    names = path.split("/")
    for own in _spellings(home):
        wanted = own.lower().split("/")
        # a wildcard alone (~/*) means everything there, which is the other rules' business
        if len(names) >= len(wanted) and all(
            name == want or (name.strip("*") and _is_pattern(name) and fnmatchcase(want, name))
            for name, want in zip(names, wanted, strict=False)
        ):
            return True
    return False


def names_our_home(text: str, home: str) -> bool:
    """Whether any text, a program's too, names our home directory in a spelling that needs no evaluation."""
    plain = re.sub(r"\\\n|[\\'\"]", "", text)
    if re.search(r"\$\{?MX_CLAW_HOME|\bMX_CLAW_HOME\b\s*[=\]]|MX_CLAW_HOME\b[^\n]{0,40}=", plain):
        return True
    plain = re.sub(r"/(\./|/)+", "/", re.sub(r"\$HOME\b|\$\{HOME\b[^}]*\}", "~", plain)).lower()
    return any(
        re.search(r"(?<![\w.-])" + re.escape(own.lower()) + r"(?=$|[/\s;|&)<>*?:,}\]])", plain)
        for own in _spellings(home)
    )


def _spellings(home: str) -> list[str]:
    """The ways to name our home directory."""
    home = home.rstrip("/")
    spellings = [_DEFAULT_HOME]
    if home:
        spellings.append(home)
        user = os.path.expanduser("~").rstrip("/")
        if user and home.startswith(user + "/"):
            spellings.append("~" + home[len(user) :])
    return spellings


def _normal(path: str) -> str:
    """Without ``//``, ``/./`` and ``..`` as far as the text tells; ``/proc/self/root`` is the root."""
    if path.startswith("~"):
        head, _, below = path.partition("/")
        below = posixpath.normpath("/" + below).lstrip("/")
        return f"{head}/{below}" if below else head
    if not path.startswith("/"):
        return path
    plain = "/" + posixpath.normpath(path).lstrip("/")
    return _ALIAS.sub("", plain) or "/"


def _matches_everything(name: str) -> bool:
    """``*``, ``**``, ``.*``, ``.[!.]*`` and the like: a wildcard that leaves nothing of importance."""
    return name in (".", "..") or bool(re.fullmatch(r"\.?(\*+|\?+\*+|\[[!^]\.\]\*)|\{\*,\.\*\}", name))


def _is_pattern(path: str) -> bool:
    return any(character in path for character in "*?[")
