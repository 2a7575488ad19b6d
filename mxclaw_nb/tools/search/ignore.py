"""What .gitignore files exclude, also where there is no git repository.

As git and ripgrep have it: the last rule of a file that matches decides, an inner file goes before an outer one, a
folder with a ``.git`` in it hears nothing from above, and nothing below an excluded folder can be brought back.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

from .patterns import path_regex

_LARGEST = 1 << 20  # bytes of a .gitignore
_MOST_RULES = 10_000


@dataclass(frozen=True, slots=True)
class _Rule:
    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


class IgnoreRules:
    """The rules of one .gitignore. ``base`` is its folder, relative to the walk's top (parents: what leads down)."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        sources: list[str] = []
        for line in text.removeprefix("\ufeff").split("\n")[:_MOST_RULES]:
            parsed = _parse(line.removesuffix("\r"))
            if parsed is not None:
                rule, source = parsed
                self._rules.append(rule)
                sources.append(source)
        self._rules.reverse()
        self._any = re.compile("|".join(sources), re.DOTALL) if sources else None

    def __bool__(self) -> bool:
        return bool(self._rules)

    def excludes(self, path: str, *, is_folder: bool) -> bool | None:
        """True or False if a rule speaks about the path (relative to this file's folder), else None."""
        if self._any is None or self._any.fullmatch(path) is None:
            return None
        for rule in self._rules:
            if (is_folder or not rule.folders_only) and rule.regex.fullmatch(path):
                return not rule.negated
        return None


def _parse(line: str) -> tuple[_Rule, str] | None:
    if line.startswith("#"):
        return None
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    negated = line.startswith("!")
    line = line.removeprefix("!")
    folders_only = line.endswith("/")
    line = line.rstrip("/") if folders_only else line
    anchored = "/" in line
    line = line.lstrip("/")
    if not line:
        return None
    source = path_regex(line if anchored else f"**/{line}", open_set="(?!)")  # to git it is no pattern at all
    try:
        return _Rule(re.compile(source, re.DOTALL), negated, folders_only), f"(?:{source})"
    except re.error:
        return None


@dataclass(frozen=True, slots=True)
class Ignores:
    """The rules in force in a folder, innermost first, each with the path from its file's folder to here."""

    stack: tuple[tuple[IgnoreRules, str], ...] = ()

    def excludes(self, name: str, *, is_folder: bool) -> bool:
        """Whether the entry ``name`` of this folder is excluded."""
        for rules, way in self.stack:
            verdict = rules.excludes(f"{way}{name}", is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False

    def below(self, name: str, full: str, *, has_rules: bool = True, is_repository: bool) -> Ignores:
        """The rules in force in the folder ``name`` of this one, whose path is ``full``.

        ``has_rules`` and ``is_repository`` say whether there is a ``.gitignore`` and a ``.git`` in it.
        """
        above = () if is_repository else tuple((rules, f"{way}{name}/") for rules, way in self.stack)
        found = [read_rules(os.path.join(full, ".gitignore"))] if has_rules else []
        if is_repository:
            found.append(read_rules(os.path.join(full, ".git", "info", "exclude")))
        return Ignores((*((rules, "") for rules in found if rules), *above))


def ignores_at(folder: str) -> Ignores:
    """The rules in force in an existing folder, those from above it included (up to a repository's root)."""
    chain = [folder]
    while not os.path.lexists(os.path.join(chain[-1], ".git")) and os.path.dirname(chain[-1]) != chain[-1]:
        chain.append(os.path.dirname(chain[-1]))
    ignores = Ignores()
    for path in reversed(chain):
        ignores = ignores.below(os.path.basename(path), path, is_repository=path == chain[-1])
    return ignores


def read_rules(path: str) -> IgnoreRules | None:
    """The rules in the file (a symbolic link is followed), None if there are none or it is no ordinary file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return None
    return IgnoreRules(data.decode("utf-8", "surrogateescape")) or None
