"""A shell command seen as words: enough to recognise what must never run, not enough to call anything safe.

Quotes and escapes are resolved as a shell would; the text is cut at the operators that start another command, and
the insides of ``$( )``, backquotes and quoted strings given to ``bash -c`` or ``eval`` are looked at as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_OPERATOR = re.compile(r"^[;&|()<>\n]+$")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)|`([^`]*)`|[<>]\(([^()]*)\)")
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\+?=")
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"}
_KEYWORDS = {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "time", "coproc", "function"}
# Programs that run the rest of their words as a command; the options of theirs that take a word of their own.
_WRAPPERS: dict[str, set[str]] = {
    "sudo": {"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "--user", "--group"},
    "doas": {"-u", "-C"},
    "env": {"-u", "-C", "-S", "--unset", "--chdir"},
    "nohup": set(), "setsid": set(), "exec": {"-a"}, "command": set(), "builtin": set(), "busybox": set(),
    "nice": {"-n"}, "ionice": {"-c", "-n"}, "timeout": {"-s", "-k", "--signal", "--kill-after"},
    "stdbuf": {"-i", "-o", "-e"},
    "watch": {"-n", "--interval"}, "xargs": {"-I", "-n", "-P", "-L", "-d", "-a", "-s"}, "time": {"-f", "-o"},
    "chroot": set(), "unshare": set(), "parallel": {"-j"}, "script": {"-c"},
}  # fmt: skip
_MAX_DEPTH = 6


def simple_commands(text: str, depth: int = 0) -> Iterator[list[str]]:
    """The words of every simple command that can be seen in ``text``, wrappers and assignments taken off.

    Text that no shell could read (an unclosed quote) is split at white space. Bounded in depth.
    """
    if depth > _MAX_DEPTH:
        return
    text = text.replace("\\\n", "")
    for found in _SUBSTITUTION.finditer(text):
        inner = next(group for group in found.groups() if group is not None)
        yield from simple_commands(inner, depth + 1)
    for words in _split(text):
        yield from _unwrapped(words, depth)


def _split(text: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        tokens = text.split()
    words: list[str] = []
    for token in tokens:
        if _OPERATOR.match(token):
            if set(token) <= set("<>"):
                continue  # a redirection: its target stays a word of the command
            if words:
                yield words
            words = []
        else:
            words.append(token)
    if words:
        yield words


def _unwrapped(words: list[str], depth: int) -> Iterator[list[str]]:
    while words:
        name = words[0].rsplit("/", 1)[-1]
        if _ASSIGNMENT.match(words[0]) or words[0] in _KEYWORDS:
            words = words[1:]
        elif name in _SHELLS and any(_is_command_flag(word) for word in words[1:]):
            flag = next(index for index, word in enumerate(words[1:], 1) if _is_command_flag(word))
            if flag + 1 < len(words):
                yield from simple_commands(words[flag + 1], depth + 1)
            return
        elif name == "eval":
            yield from simple_commands(" ".join(words[1:]), depth + 1)
            return
        elif name in _WRAPPERS:
            yield [name, *words[1:]]
            words = _after_options(words[1:], _WRAPPERS[name], takes_number=name in {"timeout"})
        else:
            yield [name, *words[1:]]
            return


def _is_command_flag(word: str) -> bool:
    return bool(re.match(r"^-[a-zA-Z]*c[a-zA-Z]*$", word))


def _after_options(words: list[str], with_value: set[str], *, takes_number: bool) -> list[str]:
    index = 0
    while index < len(words) and (words[index].startswith("-") or _ASSIGNMENT.match(words[index])):
        index += 2 if words[index] in with_value else 1
    if takes_number and index < len(words) and words[index][:1].isdigit():
        index += 1
    return words[index:]
