"""The words of a permission decision and of the answer to it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from .settings import Mode
from .tools import CallPreview, Risk

Decision = Literal["allow", "ask", "deny", "blocked"]
Choice = Literal["allow_once", "allow_session", "deny"]
CHOICES: tuple[Choice, ...] = ("allow_once", "allow_session", "deny")


@dataclass(frozen=True, slots=True)
class PermissionQuery:
    """A call that wants to run, as the verdict function sees it. ``home`` is our own home directory."""

    tool: str
    risk: Risk
    mode: Mode
    preview: CallPreview
    home: str
    deny: tuple[str, ...] = ()
    session_allows: frozenset[str] = frozenset()


def rule_covers_path(pattern: str, path: str) -> bool:
    """Whether the pattern of a deny rule (``~`` expanded) covers an absolute path, itself or by a folder above it.

    ``*`` matches anything; a pattern that does not start at the root may start at any folder. Case and Unicode form
    make no difference, since some file system sees none: a rule that forbids may forbid too much.
    """
    pattern, path = _plain(pattern).rstrip("/"), _plain(path)
    pattern = pattern.removeprefix("./").removesuffix("/**")
    if not pattern:
        return True
    starts = (pattern,) if pattern.startswith("/") else (pattern, f"*/{pattern}")
    return any(fnmatchcase(path, start) or fnmatchcase(path, f"{start}/*") for start in starts)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason`` is one sentence for the person and the model. ``grant`` is the key that "for this session" stores."""

    decision: Decision
    reason: str
    choices: tuple[Choice, ...] = ()
    grant: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to an approval; ``note`` is a word to the model that goes with a denial."""

    choice: Choice
    note: str = ""
