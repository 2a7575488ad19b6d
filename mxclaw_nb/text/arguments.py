"""The arguments of a tool call, for a person: names and values instead of JSON."""

from __future__ import annotations

import json


def named_values(arguments: str) -> list[tuple[str, str]]:
    """The name and the value of each argument, in their order; a value that is no text as JSON.

    What is not a JSON object comes back whole, under no name; what is empty is no argument.
    """
    try:
        parsed = json.loads(arguments)
        if isinstance(parsed, dict):
            return [
                (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
                for name, value in parsed.items()
            ]
    except (ValueError, RecursionError):
        pass  # the model wrote something else; that is then what is shown
    return [("", arguments)] if arguments.strip() else []
