"""Where you are (``%mxclaw`` alone), ``doctor``, ``panel`` and ``rehearse``."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib import metadata
from urllib.parse import urlsplit, urlunsplit

import click

from mxclaw_nb import __version__
from mxclaw_nb.protocol import MxclawError, SessionChanges, UsageError
from mxclaw_nb.providers import REHEARSAL_PROVIDER

from .place import Call
from .rehearsing import ensure_rehearsal
from .text import code, plain, table
from .tree import HelpfulCommand, with_call

_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


async def where(call: Call) -> int:
    """Say where you are and what you can type."""
    prefix = call.place.prefix
    session = await call.current_session()
    stored = session.model if session else None
    (model, problem), starts = _model(call, stored), _starts(call, stored)
    mode = session.mode if session else call.app.settings.load().default_mode
    rows = [
        ("session", f"{code(session.id)} {plain(session.title)}" if session else "none yet; a turn starts one"),
        ("model", code(model) + (f" ({plain(note)})" if (note := problem or starts) else "")),
        ("mode", code(mode)),
        ("workspace", code(session.workspace if session else str(call.place.workspace))),
    ]
    if session:
        cost = "" if not session.cost else f", ${session.cost:.4f}"
        rows.append(("tokens", f"{session.input_tokens:,} in, {session.output_tokens:,} out{cost}"))
    rows += _config_rows(call)
    call.frontend.say_markdown(table(("mxclaw", plain(__version__)), rows))
    agent = "%%agent" if prefix.startswith("%") else "mxclaw run"
    call.frontend.say(
        f"{agent} runs a turn. {prefix} session | show | panel | stop | approvals | approve ID | deny ID | "
        f"rehearse | set NAME VALUE | settings | doctor; add --help to any of them."
    )
    return 0


def _model(call: Call, stored: str | None) -> tuple[str, str | None]:
    """The model's name, and why it cannot be asked; a rehearsal of the session's own the next turn starts by itself."""
    try:
        model = call.app.resolve_model(stored)
        return str(model), None if _starts(call, stored) else call.app.ready(model)
    except MxclawError as error:
        return stored or str(call.app.directory.listed_default() or "none"), str(error)


def _starts(call: Call, stored: str | None) -> str:
    """A word about a rehearsal that does not run yet; empty for all else."""
    waits = (stored or "").startswith(REHEARSAL_PROVIDER + "/") and not call.app.directory.rehearsing
    return "starts with the next turn" if waits else ""


def _config_rows(call: Call) -> list[tuple[str, str]]:
    """A word about config.json where the file is no longer what this process works with."""
    note = call.app.directory.config.changed_note
    return [("config", plain(note))] if note else []


@click.command("rehearse", cls=HelpfulCommand)
@with_call
async def rehearse(call: Call) -> int:
    """Give this session a scripted model: no key, no network, everything else is real."""
    model = str(ensure_rehearsal(call.app))
    session = await call.current_session()
    if session is None:
        session = await call.new_session(title="Rehearsal", model=model)
    else:
        await call.app.store.update_session(session.id, SessionChanges(model=model))
    how = (
        "Write %%agent and a prompt such as: look around this folder"
        if call.place.keeps_session
        else f'Try: mxclaw run --session {session.id} "look around this folder"'
    )
    call.frontend.say(f"Session {session.id} is a rehearsal: a script plays the model. {how}", level="success")
    return 0


@click.command("panel", cls=HelpfulCommand)
@with_call
async def panel(call: Call) -> int:
    """Show this kernel's running turn and approvals in one place."""
    if not call.frontend.show_panel():
        raise UsageError(f"There is no panel here; `{call.place.prefix} approvals` lists what waits.")
    return 0


@click.command("doctor", cls=HelpfulCommand)
@with_call
async def doctor(call: Call) -> int:
    """Check this installation. Nothing outside this machine is contacted."""
    app = call.app
    session = await call.current_session()
    stored = session.model if session else None
    (model, problem), starts = _model(call, stored), _starts(call, stored)
    rows = [
        ("mxclaw", plain(f"{__version__}, Python {platform.python_version()} at {sys.executable}")),
        ("home", code(str(app.home)) + ("" if os.access(app.home, os.W_OK) else " **not writable**")),
        ("model", code(model) + (f" **not ready**: {plain(problem)}" if problem else f" {starts or 'ready'}")),
    ]
    provider = app.directory.provider(model.partition("/")[0])
    if provider is not None:
        rows.append(("endpoint", code(_without_credentials(provider.base_url))))
    rows += _config_rows(call)
    for label, names in (("proxies", _PROXIES), ("certificates", _CERTIFICATES)):
        found = [f"{name}={_without_credentials(value)}" for name in names if (value := _variable(name))]
        rows.append((label, " ".join(map(code, found)) or "none set"))
    rows.append(("kernel", plain(", ".join(_version(name) for name in ("ipython", "ipykernel", "ipywidgets")))))
    tools = ", ".join(f"{name}: {shutil.which(name) or 'not found'}" for name in ("bash", "rg", "git"))
    rows.append(("programs", plain(tools)))
    call.frontend.say_markdown(table(("check", "found"), rows))
    return 0


def _variable(name: str) -> str:
    return os.environ.get(name, "") or os.environ.get(name.lower(), "")


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} missing"


def _without_credentials(url: str) -> str:
    """A URL, or anything else, without the user and password that it may carry."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]))
