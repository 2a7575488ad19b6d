"""A shell command cut into words, operators and redirections, as bash cuts it.

Quotes, escapes, comments, here-documents and substitutions are read as bash reads them; nothing is evaluated. A word
keeps, beside its text, what bash would still expand in it, so that a quoted ``~`` or ``*`` is not taken for a live one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_REDIRECTION = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|<>|<&|>>|>&|>\||<|>)|&>>?")
_OPERATOR = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[;&|()\n]")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)
_PLAIN = re.compile(r"[^\s\\'\"$`<>;&|()]+")
_PLAIN_QUOTED = re.compile(r'[^\\"$`]+')
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_DEEPEST = 6  # of ``${...}`` in one another
LITERAL = "\0"
"""Stands before a character of a word that quotes keep from being expanded."""


@dataclass(slots=True)
class Word:
    """``text`` with ``LITERAL`` before each special character that was quoted; ``inner`` are commands in it."""

    text: str
    inner: tuple[str, ...] = ()
    quoted: bool = False


@dataclass(slots=True)
class Operator:
    """``;``, ``&&``, ``|``, ``(``, a newline and so on."""

    text: str


@dataclass(slots=True)
class Redirection:
    """``>``, ``<``, ``<<`` and so on with what follows; ``body`` is the text of a here-document or here-string."""

    operator: str
    target: Word
    body: str | None = None


Token = Word | Operator | Redirection


def tokens(text: str) -> Iterator[Token]:
    """Everything in the text, in order. Never raises: what is left open ends with the text."""
    yield from _Lexer(text).run()


@dataclass(slots=True)
class _Lexer:
    text: str
    at: int = 0
    depth: int = 0
    waiting: list[Redirection] = field(default_factory=list)  # here-documents whose bodies are still to come

    def run(self) -> Iterator[Token]:
        text = self.text
        while self.at < len(text):
            character = text[self.at]
            if character in " \t" or text.startswith("\\\n", self.at):
                self.at += 1 if character != "\\" else 2
            elif character == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif character in "<>" and text.startswith("(", self.at + 1):
                yield self._word()
            elif found := _REDIRECTION.match(text, self.at):
                self.at = found.end()
                yield self._redirection(found[0])
            elif found := _OPERATOR.match(text, self.at):
                self.at = found.end()
                yield Operator(found[0])
                if found[0] == "\n":
                    yield from self._bodies()
            else:
                yield self._word()

    def _redirection(self, operator: str) -> Redirection:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        plain = operator.lstrip("0123456789")
        found = Redirection(plain, self._word())
        if plain == "<<<":
            found.body = found.target.text.replace(LITERAL, "")
        elif plain in ("<<", "<<-"):
            self.waiting.append(found)
        return found

    def _bodies(self) -> Iterator[Token]:
        """The here-documents that begin on this line; commands in the unquoted ones are words of no command."""
        for document in self.waiting:
            lines = []
            end_word = document.target.text.replace(LITERAL, "")
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                line = self.text[self.at :] if end < 0 else self.text[self.at : end]
                self.at = len(self.text) if end < 0 else end + 1
                if document.operator == "<<-":
                    line = line.lstrip("\t")
                if line == end_word:
                    break
                lines.append(line)
            document.body = "\n".join(lines)
            if not document.target.quoted:
                yield Word("", _Lexer(document.body)._substitutions())
                yield Operator("\n")
        self.waiting.clear()

    def _substitutions(self) -> tuple[str, ...]:
        """The commands in a text in which only ``$( )`` and backquotes mean something."""
        inner: list[str] = []
        while self.at < len(self.text):
            if self.text[self.at] == "\\":
                self.at += 2
            elif self.text[self.at] in "$`":
                self._dollar_or_backquote(inner)
            else:
                self.at += 1
        return tuple(inner)

    def _word(self) -> Word:
        parts: list[str] = []
        inner: list[str] = []
        quoted = False
        text = self.text
        while self.at < len(text):
            character = text[self.at]
            if character == "\\":
                following = text[self.at + 1 : self.at + 2]
                quoted = quoted or following != "\n"
                parts.append("" if following in ("\n", "") else LITERAL + following)
                self.at += 2
            elif character == "'":
                quoted = True
                end = text.find("'", self.at + 1)
                end = len(text) if end < 0 else end
                parts.append(_literal(text[self.at + 1 : end]))
                self.at = end + 1
            elif character == '"' or text.startswith('$"', self.at):
                quoted = True
                self.at += 1 if character == '"' else 2
                parts.append(self._double_quoted(inner))
            elif text.startswith("$'", self.at):
                quoted = True
                self.at += 2
                parts.append(self._ansi_quoted())
            elif character in "$`":
                parts.append(self._dollar_or_backquote(inner))
            elif character in "<>" and text.startswith("(", self.at + 1):
                self.at += 1
                inner.append(self._bracketed("(", ")"))
                parts.append(LITERAL + "(")
            elif character in " \t\n;&|()<>":
                break
            else:
                found = _PLAIN.match(text, self.at)
                parts.append(character if found is None else found[0])
                self.at += len(parts[-1])
        return Word("".join(parts), tuple(inner), quoted)

    def _double_quoted(self, inner: list[str]) -> str:
        parts: list[str] = []
        text = self.text
        while self.at < len(text) and text[self.at] != '"':
            character = text[self.at]
            if character == "\\":
                following = text[self.at + 1 : self.at + 2]
                if following in ("$", "`", '"', "\\"):
                    parts.append(LITERAL + following)
                elif following != "\n":
                    parts.append(_literal("\\" + following))
                self.at += 2
            elif character in "$`":
                parts.append(self._dollar_or_backquote(inner))
            elif (found := _PLAIN_QUOTED.match(text, self.at)) is not None:
                parts.append(_literal(found[0]))
                self.at = found.end()
        self.at += 1
        return "".join(parts)

    def _ansi_quoted(self) -> str:
        """``$'...'``: escapes as in C."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at] != "'":
            self.at += 2 if self.text[self.at] == "\\" else 1
        raw = self.text[start : self.at]
        self.at += 1
        return _literal(_ESCAPE.sub(_unescaped, raw))

    def _dollar_or_backquote(self, inner: list[str]) -> str:
        """At ``$`` or a backquote: the text to keep; commands go to ``inner``."""
        text = self.text
        if text[self.at] == "`":
            start = self.at + 1
            self.at = start
            while self.at < len(text) and text[self.at] != "`":
                self.at += 2 if text[self.at] == "\\" else 1
            inner.append(re.sub(r"\\([$`\\])", r"\1", text[start : self.at]))
            self.at += 1
            return "$()"
        if text.startswith("$(", self.at):
            self.at += 1
            inner.append(self._bracketed("(", ")"))
            return "$()"
        if text.startswith("${", self.at):
            self.at += 1
            body = self._bracketed("{", "}")
            if self.depth < _DEEPEST:
                inner.extend(_Lexer(body, depth=self.depth + 1)._substitutions())
            return "${" + body + "}"
        self.at += 1
        return "$"

    def _bracketed(self, opening: str, closing: str) -> str:
        """What is between brackets, quotes in it skipped; stands at the opening one."""
        text, start, depth = self.text, self.at + 1, 0
        while self.at < len(text):
            character = text[self.at]
            if character == "\\":
                self.at += 1
            elif character == "'":
                end = text.find("'", self.at + 1)
                self.at = len(text) if end < 0 else end
            elif character == opening:
                depth += 1
            elif character == closing:
                depth -= 1
                if depth == 0:
                    self.at += 1
                    return text[start : self.at - 1]
            self.at += 1
        return text[start:]


def _literal(text: str) -> str:
    """The text with its special characters marked as quoted."""
    return re.sub(r"[~$*?\[\]{},\\=\s]", lambda found: LITERAL + found[0], text)


def _unescaped(found: re.Match[str]) -> str:
    for digits, base in zip(found.groups()[:4], (16, 16, 16, 8), strict=False):
        if digits is not None:
            code = int(digits, base)
            return chr(code) if code <= 0x10FFFF else "\ufffd"
    return _SHORT.get(found[5], found[5])
