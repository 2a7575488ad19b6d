"""Tool calls as they are stored: ids of their own, names and ids of a bounded length, text that UTF-8 can carry."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from mxclaw_nb.protocol import ToolCall
from mxclaw_nb.text import encodable

_PLAIN_ID = re.compile(r"[!-~]{1,128}")
_LONGEST_NAME = 256


class CallNames:
    """Gives the calls of a session ids that no other call of it has.

    Servers count from ``call_0`` in every reply, send one id twice, or none, or a megabyte of anything. Screens, events
    and results go by the id, so it is settled once, before the call is stored or shown. An id that serves stays as
    it is, since some models were trained on the form of theirs.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._copies: dict[str, int] = {}

    def settle(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls as they are to be stored, in their order; the same object where nothing had to change."""
        return tuple(map(self._settled, calls))

    def _settled(self, call: ToolCall) -> ToolCall:
        call_id = self._free(call.id if _PLAIN_ID.fullmatch(call.id) else _derived(call.id))
        name = encodable(call.name[:_LONGEST_NAME])
        arguments = encodable(call.arguments)
        if (call_id, name) == (call.id, call.name) and arguments is call.arguments:
            return call
        return ToolCall(call_id, name, arguments)

    def _free(self, base: str) -> str:
        call_id, number = base, self._copies.get(base, 1)
        while call_id in self._taken:
            number += 1
            call_id = f"{base}-{number}"
        self._copies[base] = number
        self._taken.add(call_id)
        return call_id


def _derived(call_id: str) -> str:
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest[:12]}"
