"""One browser and one server of each kind for all end-to-end tests; a page and a kernel of its own for each test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.end_to_end.harness import Browser, FrontendName, JupyterServer, NotebookPage, find_chromium

SCREENSHOTS = Path(__file__).parents[2] / ".cache" / "screenshots"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("needs Chromium or Chrome: install the package `chromium`")
    browser = Browser(executable)
    try:
        browser.start()
        yield browser
    finally:
        browser.stop()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[FrontendName], JupyterServer]]:
    """Gives the session's server of a kind, started on first need."""
    running: dict[FrontendName, JupyterServer] = {}

    def get(frontend: FrontendName) -> JupyterServer:
        if frontend not in running:
            server = JupyterServer(frontend, tmp_path_factory.mktemp(frontend))
            server.start()
            running[frontend] = server
        return running[frontend]

    yield get
    for server in running.values():
        server.stop()


@pytest.fixture(params=["lab", "notebook"])
def frontend(request: pytest.FixtureRequest) -> FrontendName:
    """Both front ends; a test that names one itself uses ``@pytest.mark.parametrize("frontend", ["lab"])``."""
    name: FrontendName = request.param
    return name


@pytest.fixture
def server(frontend: FrontendName, servers: Callable[[FrontendName], JupyterServer]) -> JupyterServer:
    return servers(frontend)


OpenNotebook = Callable[..., NotebookPage]


@pytest.fixture
def open_notebook(request: pytest.FixtureRequest, browser: Browser, server: JupyterServer) -> Iterator[OpenNotebook]:
    """``open_notebook(["cell", ...], width=...)`` writes a notebook and opens it; its kernel ends with the test."""
    pages: list[NotebookPage] = []
    stem = re.sub(r"\W+", "-", request.node.name).strip("-")

    def open_(cells: Sequence[str] = (), *, name: str = "", width: int = 1200, height: int = 1400) -> NotebookPage:
        name = name or f"{stem}-{len(pages)}.ipynb"
        if cells:
            server.write_notebook(name, cells)
        page = NotebookPage(browser, server, name)
        pages.append(page)
        return page.open(width=width, height=height)

    yield open_
    for page in pages:
        page.close()
    server.shut_down_kernels()
