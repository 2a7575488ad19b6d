"""Text that a model, a tool or a file produced, made fit to be shown to a person. Pure, standard library only."""

from .arguments import named_values
from .controls import ControlStripper, plain
from .invisible import escape_invisible, is_invisible
from .surrogates import encodable
from .width import column_width, fit, last_words, one_line, text_width

__all__ = [
    "ControlStripper",
    "column_width",
    "encodable",
    "escape_invisible",
    "fit",
    "is_invisible",
    "last_words",
    "named_values",
    "one_line",
    "plain",
    "text_width",
]
