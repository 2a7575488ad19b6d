"""Text that grows: printed as it comes, append-only, with the lightest of markdown styling.

Prose is broken between words; code is left to the terminal, so that it can be copied. Headings, fenced and inline code
get a style; the marks stay, so what is on the screen is what the model wrote.
"""

from __future__ import annotations

import re

from rich.console import Console
from rich.text import Text

from ..text import ControlStripper
from .wrapping import WordWrapper

CODE = "cyan"
_DECIDED = re.compile(r" {0,3}(?:(?P<heading>#{1,6})[ \t]|(?P<fence>```|~~~))")
_UNDECIDED = re.compile(r" {0,3}(?:#{0,6}|`{0,2}|~{0,2})")


class TextStream:
    """One block of streamed text. ``style`` lies under everything (dim for reasoning)."""

    def __init__(self, console: Console, *, style: str = "", markdown: bool = True) -> None:
        self._console = console
        self._style = style
        self._markdown = markdown
        self._stripper = ControlStripper()
        self._wrapper = WordWrapper(self._write, lambda: console.width)
        self._held = ""  # the beginning of a line, while its style is not known
        self._line_started = False
        self._line_style = ""
        self._fence = ""
        self._inline = False
        self._column_zero = True

    def feed(self, piece: str) -> None:
        """Show some more."""
        self._take(self._stripper.feed(piece))

    def finish(self) -> None:
        """Show what was held back, and end the line."""
        self._take(self._stripper.finish())
        held, self._held = self._held, ""
        self._wrapper.feed(held, self._line_style)
        self._wrapper.flush()
        if not self._column_zero:
            self._write("\n", "")

    def _take(self, text: str) -> None:
        if not self._markdown:
            self._wrapper.feed(text, "")
            return
        for line in text.splitlines(keepends=True) if "\n" in text else [text]:
            self._take_line(line)

    def _take_line(self, text: str) -> None:
        ends = text.endswith("\n")
        if not self._line_started:
            self._held += text
            if not ends and _UNDECIDED.fullmatch(self._held):
                return
            text, self._held = self._held, ""
            self._begin_line(text)
        if self._fence or self._line_style == CODE:
            self._wrapper.verbatim(text, CODE)
        elif self._line_style:
            self._wrapper.feed(text, self._line_style)
        else:
            self._put_inline(text)
        if ends:
            self._line_started, self._line_style, self._inline = False, "", False

    def _begin_line(self, text: str) -> None:
        self._line_started = True
        decided = _DECIDED.match(text)
        if decided is None:
            return
        fence = decided["fence"]
        if fence and self._fence in ("", fence):
            self._fence, self._line_style = ("" if self._fence else fence), CODE
        elif decided["heading"] and not self._fence:
            self._line_style = "bold"

    def _put_inline(self, text: str) -> None:
        for index, part in enumerate(text.split("`")):
            if index:
                opening = not self._inline
                self._inline = not self._inline
                self._wrapper.feed("`" + part if opening else "`", CODE)
                if opening:
                    continue
            self._wrapper.feed(part, CODE if self._inline else "")

    def _write(self, text: str, style: str) -> None:
        if not text:
            return
        self._column_zero = text.endswith("\n")
        style = f"{self._style} {style}".strip()
        if style:
            self._console.print(Text(text, style), end="", soft_wrap=True)
        else:
            self._console.file.write(text)
