"""The composition root: a home directory in, a wired AgentCore out."""

from __future__ import annotations

import logging
import logging.handlers
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mxclaw_nb.core import AgentCore, Services
from mxclaw_nb.files import FileError, locked, make_private_dir, prune, read_json, run_in_thread, write_json
from mxclaw_nb.protocol import ConfigurationError, ModelId, Settings, StoreError, Tool, UsageError
from mxclaw_nb.providers import ConfigStore, OpenAICompatibleProvider, ProviderDirectory
from mxclaw_nb.storage import SqliteStore
from mxclaw_nb.tools import builtin_tools

HOME_VARIABLE = "MX_CLAW_HOME"
_LOG_BYTES = 1_000_000
_OUTPUT_BYTES = 500_000_000
_OUTPUT_AGE_S = 90 * 86_400.0


def home_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Our home: ``MX_CLAW_HOME``, else ``~/.mx-claw``; absolute, symlinks resolved, not yet made."""
    named = environ.get(HOME_VARIABLE, "").strip()
    try:
        return Path(named or "~/.mx-claw").expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise ConfigurationError(f"The home directory cannot be found ({error}). Set {HOME_VARIABLE}.") from None


class SettingsFile:
    """settings.json: read once a process into a snapshot; what we do not know in it survives a save."""

    def __init__(self, home: Path, warn: Callable[[str], None]) -> None:
        self._path = home / "settings.json"
        self._warn = warn
        self._snapshot: Settings | None = None

    def load(self) -> Settings:
        """The snapshot. A file or value that cannot be used is said, left alone, and the default serves."""
        if self._snapshot is None:
            self._snapshot = self._validated(self._read())
        return self._snapshot

    def change(self, name: str, value: object) -> Settings:
        """Save one setting. Raises UsageError for an unknown name or a value that does not fit."""
        if name not in Settings.model_fields:
            raise UsageError(f"There is no setting {name!r}. `mxclaw settings` lists them all.")
        try:
            Settings.model_validate({name: value})
        except ValidationError as error:
            raise UsageError(f"{name} cannot be {value!r}: {error.errors()[0]['msg']}.") from None
        try:
            with locked(self._path, 5.0):
                stored = self._read()
                stored[name] = value
                write_json(self._path, stored)
        except (OSError, FileError) as error:
            raise ConfigurationError(f"{self._path} could not be written: {error}") from None
        self._snapshot = self._validated(stored)
        return self._snapshot

    def _read(self) -> dict[str, Any]:
        try:
            stored = read_json(self._path)
        except FileNotFoundError:
            return {}
        except (OSError, FileError) as error:
            self._warn(f"{self._path} is not used: {error}")
            return {}
        if not isinstance(stored, dict):
            self._warn(f"{self._path} is not used: it does not hold a JSON object.")
            return {}
        return dict(stored)

    def _validated(self, stored: dict[str, Any]) -> Settings:
        usable = dict(stored)
        while True:
            try:
                return Settings.model_validate(usable)
            except ValidationError as error:
                for problem in error.errors():
                    name = str(problem["loc"][0])
                    self._warn(f"The setting {name} in {self._path} is not used: {problem['msg']}.")
                    usable.pop(name, None)


class App:
    """Everything of one home directory, wired. One a process; usable from any thread and event loop."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.warnings: list[str] = []
        self._said: set[str] = set()
        self._house_kept = False
        try:
            make_private_dir(home)
        except (OSError, FileError) as error:
            raise StoreError(
                f"The home directory {home} cannot be used: {error}. Set {HOME_VARIABLE} to a folder you can write to."
            ) from None
        self._log_handler = _log_to(home)
        self.settings = SettingsFile(home, self.warnings.append)
        self.directory = ProviderDirectory(ConfigStore(home))
        self.store = SqliteStore.open(home, on_warning=self.warnings.append)
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in builtin_tools()}
        self.provider = OpenAICompatibleProvider(
            self.directory.endpoint, self.directory.key_for, self.settings.load, key_present=self.directory.has_key
        )
        self.core = AgentCore(
            Services(
                store=self.store,
                provider=self.provider,
                tools=self.tools,
                settings=self.settings.load,
                resolve_model=self.resolve_model,
                ready=self.ready,
                home=home,
                redact=self.directory.redact,
            )
        )

    @classmethod
    def open(cls, home: Path | None = None) -> App:
        """The app of ``home`` (default: ``home_directory()``). Quick: nothing is contacted, threads start on use."""
        return cls(home_directory() if home is None else home.expanduser().resolve())

    def resolve_model(self, stored: str | None) -> ModelId:
        """The model of a session: its own, else the default.

        Raises UsageError, and ProviderNotReady where nothing that a person chose can be asked.
        """
        return self.directory.parse(stored) if stored else self.directory.default_model()

    def ready(self, model: ModelId) -> str | None:
        """None if that model can be asked, else one sentence that says what is missing."""
        return self.directory.ready(model) or self.provider.ready(model)

    def take_warnings(self) -> list[str]:
        """What went wrong quietly since the last call, one sentence each, for the next screen that can say it.

        A config.json that cannot be used is not quiet: whatever needs a model refuses with that.
        """
        config = self.directory.config.loaded()
        quiet = () if config.damage is not None else config.warnings
        fresh = [text for text in (*quiet, *self.warnings) if text not in self._said]
        self._said.update(fresh)
        self.warnings.clear()
        return list(dict.fromkeys(fresh))

    async def keep_house(self) -> None:
        """Keep long tool output within its bounds: 500 MB and 90 days. Does something once a process, off the loop."""
        if not self._house_kept:
            self._house_kept = True
            outputs = self.home / "outputs"
            await run_in_thread(lambda: prune(outputs, max_bytes=_OUTPUT_BYTES, max_age_s=_OUTPUT_AGE_S))

    async def aclose(self) -> None:
        """End everything: connections, the store's threads, the rehearsal. Idempotent."""
        await self.provider.aclose()
        self.directory.close()
        await self.store.close()
        logger = logging.getLogger("mxclaw_nb")
        logger.removeHandler(self._log_handler)
        self._log_handler.close()


def _log_to(home: Path) -> logging.Handler:
    """Our log goes to a private, bounded file in the home and nowhere else, least of all the user's screen."""
    handler = _PrivateLog(
        home / "logs" / "mxclaw.log", maxBytes=_LOG_BYTES, backupCount=3, encoding="utf-8", delay=True
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("mxclaw_nb")
    logger.addHandler(handler)
    logger.propagate = False
    return handler


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """A rotating log of mode 0600 that never complains on the screen."""

    def _open(self) -> Any:
        make_private_dir(Path(self.baseFilename).parent)
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written must not disturb the turn it tells of."""


_current: App | None = None
_current_guard = threading.Lock()


def current_app() -> App:
    """The app of this process, opened on first use."""
    global _current
    with _current_guard:
        if _current is None:
            _current = App.open()
        return _current


async def close_current_app() -> None:
    """Close the app of this process if it was opened; the next ``current_app`` opens a new one."""
    global _current
    with _current_guard:
        closing, _current = _current, None
    if closing is not None:
        await closing.aclose()
