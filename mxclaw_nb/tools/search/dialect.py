"""One regular expression for two engines: read once, written for ripgrep and for Python so that both find the same.

The syntax is that of ripgrep (Rust's regex crate), a little more forgiving: a ``{`` that begins no repetition stands
for itself, any ASCII punctuation may be escaped, ``\\<`` and ``\\>`` are word boundaries, and whatever a version of
ripgrep lacks is written in the way that all of them know. A line is what is matched: ``\\A`` and ``\\z`` are its ends,
and nothing matches a line break. What only one engine could do is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .properties import MARKS, property_class

_DEEPEST = 100
_MOST_REPEATED = 1_000
_LARGEST = 200_000  # of a rough measure of the compiled expression, so that ripgrep takes it too
_CLASS_SIZE = 20
_CHARACTERS = {"t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_NEVER = r"\r\n\udc80-\udcff"  # what no set matches in ripgrep: line breaks, and bytes that are no text
_SPACES = r"\t\x0b\x0c \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_NAMED = {  # in a set, and outside one
    "d": (r"\d", r"\d"), "D": (r"\D", rf"[^\d{_NEVER}]"), "w": (rf"\w{MARKS}", rf"[\w{MARKS}]"),
    "W": (r"\W", rf"[^\w{MARKS}{_NEVER}]"), "s": (_SPACES, f"[{_SPACES}]"), "S": (r"\S", f"[^{_SPACES}{_NEVER}]"),
}  # fmt: skip
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_REPETITION = re.compile(r"\{\s*(\d{0,9})\s*(,?)\s*(\d{0,9})\s*\}")
_HEX = re.compile(r"[xuU]\{([0-9A-Fa-f]{1,8})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_GROUP = re.compile(r"\?(?:P?<([A-Za-z_][\w.\[\]]*)>|([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)]))")
_SET_OPERATORS = ("&&", "--", "~~")


class DialectError(ValueError):
    """The expression cannot be used; the text is a sentence that says why."""


@dataclass(frozen=True, slots=True)
class Expression:
    """The same expression for both engines."""

    ripgrep: str
    python: str


def translate(pattern: str) -> Expression:
    """Read an expression. Raises DialectError."""
    reader = _Reader(pattern)
    piece = reader.alternatives(_Flags())
    if reader.at < len(pattern):
        raise DialectError("a `)` has no `(` before it; escape it as `\\)`.")
    return Expression(piece.ripgrep, piece.python)


@dataclass(frozen=True, slots=True)
class _Flags:
    verbose: bool = False
    swapped: bool = False
    ignore_case: bool | None = None


@dataclass(slots=True)
class _Piece:
    """A part of the expression; ``size`` is its rough cost, ``atom`` whether a repetition may follow it as it is."""

    ripgrep: str
    python: str
    size: int = 1
    atom: bool = True


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0
    depth: int = 0

    def alternatives(self, flags: _Flags) -> _Piece:
        """Everything up to the end, or to the ``)`` of the group."""
        current: list[_Piece] = []
        outer = flags.ignore_case
        opened = 0  # groups that only carry flags to the end of this group
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == ")":
                break
            if flags.verbose and (character.isspace() or character == "#"):
                self._skip_blank(character)
            elif character == "|":
                self.at += 1
                bar = f"{')' * opened}|"
                opened = int(flags.ignore_case != outer)  # the flags go on behind the bar
                bar += _case_prefix(flags) * opened
                current.append(_Piece(bar, bar, 0, atom=False))
            elif (changed := self._flags_only(flags)) is not None:
                flags = changed
                turned = _case_prefix(flags)
                current.append(_Piece(turned, turned, 0, atom=False))
                opened += 1
            else:
                current.append(self._repeated(self._atom(flags), flags))
        size = sum(piece.size for piece in current)
        if size > _LARGEST:
            raise DialectError("it is too large, with all its repetitions. Search for a part of it.")
        closing = ")" * opened
        ripgrep = "".join(piece.ripgrep for piece in current) + closing
        python = "".join(piece.python for piece in current) + closing
        return _Piece(ripgrep, python, size)

    def _skip_blank(self, character: str) -> None:
        end = self.text.find("\n", self.at) if character == "#" else self.at + 1
        self.at = len(self.text) if end < 0 else end

    def _flags_only(self, flags: _Flags) -> _Flags | None:
        """The flags from here on, if ``(?i)`` or the like stands here."""
        found = _GROUP.match(self.text, self.at + 1) if self.text.startswith("(?", self.at) else None
        if found is None or found[4] != ")":
            return None
        self.at = found.end()
        return _changed(flags, found[2], found[3] or "")

    def _atom(self, flags: _Flags) -> _Piece:
        character = self.text[self.at]
        if character == "(":
            return self._group(flags)
        if character == "[":
            return self._set(flags)
        if character == "\\":
            return self._escape()
        if character in "*+?" or (character == "{" and self._repetition() is not None):
            raise DialectError(f"`{character}` repeats nothing; escape it as `\\{character}` to find it.")
        self.at += 1
        if character == ".":
            return _Piece(".", f"[^{_NEVER}]", _CLASS_SIZE)
        if character in "^$":
            return _Piece(character, character, atom=False)
        return _literal(_findable(character))

    def _group(self, flags: _Flags) -> _Piece:
        if self.text.startswith(("(?=", "(?!", "(?<=", "(?<!"), self.at):
            raise DialectError("look-around is not possible.")
        self.at += 1
        inner = flags
        if self.text.startswith("?", self.at):
            found = _GROUP.match(self.text, self.at)
            if found is None:
                raise DialectError(f"the group `({self.text[self.at : self.at + 3]}` is of an unknown kind.")
            self.at = found.end()
            if found[1] is None:
                inner = _changed(flags, found[2], found[3] or "")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise DialectError(f"its groups are nested more than {_DEEPEST} deep.")
        piece = self.alternatives(inner)
        self.depth -= 1
        if not self.text.startswith(")", self.at):
            raise DialectError("a `(` is not closed; escape it as `\\(` to find it.")
        self.at += 1
        opening = "(?:" if inner.ignore_case == flags.ignore_case else _case_prefix(inner)
        return _Piece(f"{opening}{piece.ripgrep})", f"{opening}{piece.python})", piece.size)

    def _escape(self) -> _Piece:
        if self.at + 1 >= len(self.text):
            raise DialectError("it ends in a lone backslash; write `\\\\` to find one.")
        following = self.text[self.at + 1]
        if following in _NAMED:
            self.at += 2
            return _Piece(f"\\{following}", _NAMED[following][1], _CLASS_SIZE)
        if following in "pP":
            ripgrep, inside, negated = self._property()
            return _Piece(ripgrep, f"[^{inside}{_NEVER}]" if negated else f"[{inside}]", _CLASS_SIZE)
        assertions = {"b": r"\b", "B": r"(?!\b)", "A": "^", "z": "$", "<": r"\b", ">": r"\b"}
        if following in assertions:
            self.at += 2
            python = assertions[following]
            return _Piece(r"\B" if following == "B" else python, python, atom=False)
        return _literal(self._character())

    def _character(self) -> str:
        """The one character that an escape stands for."""
        following = self.text[self.at + 1 : self.at + 2]
        found = _HEX.match(self.text, self.at + 1)
        if found is not None:
            self.at = found.end()
            code = int(next(digits for digits in found.groups() if digits), 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise DialectError(f"`\\{found[0]}` is no character.")
            character = chr(code)
        elif following in _CHARACTERS:
            self.at += 2
            return _CHARACTERS[following]
        elif following.isdigit():
            raise DialectError(f"back-references (`\\{following}`) and octal numbers are not possible.")
        elif following in ("n", "r"):
            character = "\n"
        elif following == "" or following.isalnum() or not following.isascii():
            raise DialectError(f"`\\{following}` means nothing.")
        else:
            self.at += 2
            return following
        return _findable(character)

    def _property(self) -> tuple[str, str, bool]:
        """``\\p{Greek}``: for ripgrep, what it is inside a Python set, and whether it is negated."""
        found = re.compile(r"([pP])(?:\{([\w =:-]{1,40})\}|([A-Za-z]))").match(self.text, self.at + 1)
        inside = None if found is None else property_class(found[2] or found[3])
        if found is None or inside is None:
            shown = self.text[self.at : self.at + 20]
            raise DialectError(f"`{shown}` is no Unicode property that is known here.")
        self.at = found.end()
        return f"\\{found[0]}", inside, found[1] == "P"

    def _repetition(self) -> re.Match[str] | None:
        found = _REPETITION.match(self.text, self.at)
        return found if found is not None and (found[1] or found[3]) and (found[2] or not found[3]) else None

    def _repeated(self, piece: _Piece, flags: _Flags) -> _Piece:
        while self.at < len(self.text):
            if flags.verbose and self.text[self.at].isspace():
                self.at += 1
                continue
            most = 2
            found = self._repetition() if self.text[self.at] == "{" else None
            if found is not None:
                least = int(found[1] or 0)
                most = int(found[3]) if found[3] else least
                if max(least, most) > _MOST_REPEATED or (found[3] and most < least):
                    raise DialectError(f"`{found[0]}` cannot be: at most {_MOST_REPEATED:,}, the smaller number first.")
                self.at = found.end()
                text = f"{{{least}}}" if not found[2] else f"{{{least},{found[3]}}}"
            elif self.text[self.at] in "*+?":
                text = self.text[self.at]
                self.at += 1
            else:
                return piece
            lazy = self.text.startswith("?", self.at)
            self.at += lazy
            text += "?" if lazy != flags.swapped else ""
            if not piece.atom:
                piece = _Piece(f"(?:{piece.ripgrep})", f"(?:{piece.python})", piece.size)
            size = max(piece.size, piece.size * most)
            if size > _LARGEST:
                raise DialectError("it is too large, with all its repetitions. Search for a part of it.")
            piece = _Piece(piece.ripgrep + text, piece.python + text, size, atom=False)
        return piece

    def _set(self, flags: _Flags) -> _Piece:
        """``[...]``, with sets in it and ``&&``, ``--`` and ``~~`` between them."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise DialectError(f"its sets are nested more than {_DEEPEST} deep.")
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        ripgrep, python = self._operand(flags, first=True)
        while self.text[self.at : self.at + 2] in _SET_OPERATORS:
            operator = self.text[self.at : self.at + 2]
            self.at += 2
            right, other = self._operand(flags, first=False)
            ripgrep += operator + right
            python = {
                "&&": f"(?:(?={other}){python})",
                "--": f"(?:(?!{other}){python})",
                "~~": f"(?:(?!{other}){python}|(?!{python}){other})",
            }[operator]
            if len(python) > _LARGEST:
                raise DialectError("it is too large. Search for a part of it.")
        if not self.text.startswith("]", self.at):
            raise DialectError("a `[` is not closed; escape it as `\\[` to find it.")
        self.at += 1
        self.depth -= 1
        if negated:
            simple = python.startswith("[") and not python.startswith("[^")
            python = f"[^{python[1:-1]}{_NEVER}]" if simple else f"(?:(?!{python})[^{_NEVER}])"
        return _Piece(f"[{'^' if negated else ''}{ripgrep}]", python, _CLASS_SIZE)

    def _operand(self, flags: _Flags, *, first: bool) -> tuple[str, str]:
        """The items of a set up to its end or an operator: for ripgrep without brackets, for Python as one piece."""
        ripgrep, inside, others = "", "", list[str]()
        begun = not first
        while self.at < len(self.text):
            text = self.text
            if (text[self.at] == "]" and begun) or (begun and text[self.at : self.at + 2] in _SET_OPERATORS):
                break
            begun = True
            if flags.verbose and text[self.at].isspace():
                self.at += 1
            elif (found := re.compile(r"\[:(\^?)([a-z]+):\]").match(text, self.at)) is not None:
                if found[2] not in _POSIX:
                    raise DialectError(f"`{found[0]}` is no class of characters.")
                self.at = found.end()
                ripgrep += found[0]
                if found[1]:
                    others.append(f"[^{_POSIX[found[2]]}{_NEVER}]")
                else:
                    inside += _POSIX[found[2]]
            elif text[self.at] == "[":
                piece = self._set(flags)
                ripgrep += piece.ripgrep
                others.append(piece.python)
            else:
                ripgrep_item, python_item, other = self._item()
                ripgrep, inside = ripgrep + ripgrep_item, inside + python_item
                others += [other] if other else []
        if inside:
            others.insert(0, f"[{inside}]")
        return ripgrep, others[0] if len(others) == 1 else f"(?:{'|'.join(others) or '(?!)'})"

    def _item(self) -> tuple[str, str, str]:
        """A character, range or class in a set: for ripgrep, for Python, and what Python needs as a set of its own."""
        if self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in (*_NAMED, "p", "P"):
            name = self.text[self.at + 1]
            if name in "pP":
                ripgrep, inside, negated = self._property()
            else:
                ripgrep, inside, negated = f"\\{name}", _NAMED[name][0], False
                self.at += 2
            if re.compile(r"-[^\]-]").match(self.text, self.at):
                raise DialectError(f"a range cannot begin with `{ripgrep}`; put the `-` last.")
            if name in "DSW":
                return ripgrep, "", _NAMED[name][1]
            return (ripgrep, "", f"[^{inside}{_NEVER}]") if negated else (ripgrep, inside, "")
        first = self._single()
        last = first
        if self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] not in ("", "]", "-"):
            self.at += 1
            if self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in _NAMED:
                raise DialectError("a range cannot end with a class of characters; put the `-` last.")
            last = self._single()
            if last < first:
                raise DialectError(f"the range `{first}-{last}` runs backwards.")
        text = "-".join(map(_in_set, dict.fromkeys((first, last))))
        return text, text, ""

    def _single(self) -> str:
        if self.text[self.at] == "\\":
            if self.text[self.at + 1 : self.at + 2] == "b":
                raise DialectError("`\\b` in a set means nothing.")
            return self._character()
        character = self.text[self.at]
        self.at += 1
        return _findable(character)


def _changed(flags: _Flags, on: str, off: str) -> _Flags:
    values = {"x": flags.verbose, "U": flags.swapped, "i": flags.ignore_case}
    for letters, value in ((on, True), (off, False)):
        for letter in letters:
            if letter in values:
                values[letter] = value
            elif letter not in "msR" and (letter, value) != ("u", True):  # these change nothing within one line
                raise DialectError(f"the flag `{'' if value else '-'}{letter}` is not possible.")
    return _Flags(bool(values["x"]), bool(values["U"]), values["i"])


def _case_prefix(flags: _Flags) -> str:
    return {None: "(?:", True: "(?i:", False: "(?-i:"}[flags.ignore_case]


def _findable(character: str) -> str:
    """The character, if a line of text can hold it. Raises DialectError."""
    if character in "\r\n":
        raise DialectError("it asks for a line break, but lines are matched one by one. Search for a part.")
    if character == "\0":
        raise DialectError("it asks for a NUL, which no text holds.")
    return character


def _literal(character: str) -> _Piece:
    return _Piece(f"\\{character}" if character in r"\.+*?()|[]{}^$#&-~" else character, re.escape(character))


def _in_set(character: str) -> str:
    return f"\\{character}" if character in r"\[]^-&~" else character
