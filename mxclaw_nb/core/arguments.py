"""From the JSON text that a model wrote to validated arguments, or to a sentence that tells the model what is wrong."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from mxclaw_nb.text import encodable


class InvalidArguments(Exception):
    """The arguments cannot be used; ``str()`` is the sentence for the model."""


def parse_arguments(text: str, *, truncated: bool = False) -> dict[str, Any]:
    """The JSON object in ``text``; nothing at all counts as no arguments. Never guesses at a cut-off text.

    ``truncated``: this is the last call of a reply that hit the output limit, so a text that does not parse, or holds
    nothing, was cut.
    """
    if truncated and not _complete(text):
        raise InvalidArguments(
            "The call was truncated by the output limit and was not executed. "
            "Send it again with less content, or in several smaller calls."
        )
    if not text.strip():
        return {}
    try:
        value: Any = from_json(text)
    except ValueError as error:
        value = _with_lone_surrogates(text, error)
    if not isinstance(value, dict):
        raise InvalidArguments("The arguments must be one JSON object, such as {}. The call was not executed.")
    return value


def validate_arguments(model: type[BaseModel], value: dict[str, Any]) -> BaseModel:
    """The arguments as the tool's own type. Raises InvalidArguments that names each field and what is expected."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(
            f"{clipped('.'.join(map(str, item['loc']))) or 'arguments'}: {clipped(item['msg'], 300)}"
            for item in error.errors(include_url=False, include_input=False, include_context=False)[:10]
        )
        expected = ", ".join(
            f"{name}{'' if field.is_required() else ' (optional)'}" for name, field in model.model_fields.items()
        )
        raise InvalidArguments(
            f"The arguments are not valid and the call was not executed. {problems}. Expected: {expected or 'nothing'}."
        ) from None


def clipped(text: str, limit: int = 100) -> str:
    """``text``, or its beginning and an ellipsis: for a sentence that quotes what a model wrote."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _complete(text: str) -> bool:
    try:
        return bool(from_json(text))
    except ValueError:
        return False


def _with_lone_surrogates(text: str, error: ValueError) -> Any:
    """A second reading for text whose only fault is an escape of half a surrogate pair."""
    try:
        return _mended(json.loads(text))
    except (ValueError, RecursionError):
        raise InvalidArguments(
            f"The arguments are not valid JSON ({error}) and the call was not executed. Send the call again."
        ) from None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {encodable(name): _mended(item) for name, item in value.items()}
    return value
