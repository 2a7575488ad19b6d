"""The providers and models that the user configured: config.json, in the format of the original mx-claw.

The original (TypeScript) program and this one can share a home directory, so names and shapes are its own, and what
we do not know is kept as it is. Keys are no part of this model: ``apiKey`` is ``""`` on disk, and one that is not
empty is dropped while the file is read.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from mxclaw_nb.files import FileError, read_bounded

CONFIG_NAME: Final = "config.json"
CONFIG_LIMIT: Final = 4 * 1024 * 1024
"""A config.json larger than this many bytes is not read."""

NAME_LIMIT: Final = 100
"""Characters of a provider's name."""

KEY_VARIABLE: Final = "MX_CLAW_API_KEY"
"""The environment variable that holds the key of the turn's provider."""

DAMAGE_REMEDY: Final = (
    "Nothing but the rehearsal is asked until that is mended: correct the file, or move it away to begin without one."
)
"""What to do about a config.json that is there and cannot be used."""

REHEARSAL_PROVIDER: Final = "rehearsal"
"""The name of the built-in provider that exists only while the rehearsal server runs, and never in config.json."""


class _Stored(BaseModel):
    """Base of what config.json holds: frozen, strict, unknown fields kept but never shown."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        strict=True,
        alias_generator=lambda name: "baseURL" if name == "base_url" else to_camel(name),
        populate_by_name=True,
        serialize_by_alias=True,
        hide_input_in_errors=True,
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Unknown fields, and an address that holds a password, may be secrets.
        for name, value in super().__repr_args__():
            if name in type(self).model_fields and name != "base_url":
                yield name, value


class ProviderConfig(_Stored):
    """One provider: where it is and which models it has. ``model`` is its default one, ``name`` its key in the file."""

    name: str
    kind: Literal["builtin", "custom"] = "custom"
    base_url: str = ""
    model: str = ""
    models: Annotated[tuple[StrictStr, ...], Field(strict=False)] = ()
    requires_api_key: bool = True
    configured: bool = False


class ModelConfig(_Stored):
    """The whole of config.json. ``active_provider`` and that provider's ``model`` are the default model."""

    version: Literal[1] = 1
    active_provider: str = "deepseek"
    providers: Mapping[str, ProviderConfig]


def default_config() -> ModelConfig:
    """The built-in catalogue: what a home without a config.json has."""
    return ModelConfig(
        active_provider="deepseek",
        providers={
            "openai": ProviderConfig(
                name="openai",
                kind="builtin",
                base_url="https://api.openai.com/v1",
                model="gpt-4o-mini",
                models=("gpt-4o-mini", "gpt-4o"),
            ),
            "deepseek": ProviderConfig(
                name="deepseek",
                kind="builtin",
                base_url="https://api.deepseek.com",
                model="deepseek-flash",
                models=("deepseek-flash", "deepseek-v4-pro"),
            ),
            "ollama": ProviderConfig(
                name="ollama",
                kind="builtin",
                base_url="http://127.0.0.1:11434/v1",
                model="llama3.2",
                models=("qwen2.5-coder", "deepseek-r1"),
                requires_api_key=False,
            ),
        },
    )


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration and how it came about.

    ``warnings`` are what the person should know, one sentence each. ``active_chosen``: a person named the active
    provider; the catalogue's own is nobody's choice. ``damage``: why the file that is there cannot be used (then
    ``config`` is the catalogue, to be listed and never asked). ``usable``: it was read from a file that can be used.
    """

    config: ModelConfig
    warnings: tuple[str, ...] = ()
    active_chosen: bool = True
    damage: str | None = None
    usable: bool = True


class ConfigStore:
    """config.json of one home, read once a process into a snapshot. Usable from any thread; reads take < 5 ms.

    It only reads: a damaged file is reported in ``warnings``, stays as it is, and the catalogue is listed instead.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / CONFIG_NAME
        self._loaded: LoadedConfig | None = None
        self._loaded_stamp: _Stamp = ()
        self._seen: _Stamp = ()
        self._noted: _Stamp = ()
        self._news: str | None = None
        self._guard = threading.Lock()

    def load(self) -> ModelConfig:
        """The snapshot; the file is read on the first call. Never raises for what is on disk."""
        return self.loaded().config

    def loaded(self) -> LoadedConfig:
        """As ``load``, with how it came about."""
        with self._guard:
            return self._loaded or self._read()

    def reload(self) -> ModelConfig:
        """Read the file again, whatever the snapshot is."""
        with self._guard:
            return self._read().config

    def refresh(self) -> bool:
        """Read the file again if it has changed on disk since it was looked at; whether there is a new snapshot.

        For a request that the snapshot cannot serve. What was read from a good file is replaced only by another.
        """
        with self._guard:
            before = self._loaded
            if before is None:
                self._read()
                return True
            stamp = _stamp(self.path)
            if stamp == self._seen:
                return False
            fresh = read_config(self.path)
            self._seen = stamp
            if before.usable and not fresh.usable:
                reason = fresh.damage or f"{self.path} is gone."
                self._news = f"{reason} What was read from it before stays in force."
                return False
            self._loaded, self._loaded_stamp = fresh, stamp
            self._news = f"{self.path} had changed and was read again." if before.usable else None
            return True

    @property
    def changed_note(self) -> str | None:
        """One sentence if the file is another one now than the snapshot was read from, else None."""
        with self._guard:
            if self._loaded is None or _stamp(self.path) == self._loaded_stamp:
                return None
        return (
            f"{self.path} has changed since this process read it; what was read then stays in force. "
            "Restart the kernel to use the file as it is now."
        )

    def take_note(self) -> str | None:
        """What a person should know about a file that changed while this process runs: once for each change."""
        with self._guard:
            news, self._news = self._news, None
            stamp = _stamp(self.path)
            noted, self._noted = self._noted == stamp, stamp
        return news or (None if noted else self.changed_note)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was wrong with the file when it was last read. Holds nothing of a key."""
        return self.loaded().warnings

    def _read(self) -> LoadedConfig:
        # The stamp is taken first: a change in between makes the file look changed, never the snapshot look fresh.
        self._loaded_stamp = self._seen = _stamp(self.path)
        self._loaded = read_config(self.path)
        return self._loaded


_Stamp = tuple[int, ...]


def _stamp(path: Path) -> _Stamp:
    """What changes when the file does: its time in ns, size and inode, or the number of the error."""
    try:
        found = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class _Unreadable(Exception):
    """The file cannot be used; the message ends the sentence that begins with its path."""


def read_config(path: Path) -> LoadedConfig:
    """Read config.json. Never raises: a file that cannot be used gives the catalogue, a warning and ``damage``."""
    try:
        return _parse(read_bounded(path, CONFIG_LIMIT), path)
    except FileNotFoundError:
        if not os.path.islink(path):
            return LoadedConfig(default_config(), active_chosen=False, usable=False)
        damage = f"{path} is a link to a file that is not there."
    except _Unreadable as problem:
        damage = f"{path} {problem}."
    except FileError as error:
        damage = error.message
    except OSError as error:
        damage = f"{path} cannot be read ({error.strerror or type(error).__name__})."
    warning = f"{damage} {DAMAGE_REMEDY}"
    return LoadedConfig(default_config(), (warning,), active_chosen=False, damage=damage, usable=False)


def _parse(data: bytes, path: Path) -> LoadedConfig:
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise _Unreadable("is empty")
    try:
        document = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise _Unreadable(f"is not valid JSON{_where(str(error), data)}") from None
    if not isinstance(document, dict):
        raise _Unreadable("does not hold a JSON object")
    if type(document.get("version", 1)) is not int or document.get("version", 1) != 1:
        raise _Unreadable("has a version that is not 1, so a newer program may have written it")
    entries = document.pop("providers", {})
    if not isinstance(entries, dict):
        raise _Unreadable("has `providers` that is not an object")
    warnings: list[str] = []
    if _drop_keys(document):
        warnings.append(_key_warning(path))
    providers = dict(default_config().providers)
    for name, entry in entries.items():
        provider = _provider(name, entry, path, warnings)
        if provider is not None:
            providers[name] = provider
        elif name != REHEARSAL_PROVIDER:
            providers.pop(name, None)
    try:
        config = ModelConfig.model_validate({**document, "providers": providers})
    except ValidationError as error:
        raise _Unreadable(_field_problem(error)) from None
    if not _is_name(config.active_provider):
        raise _Unreadable("has an `activeProvider` that is no name")
    return LoadedConfig(config, tuple(dict.fromkeys(warnings)), active_chosen="activeProvider" in document)


def _where(problem: str, data: bytes) -> str:
    """The place that pydantic_core's message ends with. Nothing else of it: it can quote the text, and so a key."""
    found = re.search(r" at line (\d+) column (\d+)\Z", problem)
    if found is None:
        return ""
    line, column = int(found[1]), int(found[2])  # the column counts bytes
    before = data.split(b"\n", line)[line - 1][:column]
    return f" (line {line}, column {max(1, len(before.decode(errors='replace')))})"


def _provider(name: str, entry: object, path: Path, warnings: list[str]) -> ProviderConfig | None:
    """One provider of the file, or None with a warning where it cannot be used."""
    shown = name if name.isprintable() and len(name) <= 60 else ascii(name[:60])
    if name == REHEARSAL_PROVIDER:
        warnings.append(f"{path} has a provider named `{name}`, a name that is built in; that entry is not used.")
        return None
    if not _is_name(name):
        warnings.append(f"{path} has a provider named `{shown}`, which no model id can name; that entry is not used.")
        return None
    if not isinstance(entry, dict):
        warnings.append(f"The provider `{shown}` in {path} is not an object; that entry is not used.")
        return None
    if _drop_keys(entry):
        warnings.append(_key_warning(path))
    builtin = default_config().providers.get(name)
    try:
        return ProviderConfig.model_validate(
            {"kind": "builtin" if builtin else "custom", **entry, "name": name}, by_alias=True, by_name=False
        )
    except ValidationError as error:
        warnings.append(f"The provider `{shown}` in {path} {_field_problem(error)}; that entry is not used.")
        return None


def _is_name(name: str) -> bool:
    """Whether a model id can begin with it, and a screen show it."""
    return 0 < len(name) <= NAME_LIMIT and name.isprintable() and not any(c == "/" or c.isspace() for c in name)


def _drop_keys(entry: dict[str, object]) -> bool:
    """Take every spelling of ``apiKey`` out of an object; whether one of them held something."""
    found = [name for name in entry if name.lower().replace("_", "").replace("-", "") == "apikey"]
    dropped = [entry.pop(name) for name in found]
    return any(value not in ("", None) for value in dropped)


def _key_warning(path: Path) -> str:
    return f"{path} holds an API key, which is never read from there; remove it, and put it into {KEY_VARIABLE}."


def _field_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"has a wrong `{'.'.join(str(part) for part in first['loc'][:1])}` ({first['msg'].lower()})"
