"""Notebooks with an agent whose model plays a script: real kernel, real HTTP, real tools, real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.providers.rehearsal import RehearsalServer
from mxclaw_nb.providers.rehearsal.script import Script
from tests.end_to_end.harness import JupyterServer, NotebookPage, wait_until

SETUP = """\
import os
os.environ.update({environment!r})
%load_ext mxclaw_nb"""
MODELS = "len(__import__('ipywidgets').widgets.widget._instances)"


@dataclass
class Agent:
    """A scripted model, and the home in which it is configured."""

    server: RehearsalServer
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"MX_CLAW_HOME": str(self.home), "MX_CLAW_API_KEY": self.server.token}

    @property
    def setup(self) -> str:
        """The first cell of a notebook that uses it."""
        return SETUP.format(environment=self.environment)

    def mxclaw(self, *words: str) -> str:
        """Run ``mxclaw`` in another process, as in a terminal, and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "mxclaw_nb", *words],
            env={**os.environ, **self.environment},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def events(self) -> list[dict[str, Any]]:
        """All events of the only session, as another process reads them."""
        sessions = json.loads(self.mxclaw("session", "list", "--json"))
        session = json.loads(self.mxclaw("session", "show", sessions[0]["id"], "--json"))
        return list(session["events"])


ScriptedAgent = Callable[[Script], Agent]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[ScriptedAgent]:
    """``scripted(script)`` starts a model that plays it."""
    servers: list[RehearsalServer] = []

    def start(script: Script) -> Agent:
        server = RehearsalServer(script, models=("scripted",)).start_in_thread()
        servers.append(server)
        home = tmp_path / f"home-{len(servers)}"
        home.mkdir(mode=0o700)
        provider = {
            "name": "scripted",
            "kind": "custom",
            "baseURL": server.base_url,
            "model": "scripted",
            "models": ["scripted"],
            "requiresApiKey": True,
            "configured": True,
            "apiKey": "",
        }
        config = {"version": 1, "activeProvider": "scripted", "providers": {"scripted": provider}}
        (home / "config.json").write_text(json.dumps(config))
        return Agent(server, home)

    yield start
    for server in servers:
        server.stop()


@dataclass
class Network:
    """What a page asked for outside of its own server, and the dialogs that it opened."""

    foreign: list[str]
    dialogs: list[str]


def watch_network(page: NotebookPage, server: JupyterServer) -> Network:
    """Note every request to anywhere but the Jupyter server, and every dialog."""
    seen = Network([], [])

    async def watch(playwright_page: Any) -> None:
        def on_request(request: Any) -> None:
            if not request.url.startswith((server.url, "data:", "blob:", server.url.replace("http", "ws", 1))):
                seen.foreign.append(request.url)

        playwright_page.on("request", on_request)
        playwright_page.on("dialog", lambda dialog: seen.dialogs.append(dialog.message))

    page.do(watch)
    return seen


def wait_for_question(page: NotebookPage, about: str) -> None:
    """Until the page asks about this call and its buttons can be used."""
    page.wait_for_text(f"Allow {about}?")
    wait_until(lambda: "Allow once" in page.visible_buttons(), what="the buttons are there")


def milliseconds(timestamp: str) -> float:
    """An event's time as milliseconds since the epoch."""
    from datetime import datetime

    return datetime.fromisoformat(timestamp).timestamp() * 1000


def report(capsys: pytest.CaptureFixture[str], line: str) -> None:
    """Print a measurement where it can be seen, whatever pytest captures."""
    with capsys.disabled():
        print(f"\n[measured] {line}")
