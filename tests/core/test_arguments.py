"""From the JSON text that a model wrote to validated arguments, or to a sentence for the model."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

from mxclaw_nb.core.arguments import InvalidArguments, parse_arguments, validate_arguments
from mxclaw_nb.text import encodable


class ReadFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    path: str
    limit: int = 10


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_no_text_is_no_arguments(text: str) -> None:
    assert parse_arguments(text) == {}


@pytest.mark.parametrize(
    "text", ['{"path":"a', "{", "nonsense", '{"a":1}{"a":2}', "[1]", "null", '"x"', "5", "{'a':1}"]
)
def test_what_is_no_object_is_refused_and_never_guessed_at(text: str) -> None:
    with pytest.raises(InvalidArguments, match="not executed"):
        parse_arguments(text)


@pytest.mark.parametrize("text", ["", '{"path":"a', "{"])
def test_s23_a_call_cut_by_the_output_limit_says_so(text: str) -> None:
    with pytest.raises(InvalidArguments, match="truncated by the output limit"):
        parse_arguments(text, truncated=True)


def test_a_whole_call_in_a_reply_that_hit_the_limit_is_still_a_call() -> None:
    assert parse_arguments('{"path":"a"}', truncated=True) == {"path": "a"}


def test_s43_the_halves_of_an_escaped_pair_become_one_character() -> None:
    assert parse_arguments('{"a":"\\ud83c\\udf78"}') == {"a": "\U0001f378"}


def test_s44_half_a_pair_is_replaced_and_nothing_raises() -> None:
    assert parse_arguments('{"a":"\\ud83d x", "b":["\\udc00"]}') == {"a": "\ufffd x", "b": ["\ufffd"]}
    assert encodable("a\ud83d") == "a\ufffd"
    assert encodable("\ud83c\udf78") == "\U0001f378"


def test_f22_a_windows_path_survives() -> None:
    assert parse_arguments('{"path":"C:\\\\Users\\\\unicorn\\\\table"}') == {"path": "C:\\Users\\unicorn\\table"}


@pytest.mark.parametrize(
    "value", [{"path": 5}, {"path": None}, {}, {"path": "a", "nope": 1}, {"path": "a", "limit": "3"}]
)
def test_f23_a_wrong_type_names_the_field_and_what_was_expected(value: dict[str, object]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        validate_arguments(ReadFile, value)
    text = str(caught.value)
    assert "not executed" in text and "Expected: path, limit (optional)" in text
    assert any(name in text for name in ("path", "nope", "limit"))


def test_deeply_nested_text_neither_raises_anything_else_nor_crashes() -> None:
    with pytest.raises(InvalidArguments):
        parse_arguments('{"a":' * 100_000)
