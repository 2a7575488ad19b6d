"""``set`` and ``settings``."""

from __future__ import annotations

import click
from pydantic_core import from_json

from mxclaw_nb.permissions import rule_problem
from mxclaw_nb.protocol import Settings, UsageError

from .place import Call
from .text import code, plain, table
from .tree import HelpfulCommand, with_call


@click.command("settings", cls=HelpfulCommand)
@with_call
async def settings(call: Call) -> int:
    """List all settings, their values and what they mean."""
    values = call.app.settings.load()
    rows = []
    for name, field in Settings.model_fields.items():
        value = getattr(values, name)
        shown = code(_shown(value)) + ("" if value == field.default else " (changed)")
        rows.append((code(name), shown, plain(field.description or "")))
    call.frontend.say_markdown(table(("setting", "value", "meaning"), rows))
    call.frontend.say(f"Change one with `{call.place.prefix} set NAME VALUE`.")
    return 0


@click.command("set", cls=HelpfulCommand, context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value", nargs=-1, required=True)
@with_call
async def set_setting(call: Call, name: str, value: tuple[str, ...]) -> int:
    """Change a setting for good: a number, a word, or a list of words."""
    parsed = _parsed(name, value)
    for rule in parsed if name == "deny" and isinstance(parsed, list) else ():
        problem = rule_problem(str(rule), call.app.tools)
        if problem:
            raise UsageError(problem)
    changed = call.app.settings.change(name, parsed)
    call.frontend.say(f"{name} is now {_shown(getattr(changed, name))}.", level="success")
    return 0


def _parsed(name: str, words: tuple[str, ...]) -> object:
    text = " ".join(words)
    field = Settings.model_fields.get(name)
    if field is not None and isinstance(field.default, tuple):
        return [] if text in {"[]", "none"} else _json_or(text, list(words))
    return _json_or(text, text)


def _json_or(text: str, otherwise: object) -> object:
    try:
        value: object = from_json(text)
    except ValueError:
        return otherwise
    return value if isinstance(value, int | float | str | list) and not isinstance(value, bool) else otherwise


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
