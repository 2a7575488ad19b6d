"""The simple commands in a shell command: enough to recognise what must never run, not to call anything safe.

Wrappers (``sudo``, ``env``, ``timeout`` ...) and keywords are taken off; what shells are given to run (``-c``, a
here-document, ``echo ... | sh``), ``eval``, ``trap`` and substitutions are looked into. Variables set in the text
itself, ``cd`` and braces are followed; ``$HOME`` is written as ``~``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .lexing import LITERAL, Operator, Redirection, Word, tokens

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"(?<!\0)\$(?:\{(\w+)(?:\}|[:%#/?+=-][^{}]*\})|(\w+))")
_BRACES = re.compile(r"(?<![\0$])\{([^{}]*?(?<!\0),[^{}]*)\}")
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"}
_KEYWORDS = {
    "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "!", "{", "}", "time", "coproc", "esac",
}  # fmt: skip
# Programs that run the rest of their words as a command: the options of theirs that take a word of their own, and
# how many words go before the command.
_WRAPPERS: dict[str, tuple[set[str], int]] = {
    "sudo": ({"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "--user", "--group"}, 0),
    "doas": ({"-u", "-C"}, 0),
    "env": ({"-u", "-C", "--unset", "--chdir"}, 0),
    "nohup": (set(), 0), "setsid": (set(), 0), "exec": ({"-a"}, 0), "builtin": (set(), 0), "command": (set(), 0),
    "busybox": (set(), 0), "toybox": (set(), 0), "nice": ({"-n", "--adjustment"}, 0),
    "ionice": ({"-c", "-n", "-p"}, 0), "timeout": ({"-s", "-k", "--signal", "--kill-after"}, 1),
    "stdbuf": ({"-i", "-o", "-e"}, 0), "watch": ({"-n", "--interval"}, 0),
    "xargs": ({"-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E"}, 0), "time": ({"-f", "-o"}, 0), "chroot": (set(), 1),
    "unshare": (set(), 0), "parallel": ({"-j"}, 0), "taskset": (set(), 1), "numactl": (set(), 0), "chrt": (set(), 1),
    "strace": ({"-o", "-e", "-p"}, 0), "caffeinate": (set(), 0), "uvx": (set(), 0),
}  # fmt: skip
_RUNNERS = {"uv", "poetry", "pdm", "hatch", "pipenv", "conda", "mamba", "micromamba", "pixi", "pipx", "rye"}
_RUNNER_VALUES = {"-n", "-p", "--name", "--prefix", "--with", "--python", "--project", "--directory", "-e"}
_TAKES_TEXT = {"su": "-c", "script": "-c", "runuser": "-c"}
_MAX_DEPTH, _MAX_WRAPPERS, _MAX_WORDS = 6, 12, 64
_MAX_VALUE, _MAX_VARIABLES, _MAX_USED = 1_024, 256, 16  # characters; names; variables in one word


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: ``words`` as it would get them, its name without folders first.

    ``writes`` are the files that its output is redirected to, ``stdin`` the text that it is given, ``folder`` where it
    runs (None: where the whole text starts), ``source`` the command whose output it is piped.
    """

    words: list[str]
    writes: tuple[str, ...] = ()
    stdin: str | None = None
    folder: str | None = None
    source: Command | None = None


def simple_commands(text: str) -> Iterator[Command]:
    """Every simple command that can be seen in ``text``, in time that grows with its length. Never raises."""
    yield from _Reader({}, None, 0).read(text)


@dataclass(slots=True)
class _Reader:
    """Reads one text. ``variables`` are those set so far, ``folder`` is where ``cd`` has led."""

    variables: dict[str, str]
    folder: str | None
    depth: int
    words: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    documents: list[Redirection] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    piped: Command | None = None

    def read(self, text: str) -> Iterator[Command]:
        if self.depth > _MAX_DEPTH:
            return
        outer: list[str | None] = []
        for token in [*tokens(text), Operator("\n")]:
            if isinstance(token, Word):
                self.inner += token.inner
                self.words += self._expanded(token.text) if token.text or token.quoted else []
            elif isinstance(token, Redirection):
                self.inner += token.target.inner
                self.documents.append(token)
                if ">" in token.operator:
                    self.writes += self._expanded(token.target.text)
            elif token.text == "(" and len(self.words) == 1:
                self.words = []  # the name of a function that is being defined
            else:
                yield from self._end(piped=token.text in ("|", "|&"))
                if token.text == "(":
                    outer.append(self.folder)
                elif token.text == ")" and outer:
                    self.folder = outer.pop()

    def _end(self, *, piped: bool) -> Iterator[Command]:
        """The command that ends here."""
        words, writes, inner, documents = self.words, tuple(self.writes), self.inner, self.documents
        self.words, self.writes, self.inner, self.documents = [], [], [], []
        for text in inner:
            yield from self._below(text)
        if not words and not writes:
            return
        bodies = [document.body for document in documents if document.body is not None]
        stdin = bodies[-1] if bodies else None
        source, self.piped = self.piped, None
        command = Command(words or [""], writes, stdin, self.folder, source)
        for each in self._unwrapped(command):
            yield each
            if piped:
                self.piped = each
        if piped and self.piped is None:
            self.piped = command

    def _below(self, text: str) -> Iterator[Command]:
        yield from _Reader(dict(self.variables), self.folder, self.depth + 1).read(text)

    def _unwrapped(self, command: Command, nested: int = 0) -> Iterator[Command]:
        words = self._after_assignments(command.words)
        for _ in range(_MAX_WRAPPERS):
            if not words:
                break
            name = words[0].rsplit("/", 1)[-1]
            now = replace(command, words=[name, *words[1:]])
            if words[0] in ("for", "select") and words[2:3] == ["in"]:
                self._assign(words[1], " ".join(words[3:]))
                return
            elif name in _SHELLS:
                yield now
                yield from self._shell(now)
                return
            elif name in ("eval", "trap") or name in _TAKES_TEXT:
                yield now
                yield from self._given_text(name, words)
                return
            elif name == "command" and re.fullmatch(r"-[pvV]*[vV][pvV]*", "".join(words[1:2])):
                yield replace(now, words=["type", *words[2:]])  # asks what it is, and does not run it
                return
            elif (rest := _after_wrapper(name, words)) is not None:
                yield now
                if name == "env":
                    yield from self._split_by_env(words)
                words = self._after_assignments(rest)
            else:
                yield now
                yield from self._special(now, nested)
                return
        yield replace(command, words=words or ["", *command.words])

    def _after_assignments(self, words: list[str]) -> list[str]:
        """The words without the keywords and assignments at their start; the values are remembered."""
        index = 0
        while index < len(words):
            if (found := _ASSIGNMENT.fullmatch(words[index])) is not None:
                self._assign(found[1], found[2])
            elif words[index] == "function" and index + 2 < len(words):
                index += 1
            elif words[index] not in _KEYWORDS:
                break
            index += 1
        return words[index:]

    def _assign(self, name: str, value: str) -> None:
        if len(self.variables) < _MAX_VARIABLES or name in self.variables:
            self.variables[name] = value[:_MAX_VALUE]

    def _special(self, now: Command, nested: int) -> Iterator[Command]:
        """Commands that change what the next ones mean, or run others."""
        name, rest = now.words[0], now.words[1:]
        operands = [word for word in rest if not word.startswith("-")]
        if name in ("cd", "pushd"):
            self.folder = joined(self.folder, operands[0]) if operands else "~"
        elif name in ("export", "declare", "local", "readonly", "typeset"):
            for word in operands:
                if (found := _ASSIGNMENT.fullmatch(word)) is not None:
                    self._assign(found[1], found[2])
        elif name == "find" and nested < _MAX_DEPTH:
            start: int | None = None
            for index, word in enumerate([*rest, ";"]):
                if start is None and word in ("-exec", "-execdir", "-ok", "-okdir"):
                    start = index + 1
                elif start is not None and word in (";", "+"):
                    yield from self._unwrapped(replace(now, words=rest[start:index], writes=()), nested + 1)
                    start = None

    def _shell(self, now: Command) -> Iterator[Command]:
        """What a shell is given to run: by ``-c``, or on its input."""
        words = now.words
        flag = next((index for index, word in enumerate(words) if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word)), None)
        if flag is not None:
            text = next((word for word in words[flag + 1 :] if not word.startswith(("-", "+"))), "")
            yield from self._below(text)
            return
        if now.stdin is not None:
            yield from self._below(now.stdin)
        source = now.source
        if source is not None and source.words[0] in ("echo", "printf"):
            text = " ".join(word for word in source.words[1:] if not re.fullmatch(r"-[neE]+", word))
            yield from self._below(text.replace("\\n", "\n"))
        elif source is not None and source.words[0] == "cat" and source.stdin is not None:
            yield from self._below(source.stdin)

    def _given_text(self, name: str, words: list[str]) -> Iterator[Command]:
        if name == "eval":
            yield from self._below(" ".join(words[1:]))
        elif name == "trap":
            yield from self._below(next((word for word in words[1:] if not word.startswith("-")), ""))
        elif _TAKES_TEXT[name] in words:
            yield from self._below(" ".join(words[words.index(_TAKES_TEXT[name]) + 1 :][:1]))

    def _split_by_env(self, words: list[str]) -> Iterator[Command]:
        for index, word in enumerate(words):
            if word in ("-S", "--split-string") and index + 1 < len(words):
                yield from self._below(words[index + 1])
            elif word.startswith("--split-string="):
                yield from self._below(word.partition("=")[2])

    def _expanded(self, text: str) -> list[str]:
        """The words that a word becomes: braces, then variables that are known; quotes are taken off at last."""
        if "$" not in text and "{" not in text and LITERAL not in text:
            return [text]
        found = []
        for each in _braces(text):
            each = _VARIABLE.sub(self._value, each, _MAX_USED)
            live = each if each.startswith("~") else re.sub(r"^\0~", "./~", each)
            found += live.split() if "$" in text and not re.search(r"\0\s", live) else [live]
        return [each.replace(LITERAL, "") for each in found] or [""]

    def _value(self, found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name in self.variables:
            return self.variables[name]
        return "~" if name == "HOME" else found[0]


def joined(folder: str | None, path: str) -> str:
    """A path as seen from a folder; both may start with ``~``."""
    if path.startswith(("/", "~")) or folder is None or len(folder) > _MAX_VALUE:
        return path
    return f"{folder.rstrip('/')}/{path}"


def _after_wrapper(name: str, words: list[str]) -> list[str] | None:
    """The command that a wrapper runs, None if this is no wrapper."""
    if name in _WRAPPERS:
        with_value, before = _WRAPPERS[name]
        return _after_options(words[1:], with_value, numbers=name == "nice")[before:]
    if name in _RUNNERS and "run" in words[1:3]:
        return _after_options(words[words.index("run") + 1 :], _RUNNER_VALUES)
    return None


def _after_options(words: list[str], with_value: set[str], *, numbers: bool = False) -> list[str]:
    index = 0
    while index < len(words) and (words[index].startswith("-") or (not numbers and _is_assignment(words[index]))):
        if words[index] == "--":
            return words[index + 1 :]
        index += 2 if words[index] in with_value else 1
    return words[index:]


def _is_assignment(word: str) -> bool:
    return _ASSIGNMENT.fullmatch(word) is not None


def _braces(text: str) -> list[str]:
    """``a{b,c}`` as ``ab`` and ``ac``; at most so many that nothing explodes."""
    done: list[str] = []
    pending = [text]
    while pending and len(done) + len(pending) < _MAX_WORDS:
        current = pending.pop()
        found = _BRACES.search(current)
        if found is None:
            done.append(current)
        else:
            parts = re.split(r"(?<!\0),", found[1])
            pending += [current[: found.start()] + part + current[found.end() :] for part in reversed(parts)]
    return done + pending
