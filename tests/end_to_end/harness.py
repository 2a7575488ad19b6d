"""Driving JupyterLab and Notebook 7 as a person would: real servers, a real Chromium, every wait bounded.

The browser lives on a thread of its own with its own event loop, so that tests stay plain functions and may use
``asyncio.run`` themselves. All servers listen on loopback and keep every file in a temporary folder.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import nbformat

FrontendName = Literal["lab", "notebook"]
T = TypeVar("T")

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
]
DEFAULT_WAIT_S = 30.0
START_WAIT_S = 60.0


def find_chromium() -> str | None:
    """The path of an installed Chromium or Chrome, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"):
        if (path := shutil.which(name)) is not None:
            return path
    return None


def wait_until(condition: Callable[[], T], *, what: str, timeout_s: float = DEFAULT_WAIT_S) -> T:
    """Poll a condition until it is truthy and return its value; fail with ``what`` after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain until {what}")
        time.sleep(0.02)


class JupyterServer:
    """One JupyterLab or Notebook 7 server in a folder of its own. ``root`` holds the notebooks."""

    def __init__(self, frontend: FrontendName, folder: Path, *, environment: dict[str, str] | None = None) -> None:
        self.frontend: FrontendName = frontend
        self.folder = folder
        self.root = folder / "work"
        self.home = folder / "mx-claw"
        self.token = secrets.token_hex(16)
        self.url = ""
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            **os.environ,
            "HOME": str(folder / "home"),
            "MX_CLAW_HOME": str(self.home),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "JUPYTER_PREFER_ENV_PATH": "1",
            **(environment or {}),
        }

    def start(self) -> None:
        """Start the server and wait until it answers."""
        for name in (
            "work",
            "home",
            "settings/@jupyterlab/apputils-extension",
            "settings/@jupyterlab/docmanager-extension",
        ):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        quiet = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
        settings = self.folder / "settings/@jupyterlab"
        (settings / "apputils-extension/notification.jupyterlab-settings").write_text(json.dumps(quiet))
        (settings / "docmanager-extension/plugin.jupyterlab-settings").write_text(json.dumps({"autosave": False}))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            sys.executable, "-m", {"lab": "jupyterlab", "notebook": "notebook"}[self.frontend],
            "--no-browser", "--allow-root", "--expose-app-in-browser", f"--port={port}", "--ip=127.0.0.1",
            f"--ServerApp.root_dir={self.root}", f"--IdentityProvider.token={self.token}", "--ServerApp.password=",
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.url = wait_until(self._listening, what=f"{self.frontend} answers", timeout_s=START_WAIT_S)
        except BaseException:
            self.stop()
            raise

    def _listening(self) -> str:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended with {self._process.returncode}:\n{self.log()[-3000:]}")
        record = self.folder / "runtime" / f"jpserver-{self._process.pid}.json"
        with contextlib.suppress(OSError, ValueError, KeyError):
            url = str(json.loads(record.read_text())["url"])
            self._request(url + "api/status")
            return url
        return ""

    def _request(self, url: str, method: str = "GET") -> Any:
        request = urllib.request.Request(url, method=method, headers={"Authorization": f"token {self.token}"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as response:
            body = response.read()
        return json.loads(body) if body else None

    def api(self, path: str, method: str = "GET") -> Any:
        """A request to the server's REST interface, such as ``api("kernels")``."""
        return self._request(f"{self.url}api/{path}", method)

    def log(self) -> str:
        """What the server and its kernels wrote so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def write_notebook(self, name: str, cells: Sequence[str], *, markdown: Sequence[int] = ()) -> Path:
        """Write a notebook of these cells (those numbered in ``markdown`` as text) and return its path."""
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.cells = [
            nbformat.v4.new_markdown_cell(source) if index in markdown else nbformat.v4.new_code_cell(source)
            for index, source in enumerate(cells)
        ]
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        return path

    def kernel_pids(self) -> list[int]:
        """The process ids of this server's kernels (Linux)."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"ipykernel" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def page_url(self, name: str) -> str:
        """Where a person would open this notebook."""
        path = {"lab": "lab/tree/", "notebook": "notebooks/"}[self.frontend]
        reset = "&reset" if self.frontend == "lab" else ""
        return f"{self.url}{path}{name}?token={self.token}{reset}"

    def shut_down_kernels(self) -> None:
        """End every kernel of this server."""
        with contextlib.suppress(OSError, urllib.error.URLError):
            for kernel in self.api("kernels"):
                with contextlib.suppress(urllib.error.URLError):
                    self.api(f"kernels/{kernel['id']}", "DELETE")

    def stop(self) -> None:
        """End the server, and its kernels with it."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


class Browser:
    """A headless Chromium, driven from a thread of its own."""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser-loop", daemon=True)
        self._playwright: Any = None
        self._chromium: Any = None

    def start(self) -> None:
        self._thread.start()
        self.run(self._launch(), timeout_s=START_WAIT_S)

    async def _launch(self) -> None:
        from playwright.async_api import async_playwright

        self._playwright = await async_playwright().start()
        self._chromium = await self._playwright.chromium.launch(
            executable_path=self._executable, args=CHROMIUM_FLAGS, headless=True
        )

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout_s: float = DEFAULT_WAIT_S) -> T:
        """Run a coroutine on the browser's loop and wait for it, ``timeout_s`` at most."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout_s), self._loop)
        try:
            return future.result(timeout_s + 5)
        except (TimeoutError, concurrent.futures.TimeoutError):
            future.cancel()
            raise AssertionError(f"the browser did not answer within {timeout_s:g} s") from None

    async def new_context(self, width: int, height: int) -> Any:
        return await self._chromium.new_context(viewport={"width": width, "height": height})

    def stop(self) -> None:
        async def end() -> None:
            if self._chromium is not None:
                await self._chromium.close()
            if self._playwright is not None:
                await self._playwright.stop()

        with contextlib.suppress(AssertionError):
            self.run(end(), timeout_s=20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


# The page's own objects, the same in both front ends.
_PANEL = "window.jupyterapp.shell.currentWidget"
_KERNEL = f"{_PANEL}?.sessionContext?.session?.kernel"
_CONNECTED = f"() => {{ const k = {_KERNEL}; return !!k && k.status === 'idle' && k.connectionStatus === 'connected' }}"


@dataclass
class Run:
    """Cells that were told to run. ``wait`` returns when the page has all their replies."""

    page: NotebookPage
    number: int
    started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> bool:
        return bool(self.page.evaluate("n => window.__runs[n].done", self.number))

    def wait(self, timeout_s: float = DEFAULT_WAIT_S) -> float:
        """Wait until the cells are done; returns the seconds since they were started."""
        self.page.wait_for_script("n => window.__runs[n].done", self.number, timeout_s=timeout_s)
        return time.monotonic() - self.started


class NotebookPage:
    """One page on one notebook. ``requests`` are the URLs it asked for, ``dialogs`` the alerts that a script opened."""

    def __init__(self, browser: Browser, server: JupyterServer, name: str) -> None:
        self.browser, self.server, self.name = browser, server, name
        self.requests: list[str] = []
        self.console: list[tuple[str, str]] = []
        self.dialogs: list[str] = []
        self.frames: list[tuple[str, float, bytes]] = []
        self._context: Any = None
        self._page: Any = None

    # -- opening and closing

    def open(self, *, width: int = 1200, height: int = 1400) -> NotebookPage:
        """Open the notebook and wait until its kernel is idle."""
        self.browser.run(self._open(width, height), timeout_s=START_WAIT_S + 10)
        self.wait_connected(START_WAIT_S)
        return self

    async def _open(self, width: int, height: int) -> None:
        self._context = await self.browser.new_context(width, height)
        page = self._page = await self._context.new_page()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.console.append((message.type, message.text)))
        page.on("dialog", self._on_dialog)
        page.on("websocket", self._on_websocket)
        await page.goto(self.server.page_url(self.name), timeout=START_WAIT_S * 1000)
        await self._ready()

    async def _ready(self) -> None:
        await self._page.wait_for_function("() => window.jupyterapp", timeout=START_WAIT_S * 1000)
        await self._page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=START_WAIT_S * 1000)
        await self._page.evaluate("() => { window.__runs = window.__runs || [] }")

    async def _on_dialog(self, dialog: Any) -> None:
        """A question to the person, as before leaving an unsaved page, is answered yes; it is noted all the same."""
        if dialog.type != "beforeunload":
            self.dialogs.append(f"{dialog.type}: {dialog.message}")
        await dialog.accept()

    def _on_websocket(self, socket_: Any) -> None:
        if "/channels" in socket_.url:
            socket_.on("framesent", lambda data: self._on_frame("sent", data))
            socket_.on("framereceived", lambda data: self._on_frame("received", data))

    def _on_frame(self, direction: str, data: str | bytes) -> None:
        self.frames.append((direction, time.time(), data.encode() if isinstance(data, str) else data))

    def reload(self) -> None:
        """Reload the page, as a person does in mid-turn; a kernel that is busy is not waited for."""

        async def again() -> None:
            await self._page.reload(timeout=START_WAIT_S * 1000)
            await self._ready()
            await self._page.wait_for_function(
                f"() => {_KERNEL}?.connectionStatus === 'connected'", timeout=START_WAIT_S * 1000
            )

        self.browser.run(again(), timeout_s=START_WAIT_S + 10)

    def close(self) -> None:
        if self._context is not None:
            context, self._context = self._context, None
            with contextlib.suppress(AssertionError):
                self.browser.run(context.close(), timeout_s=10)

    # -- reaching the page

    def do(self, action: Callable[[Any], Awaitable[T]], *, timeout_s: float = DEFAULT_WAIT_S) -> T:
        """Anything that Playwright's page (async) can do: ``page.do(lambda p: p.locator("x").click())``."""

        async def act() -> T:
            return await action(self._page)

        return self.browser.run(act(), timeout_s=timeout_s)

    def evaluate(self, script: str, argument: object = None, *, timeout_s: float = DEFAULT_WAIT_S) -> Any:
        """The value of a JavaScript function in the page."""
        return self.do(lambda page: page.evaluate(script, argument), timeout_s=timeout_s)

    def wait_for_script(self, script: str, argument: object = None, *, timeout_s: float = DEFAULT_WAIT_S) -> None:
        """Wait until a JavaScript function in the page returns something true."""
        self.do(
            lambda page: page.wait_for_function(script, arg=argument, timeout=timeout_s * 1000),
            timeout_s=timeout_s + 5,
        )

    def wait_for_text(self, text: str, *, cell: int | None = None, timeout_s: float = DEFAULT_WAIT_S) -> None:
        """Wait until this text can be read in the output of a cell (or of any)."""
        wait_until(lambda: text in self.output_text(cell), what=f"the page shows {text!r}", timeout_s=timeout_s)

    def click(self, name: str, *, timeout_s: float = DEFAULT_WAIT_S) -> None:
        """Click the visible output button with this name (part of it is enough)."""
        button = f".jp-Cell-outputWrapper button:visible:has-text({json.dumps(name)})"
        self.do(lambda page: page.locator(button).first.click(timeout=timeout_s * 1000), timeout_s=timeout_s + 5)

    def press(self, key: str) -> None:
        """Press a key, where the focus is: ``Enter``, ``Space``, ``Tab``, ``Escape`` ..."""
        self.do(lambda page: page.keyboard.press(key))

    def type(self, text: str) -> None:
        self.do(lambda page: page.keyboard.type(text))

    def focus(self, name: str) -> None:
        """Put the keyboard's focus on the visible output button with this name."""
        button = f".jp-Cell-outputWrapper button:visible:has-text({json.dumps(name)})"
        self.do(lambda page: page.locator(button).first.focus(timeout=DEFAULT_WAIT_S * 1000))

    def command(self, name: str, arguments: dict[str, object] | None = None) -> None:
        """Execute a command of the front end and wait for it."""
        self.evaluate("([c, a]) => window.jupyterapp.commands.execute(c, a || {}).then(() => null)", [name, arguments])

    # -- running cells

    def _start(self, command: str) -> Run:
        number = self.evaluate(
            """c => { const run = {done: false}; window.__runs.push(run);
                      window.jupyterapp.commands.execute(c).finally(() => { run.done = true });
                      return window.__runs.length - 1 }""",
            command,
        )
        return Run(self, int(number))

    def run_all(self) -> Run:
        """Start "Run all cells"."""
        return self._start("notebook:run-all-cells")

    def run_cell(self, index: int) -> Run:
        """Start one cell, by its place from 0."""
        self.select(index)
        return self._start("notebook:run-cell")

    def select(self, index: int) -> None:
        """Make this cell the active one, in command mode, and nothing else selected."""
        self.evaluate(
            f"""i => {{ const n = {_PANEL}.content; n.deselectAll(); n.activeCellIndex = i; n.mode = 'command' }}""",
            index,
        )

    def execute(self, index: int, *, timeout_s: float = DEFAULT_WAIT_S) -> float:
        """Run one cell to its end; returns the seconds that it took."""
        return self.run_cell(index).wait(timeout_s)

    def append_cell(self, source: str) -> int:
        """Add a code cell at the end; returns its place."""
        return int(
            self.evaluate(
                f"""s => {{ const m = {_PANEL}.content.model.sharedModel;
                            m.addCell({{cell_type: 'code', source: s}}); return m.cells.length - 1 }}""",
                source,
            )
        )

    # -- the kernel

    def status(self) -> str:
        """What the page believes of its kernel: idle, busy, ..."""
        return str(self.evaluate(f"() => {_KERNEL}?.status ?? 'none'"))

    def wait_connected(self, timeout_s: float = DEFAULT_WAIT_S) -> None:
        """Wait until the page has an idle kernel. An awaited cell may run all the same: see ``Run``."""
        self.wait_for_script(_CONNECTED, timeout_s=timeout_s)

    def interrupt(self) -> float:
        """Interrupt the kernel; returns the moment (monotonic seconds) just before."""
        moment = time.monotonic()
        self.evaluate(f"() => {_KERNEL}.interrupt().then(() => null)")
        return moment

    def restart(self) -> None:
        """Restart the kernel without asking, and wait until it is back."""
        self.evaluate(f"() => {_KERNEL}.restart().then(() => null)", timeout_s=START_WAIT_S)
        self.wait_connected(START_WAIT_S)

    def shut_down(self) -> None:
        """End the notebook's kernel."""
        self.evaluate(f"() => {_PANEL}.sessionContext.shutdown().then(() => null)")

    def kernel_value(self, expression: str, *, timeout_s: float = DEFAULT_WAIT_S) -> str:
        """The repr of a Python expression in the kernel. Waits behind a running cell."""
        answer = self.evaluate(
            f"""e => {_KERNEL}.requestExecute(
                    {{code: '', silent: false, store_history: false, allow_stdin: false, user_expressions: {{v: e}}}}
                ).done.then(r => r.content.user_expressions.v)""",
            expression,
            timeout_s=timeout_s,
        )
        assert answer["status"] == "ok", f"{expression} raised {answer.get('ename')}: {answer.get('evalue')}"
        return str(answer["data"]["text/plain"])

    # -- the notebook

    def save(self) -> dict[str, Any]:
        """Save, and return the file as it then is."""
        self.evaluate(f"() => {_PANEL}.context.save().then(() => null)")
        return dict(json.loads((self.server.root / self.name).read_text(encoding="utf-8")))

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """A cell's outputs as they would be saved."""
        return list(self.evaluate(f"i => {_PANEL}.content.model.cells.get(i).outputs.toJSON()", index))

    def execution_count(self, index: int) -> int | None:
        value = self.evaluate(f"i => {_PANEL}.content.model.cells.get(i).executionCount", index)
        return None if value is None else int(value)

    def output_text(self, index: int | None = None) -> str:
        """The visible text of a cell's output area, or of all."""
        return str(
            self.evaluate(
                f"""i => {{ const cells = {_PANEL}.content.widgets;
                            const wanted = i === null ? cells : [cells[i]];
                            return wanted.map(c => c.node.querySelector('.jp-Cell-outputWrapper')?.innerText ?? '')
                                         .join('\\n') }}""",
                index,
            )
        )

    def visible_buttons(self) -> list[str]:
        """The names of the buttons that a person can see in the outputs."""
        return list(
            self.evaluate(
                """() => Array.from(document.querySelectorAll('.jp-Cell-outputWrapper button'))
                              .filter(b => b.offsetParent !== null).map(b => b.innerText.trim()).filter(t => t)"""
            )
        )

    # -- the looks

    def resize(self, width: int, height: int) -> None:
        self.do(lambda page: page.set_viewport_size({"width": width, "height": height}))

    def theme(self, name: Literal["light", "dark"]) -> None:
        """Switch the front end's theme and wait until it is on."""
        self.command("apputils:change-theme", {"theme": {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[name]})
        light = "true" if name == "light" else "false"
        self.wait_for_script("v => document.body.dataset.jpThemeLight === v", light)

    def scroll_to(self, index: int) -> None:
        self.evaluate(f"i => {_PANEL}.content.widgets[i].node.scrollIntoView({{block: 'start'}})", index)

    def screenshot(self, path: Path) -> Path:
        """A picture of what is on the screen."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.do(lambda page: page.screenshot(path=str(path)))
        return path
