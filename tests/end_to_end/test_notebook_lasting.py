"""What outlives a turn in a page: reloads in its middle, saved files, the user's own widgets, hostile replies."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mxclaw_nb.providers.rehearsal import call, say, sequence
from tests.end_to_end.agents import MODELS, ScriptedAgent, scripted, wait_for_question, watch_network
from tests.end_to_end.harness import JupyterServer, NotebookPage, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

OpenNotebook = Callable[..., NotebookPage]
TURN = "%%agent\nWrite the file."
__all__ = ["scripted"]


def test_a_saved_page_that_is_reloaded_gets_its_buttons_and_its_record(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer
) -> None:
    agent = scripted(sequence(call("write_file", path="reloaded.txt", content="one\n"), say("Written at last.")))
    page = open_notebook(
        [agent.setup, "import ipywidgets\nmine = ipywidgets.IntSlider(description='mine')\nmine", TURN]
    )
    page.execute(0)
    page.execute(1)
    run = page.run_cell(2)
    wait_for_question(page, "write_file")
    saved = json.dumps(page.save()["cells"][2]["outputs"])
    assert "agent turn: Write the file." in saved and "%mxclaw show" in saved
    assert "running" not in saved
    assert not run.done
    page.reload()
    wait_for_question(page, "write_file")
    page.click("Allow once")
    page.wait_for_text("Written at last.", cell=2)
    assert "completed" in page.output_text(2)
    assert (server.root / "reloaded.txt").exists()
    assert page.visible_buttons() == []
    page.wait_connected()
    assert page.kernel_value("__import__('ipywidgets').Widget.get_manager_state()['version_major']") == "2"
    page.save()
    page.reload()
    page.wait_for_text("mine", cell=1)
    page.wait_for_text("Written at last.", cell=2)


def test_an_unsaved_page_that_is_reloaded_has_the_panel_and_the_terminal(
    open_notebook: OpenNotebook, scripted: ScriptedAgent
) -> None:
    agent = scripted(sequence(call("write_file", path="unsaved.txt", content="one\n"), say("Written unseen.")))
    page = open_notebook([agent.setup, "%mxclaw panel", TURN, "%mxclaw show"])
    page.execute(0)
    page.execute(1)
    page.wait_for_text("No agent turn is running", cell=1)
    page.save()
    page.run_cell(2)
    wait_for_question(page, "write_file")
    assert "Allow write_file?" in page.output_text(1)
    page.reload()
    page.wait_for_text("Allow write_file?", cell=1)
    assert page.output_text(2).strip() == ""
    request = next(event["requestId"] for event in agent.events() if event["type"] == "permission.requested")
    agent.mxclaw("approve", request)
    page.wait_for_text("Written unseen.", cell=1)
    page.execute(3)
    page.wait_for_text("Written unseen.", cell=3)
    assert "allowed once" in page.output_text(3)


def test_the_users_widgets_are_restored_after_a_turn(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence(call("write_file", path="users.txt", content="one\n"), say("Done.")))
    page = open_notebook(
        [agent.setup, "import ipywidgets\nmine = ipywidgets.IntSlider(value=42, description='mine')\nmine", TURN]
    )
    page.execute(0)
    page.execute(1)
    run = page.run_cell(2)
    wait_for_question(page, "write_file")
    page.click("Deny")
    run.wait()
    assert page.kernel_value(MODELS) == "3"  # the slider, its layout, its style
    page.save()
    page.reload()
    page.wait_for_text("42", cell=1)
    page.wait_for_text("Done.", cell=2)


def test_a_saved_file_shows_the_turn_without_a_kernel(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer
) -> None:
    agent = scripted(sequence(call("list_dir", path="."), say("**Nothing** but this.")))
    page = open_notebook([agent.setup, TURN], name="kept.ipynb")
    page.run_all().wait()
    page.save()
    page.shut_down()
    agent.server.stop()
    page.reload()
    page.wait_for_text("Nothing but this.", cell=1)
    text = page.output_text(1)
    assert "completed" in text and "list_dir" in text
    assert "Error" not in text and "Loading" not in text


HOSTILE = """\
<script>alert(1)</script> <img src=x onerror="alert(2)"> <svg onload=alert(3)>
<iframe src="http://192.0.2.1/frame"></iframe> <object data="http://192.0.2.1/object"></object>
![pixel](http://192.0.2.1/pixel.png) ![pixel][ref] [click](javascript:alert(4)) <javascript:alert(5)>
$\\href{javascript:alert(6)}{x}$ $$\\bbox[url(http://192.0.2.1/bbox)]{x}$$ \\(\\require{html}\\class{x}{y}\\)
<style>body { background: url(http://192.0.2.1/style) }</style> <base href="http://192.0.2.1/">

```mermaid
graph TD; A-->B; click A "http://192.0.2.1/mermaid"
```

[ref]: http://192.0.2.1/reference.png
"""
NOTHING_MADE = """() => Array.from(document.querySelectorAll(
    '.jp-Cell-outputWrapper :is(script, iframe, object, embed, form, base, img, video, audio, link, mjx-container a)'
)).map(e => e.outerHTML)"""


def test_a_hostile_reply_does_nothing_and_loads_nothing(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer
) -> None:
    agent = scripted(
        sequence(
            call("run_command", command=f"printf '%s' {HOSTILE!r}").saying(HOSTILE),
            say(HOSTILE + "\n\nThe end."),
        )
    )
    page = open_notebook([agent.setup, TURN, "%mxclaw show"])
    network = watch_network(page, server)
    page.execute(0)
    run = page.run_cell(1)
    wait_for_question(page, "run_command")
    page.wait_for_text("<script>alert(1)</script>", cell=1)
    assert page.evaluate(NOTHING_MADE) == []
    page.click("Allow once")
    run.wait()
    page.wait_for_text("The end.", cell=1)
    page.execute(2)
    assert page.evaluate(NOTHING_MADE) == []
    page.save()
    page.reload()
    page.wait_for_text("The end.", cell=2)
    assert page.evaluate(NOTHING_MADE) == []
    assert (network.foreign, network.dialogs, getattr(page, "dialogs", [])) == ([], [], [])


def test_the_markdown_alone_does_nothing_either(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer
) -> None:
    """What another renderer gets: JupyterLab's own Markdown, in a trusted notebook, with our text/markdown only."""
    agent = scripted(sequence(say(HOSTILE + "\n\nThe end.")))
    show = (
        "from IPython.display import display\n"
        "from mxclaw_nb.notebook.markdown import safe_markdown\n"
        f"display({{'text/markdown': safe_markdown({HOSTILE!r}) + 'The end.'}}, raw=True)"
    )
    page = open_notebook([agent.setup, show])
    network = watch_network(page, server)
    page.run_all().wait()
    page.wait_for_text("The end.", cell=1)
    assert page.evaluate(NOTHING_MADE) == []
    hrefs = page.evaluate("() => Array.from(document.querySelectorAll('.jp-RenderedMarkdown a')).map(a => a.href)")
    assert all(href.startswith("http://192.0.2.1/") for href in hrefs)
    wait_until(lambda: page.status() == "idle", what="the kernel is idle")
    assert (network.foreign, network.dialogs) == ([], [])


def test_running_a_cell_again_adds_a_turn_and_says_so(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    agent = scripted(lambda request: say(f"Reply {request.number}."))
    page = open_notebook([agent.setup, TURN])
    page.execute(0)
    page.execute(1)
    page.execute(1)
    page.wait_for_text("Reply 1.")
    assert "2nd time" in page.output_text(1)
    assert len(agent.server.requests[-1].messages) > len(agent.server.requests[0].messages)


def test_a_notebook_goes_on_with_its_session_when_it_is_reopened(
    open_notebook: OpenNotebook, scripted: ScriptedAgent
) -> None:
    agent = scripted(lambda request: say(f"Reply {request.number}."))
    page = open_notebook([agent.setup, TURN])
    page.run_all().wait()
    page.restart()
    page.run_all().wait()
    page.wait_for_text("Reply 1.")
    assert "resumed, 3 messages" in page.output_text(1)
    page.execute(1)
    page.wait_for_text("Reply 2.")
    assert "resumed" not in page.output_text(1)
    assert [message.role for message in agent.server.requests[1].messages] == ["system", "user", "assistant", "user"]
