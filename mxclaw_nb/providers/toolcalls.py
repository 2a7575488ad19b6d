"""Tool call deltas folded into calls, whatever of index, id and name a provider leaves out, repeats or mixes up.

The rules, in the order in which they are asked (a *piece* is one entry of ``tool_calls`` in one delta):

1. Which call does it belong to? The one of its index; without an index the one of its id; without both the last.
2. A piece begins another call there if it brings an id that is new, or if it brings a name and the call at hand
   already has all its arguments or got a piece from this same delta. A new id without a name goes on with a call
   whose arguments are unfinished (some providers make up an id for every piece).
3. A known id at an unknown index is a second call if it brings a name, else more of the call of that id. Bare
   arguments at an unknown index go on with an unfinished call.
4. A name that is sent again is the same name; it is only added to while it still grows and no arguments came.
5. Arguments are text that is added up. An object is written as JSON. A whole object after a whole object is the
   same one sent again, or replaces an empty stand-in; it is never added to it.

Arguments are never mended: a call that was cut keeps the text it has, and whoever runs it finds it malformed.
"""

from __future__ import annotations

from mxclaw_nb.protocol import ToolCall
from mxclaw_nb.text import encodable

from .jsontext import SurrogateJoiner, encode_json, is_whole_object, replace_lone_escapes

_PIECE_SIZE = 64  # what a piece without any text is counted as
_NAMELESS = "unnamed_tool"  # what a call that never got a name is called; no such tool exists, and the model is told


class _Call:
    """A call that is being received."""

    __slots__ = ("_joiner", "_parts", "frame", "id", "name")

    def __init__(self, call_id: str | None) -> None:
        self.id = call_id
        self.name = ""
        self.frame = -1  # the number of the delta that last added to it
        self._parts: list[str] = []
        self._joiner = SurrogateJoiner()

    @property
    def arguments(self) -> str:
        return "".join(self._parts)

    @property
    def started(self) -> bool:
        return any(part.strip() for part in self._parts)

    @property
    def whole(self) -> bool:
        return bool(self._parts) and self._parts[-1].rstrip()[-1:] in ("}", "") and is_whole_object(self.arguments)

    def add_name(self, name: str) -> None:
        if not self.name or name.startswith(self.name):
            self.name = name
        elif not self.started and not self.name.endswith(name):
            self.name += name

    def add_arguments(self, piece: str) -> None:
        piece = self._joiner.feed(piece)
        if not piece:
            return
        if self._parts and piece.lstrip().startswith("{") and self._replaced_by(piece):
            self._parts = [piece]
        else:
            self._parts.append(piece)

    def _replaced_by(self, piece: str) -> bool:
        return self.whole and (is_whole_object(piece) or self.arguments.strip() == "{}")

    def finished_arguments(self) -> str:
        tail = self._joiner.close()
        if tail:
            self._parts.append(tail)
        text = self.arguments
        return replace_lone_escapes(text) if text.strip() else "{}"


class ToolCallFolder:
    """Pieces in, calls out, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._frame = 0
        self.size = 0  # about how many characters have come

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, pieces: object) -> bool:
        """Take the ``tool_calls`` of one delta in; True if there was anything in it."""
        if isinstance(pieces, dict):
            pieces = [pieces]
        if not isinstance(pieces, list):
            return False
        self._frame += 1
        found = False
        for piece in pieces:
            if isinstance(piece, dict):
                found = self._add_piece(piece) or found
        return found

    def result(self, id_seed: str) -> tuple[ToolCall, ...]:
        """The calls, with unique ids; ``id_seed`` makes the ids of those that have none."""
        taken: set[str] = set()
        calls = []
        for position, call in enumerate(self._calls):
            base = call.id or f"call_{id_seed}_{position}"
            unique, copy = base, 2
            while unique in taken or (unique != call.id and unique in self._by_id):
                unique, copy = f"{base}-{copy}", copy + 1
            taken.add(unique)
            calls.append(ToolCall(unique, call.name.strip() or _NAMELESS, call.finished_arguments()))
        return tuple(calls)

    def _add_piece(self, piece: dict[str, object]) -> bool:
        function = piece.get("function")
        source = function if isinstance(function, dict) else piece
        index, call_id = _index(piece.get("index")), _text(piece.get("id"))
        name, arguments = _text(source.get("name")), _arguments(source.get("arguments"))
        if index is None and not call_id and not name and not arguments:
            return False
        self.size += len(arguments) + _PIECE_SIZE
        call = self._find(index, call_id, name, arguments)
        if call is None:
            call = _Call(call_id)
            self._calls.append(call)
        if call_id:
            call.id = call.id or call_id
            self._by_id[call_id] = call
        if index is not None:
            self._by_index[index] = call
        call.frame = self._frame
        if name:
            call.add_name(name)
        if arguments:
            call.add_arguments(arguments)
        return True

    def _find(self, index: int | None, call_id: str | None, name: str | None, arguments: str) -> _Call | None:
        """The call that a piece belongs to; None if it begins one."""
        known = self._by_id.get(call_id) if call_id else None
        if index is not None:
            call = self._by_index.get(index)
            if call is None:
                return None if name else known or self._unfinished(call_id)
        elif known is not None:
            call = known
        else:
            call = self._calls[-1] if self._calls else None
            if call is None:
                return None
        if call_id and call.id and call_id != call.id:
            if known is not None:
                call = known
            elif name or call.whole:
                return None
            else:
                return call
        same_id = call_id is not None and call_id == call.id
        return None if name and self._begins_another(call, name, arguments, same_id) else call

    def _unfinished(self, call_id: str | None) -> _Call | None:
        """The last call, if a piece that has nothing but arguments can still belong to it."""
        last = self._calls[-1] if self._calls else None
        return last if last is not None and call_id is None and not last.whole else None

    def _begins_another(self, call: _Call, name: str, arguments: str, same_id: bool) -> bool:
        """Whether a piece with a name, that would fit this call, is the start of another one."""
        if not call.name:
            return False
        if same_id:
            # The id says it is the same call, unless both are whole and they differ.
            return (
                call.whole
                and is_whole_object(arguments)
                and (name, arguments) != (call.name, call.arguments)
                and (call.arguments.strip() != "{}")
            )
        if call.frame == self._frame:
            return True
        if call.whole:
            return bool(arguments.strip()) and not (name == call.name and call.arguments.strip() == "{}")
        return call.started and not name.startswith(call.name) and is_whole_object(arguments)


def _index(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, float) and value.is_integer() and value >= 0:
        return int(value)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else None


def _text(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return encodable(value) if isinstance(value, str) and value.strip() else None


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else encode_json(value).decode()
