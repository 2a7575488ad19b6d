"""Glob patterns as regular expressions that cannot blow up: each ``*`` and ``**`` gives up what it passed (atomic).

``*`` and ``?`` stop at ``/``; ``**`` as a whole segment means any number of folders, none included; ``[a-z]`` and
``[!a-z]`` are sets; a backslash takes the next character as it is; ``{a,b}`` means either.
"""

from __future__ import annotations

import re

_MOST_ALTERNATIVES = 64
_NAME = r"(?:[^/]+/)"


class PatternError(ValueError):
    """The pattern cannot be used; the text says why."""


def expand_braces(pattern: str) -> list[str]:
    """``a/{b,c}`` as ``["a/b", "a/c"]``, nested ones too; an unclosed brace stays. Raises PatternError if too many."""
    done: list[str] = []
    pending = [pattern]
    while pending:
        if len(done) + len(pending) > _MOST_ALTERNATIVES:
            raise PatternError(f"the braces stand for more than {_MOST_ALTERNATIVES} patterns")
        current = pending.pop(0)
        found = _innermost_braces(current)
        if found is None:
            done.append(current)
            continue
        start, end = found
        pending.extend(current[:start] + part + current[end + 1 :] for part in current[start + 1 : end].split(","))
    return list(dict.fromkeys(done))


def _innermost_braces(pattern: str) -> tuple[int, int] | None:
    start, comma, index = -1, False, 0
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 1
        elif character == "{":
            start, comma = index, False
        elif character == "," and start >= 0:
            comma = True
        elif character == "}" and start >= 0:
            if comma:
                return start, index
            start = -1
        index += 1
    return None


def segment_regex(segment: str, *, open_set: str = r"\[") -> str:
    """The regular expression of one path segment (no ``/`` in it). ``open_set`` is what a ``[`` without end means."""
    pieces: list[str] = [""]  # fixed texts between the stars
    index = 0
    while index < len(segment):
        character = segment[index]
        index += 1
        if character == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
        elif character == "\\" and index < len(segment):
            pieces[-1] += re.escape(segment[index])
            index += 1
        elif character == "[":
            text, index = _set_regex(segment, index, open_set)
            pieces[-1] += text
        else:
            pieces[-1] += re.escape(character)
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1])
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


def _set_regex(segment: str, start: int, open_set: str) -> tuple[str, int]:
    """The regular expression of the set whose inside starts at ``start``, and where the text goes on."""
    index = start
    negated = segment[index : index + 1] in ("!", "^")
    index += negated
    first = index
    inside = ""
    while index < len(segment) and (segment[index] != "]" or index == first):
        character = segment[index]
        if character == "\\" and index + 1 < len(segment):
            index += 1
            inside += re.escape(segment[index])
        elif character == "-":
            inside += "-" if inside and index + 1 < len(segment) and segment[index + 1] != "]" else r"\-"
        else:
            inside += re.escape(character)
        index += 1
    if index >= len(segment):
        return open_set, start
    text = f"[^/{inside}]" if negated else f"(?!/)[{inside}]"
    try:
        re.compile(text)
    except re.error:
        text = "(?!)"  # a range that runs backwards matches nothing
    return text, index + 1


def path_regex(pattern: str, *, open_set: str = r"\[") -> str:
    """The regular expression of a pattern over a whole relative path (braces expanded before)."""
    blocks: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            if blocks[-1] or len(blocks) == 1:
                blocks.append([])
        elif segment:
            blocks[-1].append(segment_regex(segment, open_set=open_set))
    text = "/".join(blocks[0])
    if len(blocks) == 1:
        return text
    text += "/" if text else ""
    text += "".join(f"(?>{_NAME}*?{'/'.join(block)}/)" for block in blocks[1:-1])
    return text + (f"{_NAME}*{'/'.join(blocks[-1])}" if blocks[-1] else ".+")


class Glob:
    """A glob pattern over relative paths with ``/``.

    With ``any_depth`` a pattern without a slash matches the name in every folder, as in .gitignore.
    Raises PatternError.
    """

    def __init__(self, pattern: str, *, any_depth: bool = False) -> None:
        self.alternatives = [each.strip("/") for each in expand_braces(pattern)]
        if any(".." in each.split("/") for each in self.alternatives):
            raise PatternError("`..` is not possible in a pattern; name the folder as the path instead")
        texts = [
            path_regex(each if "/" in each or not any_depth else f"**/{each}") for each in self.alternatives if each
        ]
        self._whole = re.compile("|".join(f"(?:{text})" for text in texts) or "(?!)", re.DOTALL)
        self._leads = [_lead(each) for each in self.alternatives]

    def matches(self, path: str) -> bool:
        """Whether the whole path matches."""
        return self._whole.fullmatch(path) is not None

    def may_match_below(self, folder: str) -> bool:
        """Whether a path below this folder could match; a cheap answer that errs on the side of yes."""
        names = folder.split("/")
        for lead, deeper in self._leads:
            if len(names) >= len(lead) and not deeper:
                continue
            if all(regex.fullmatch(name) for regex, name in zip(lead, names, strict=False)):
                return True
        return False


def _lead(pattern: str) -> tuple[list[re.Pattern[str]], bool]:
    """The segments before the first ``**``, and whether there is one."""
    segments = pattern.split("/")
    deeper = "**" in segments
    if deeper:
        segments = segments[: segments.index("**")]
    return [re.compile(segment_regex(segment), re.DOTALL) for segment in segments if segment], deeper
