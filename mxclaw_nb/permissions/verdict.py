"""From a call to a verdict: the permission table, strictest first.

Until commands are classified and sandboxed, every command counts as class write.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from fnmatch import fnmatchcase

from mxclaw_nb.protocol import CHOICES, Choice, PermissionQuery, Verdict, rule_covers_path

from .floor import disaster, without_global_options
from .words import simple_commands

_ASK_ONCE: tuple[Choice, ...] = ("allow_once", "deny")


def decide(query: PermissionQuery) -> Verdict:
    """The verdict on one call. Pure: everything it needs is in the query.

    Order: disaster floor and our own home; the ceiling of plan mode; deny rules; protected paths (ask, once at a
    time); what the person allowed for this session; the mode's column of the table.
    """
    preview = query.preview
    if preview.command is not None:
        reason = disaster(preview.command, query.home)
        if reason:
            return Verdict("blocked", f"The command is refused in every mode: {reason}.")
    if any(_inside(str(target.path), query.home) for target in preview.targets):
        return Verdict("deny", "mxclaw's own home directory is out of a model's reach.")
    if query.mode == "plan" and query.risk != "read":
        return Verdict("deny", "The session is in plan mode: nothing may be changed. Describe the change instead.")
    rule = next((rule for rule in query.deny if _matches(rule, query)), None)
    if rule is not None:
        return Verdict("deny", f"A deny rule of the user forbids it: {rule}.")
    if query.risk == "read":
        return Verdict("allow", "It only reads.")
    if any(target.protected for target in preview.targets):
        return Verdict("ask", "It would change a protected file, which is asked each time.", _ASK_ONCE)
    grant = _grant(query)
    if grant in query.session_allows:
        return Verdict("allow", "The user allowed it for this session.", grant=grant)
    if query.mode == "allow-all":
        return Verdict("allow", "The session is in allow-all mode.")
    if query.mode == "accept-edits" and query.risk == "write":
        return Verdict("allow", "The session accepts edits in the workspace.")
    what = "run a command" if query.risk == "execute" else "change a file"
    return Verdict("ask", f"In {query.mode} mode, the agent asks before it may {what}.", CHOICES, grant)


def _grant(query: PermissionQuery) -> str:
    """What "allow for this session" would remember: this very command, or this tool on any file of the workspace."""
    return f"{query.tool}({query.preview.command})" if query.preview.command is not None else query.tool


def _matches(rule: str, query: PermissionQuery) -> bool:
    """Whether a deny rule, ``tool`` or ``tool(pattern)``, covers the call. ``*`` in a pattern matches anything.

    A command is matched whole and by each simple command in it, so that a prefix does not hide what follows.
    """
    name, _, pattern = rule.strip().partition("(")
    if not fnmatchcase(query.tool, name.strip()):
        return False
    pattern = pattern.removesuffix(")").strip()
    if not pattern:
        return True
    if query.preview.command is not None:
        texts = [query.preview.command]
        for each in simple_commands(query.preview.command):
            texts += [" ".join(each.words), " ".join(without_global_options(each.words))]
        return any(fnmatchcase(text, pattern) or fnmatchcase(text + " ", pattern) for text in texts)
    pattern = os.path.expanduser(pattern)
    return any(rule_covers_path(pattern, str(target.path)) for target in query.preview.targets)


def rule_problem(rule: str, tools: Iterable[str]) -> str | None:
    """Why a deny rule would never do what its writer means, as one sentence; None if it is sound.

    A rule that protects nothing is worse than none, so a slip of the fingers must not pass.
    """
    name, bracket, pattern = rule.strip().partition("(")
    known = list(tools)
    if not any(fnmatchcase(tool, name.strip()) for tool in known):
        return f"{rule!r} names no tool. The tools are: {', '.join(known)}."
    if bool(bracket) != rule.strip().endswith(")") or (bracket and not pattern.removesuffix(")").strip()):
        return f"{rule!r} is not finished. A rule is `tool` or `tool(pattern)`, such as run_command(rm *)."
    return None


def _inside(path: str, folder: str) -> bool:
    return bool(folder) and (path == folder or path.startswith(folder.rstrip("/\\") + os.sep))
