"""The harness itself: what the other end-to-end tests build upon must hold in both front ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.harness import FrontendName, JupyterServer, NotebookPage, wait_until

pytestmark = pytest.mark.browser

OpenNotebook = Callable[..., NotebookPage]


def test_cells_run_and_their_outputs_can_be_read(open_notebook: OpenNotebook) -> None:
    page = open_notebook(["print('hello', 1 + 1)", "import asyncio; await asyncio.sleep(0.3); 'after'"])
    page.run_all().wait()
    assert "hello 2" in page.output_text(0)
    assert page.outputs(1)[0]["data"]["text/plain"] == "'after'"
    assert page.kernel_value("6 * 7") == "42"
    assert page.save()["cells"][0]["outputs"][0]["text"] == ["hello 2\n"]


def test_a_running_cell_is_waited_for_and_can_be_interrupted(open_notebook: OpenNotebook) -> None:
    page = open_notebook(["import time\nprint('started', flush=True)\ntime.sleep(60)"])
    run = page.run_cell(0)
    page.wait_for_text("started")
    assert not run.done
    moment = page.interrupt()
    run.wait(10)
    assert time.monotonic() - moment < 5
    assert page.outputs(0)[-1]["ename"] == "KeyboardInterrupt"


def test_buttons_can_be_clicked_and_pressed(open_notebook: OpenNotebook) -> None:
    button = (
        "import ipywidgets as w\nb = w.Button(description='Press me'); n = []\nb.on_click(lambda _: n.append(1)); b"
    )
    page = open_notebook([button])
    page.execute(0)
    page.click("Press me")
    page.focus("Press me")
    page.press("Space")
    wait_until(lambda: page.kernel_value("len(n)") == "2", what="both presses arrived")
    assert page.visible_buttons() == ["Press me"]


def test_a_reloaded_page_keeps_its_kernel_and_a_restarted_one_loses_its_names(open_notebook: OpenNotebook) -> None:
    page = open_notebook(["x = 41 + 1"])
    page.execute(0)
    page.save()
    page.reload()
    page.wait_connected()
    assert page.kernel_value("x") == "42"
    page.restart()
    assert page.kernel_value("'x' in globals()") == "False"


def test_themes_widths_and_pictures(open_notebook: OpenNotebook, tmp_path: Path) -> None:
    page = open_notebook(["1"])
    page.theme("dark")
    page.resize(480, 800)
    dark = page.screenshot(tmp_path / "dark.png").read_bytes()
    page.theme("light")
    assert dark != page.screenshot(tmp_path / "light.png").read_bytes()


def test_the_kernel_ends_with_its_notebook(open_notebook: OpenNotebook, server: JupyterServer) -> None:
    page = open_notebook(["1"])
    assert len(server.kernel_pids()) == 1
    page.shut_down()
    wait_until(lambda: not server.kernel_pids(), what="the kernel's process is gone")


def test_an_added_cell_runs_like_any_other(open_notebook: OpenNotebook, frontend: FrontendName) -> None:
    page = open_notebook(["1"])
    place = page.append_cell("print('added')")
    page.execute(place)
    assert "added" in page.output_text(place), frontend
