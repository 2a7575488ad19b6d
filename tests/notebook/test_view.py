"""The live view without a page: what is sent, how often, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets
import pytest
from comm import get_comm_manager
from ipywidgets.widgets import widget as widget_module

from mxclaw_nb.notebook import view as view_module
from mxclaw_nb.notebook.folding import TAIL_CHARACTERS
from mxclaw_nb.notebook.panel import LiveTurns
from mxclaw_nb.notebook.view import LiveView
from mxclaw_nb.notebook.widgets import CONTROL_TARGET, PageWatch, Pulse, close_all
from mxclaw_nb.protocol import Answer, Event
from tests.notebook.conftest import Desk, Displays
from tests.notebook.events import Told, a_whole_turn, call

WIDGET = "application/vnd.jupyter.widget-view+json"


def models() -> set[str]:
    return set(widget_module._instances)


@pytest.fixture(autouse=True)
def _no_model_is_left() -> Iterator[None]:
    before = models()
    mine = ipywidgets.IntSlider(description="the user's own")
    yield
    assert ipywidgets.Widget.get_manager_state()["state"].keys() >= {mine.model_id}
    close_all(mine)
    assert models() == before


def buttons(widget: Any) -> dict[str, Any]:
    """The buttons anywhere in a widget, by their names."""
    found = {widget.description: widget} if isinstance(widget, ipywidgets.Button) else {}
    for child in getattr(widget, "children", ()):
        found.update(buttons(child))
    return found


def text_of(widget: Any) -> str:
    """All HTML in a widget, in its order."""
    own = widget.value if isinstance(widget, ipywidgets.HTML) else ""
    return own + "".join(text_of(child) for child in getattr(widget, "children", ()))


Scenario = Callable[[LiveView], Any]


def live(desk: Desk, scenario: Scenario) -> LiveView:
    """Run a scenario with an open view on a fresh loop, and close the view."""

    async def main() -> LiveView:
        view = LiveView(desk.handle(), on_close=lambda _view: None)
        try:
            await scenario(view)
        finally:
            await view.close()
        return view

    return asyncio.run(main())


async def painted(view: LiveView) -> None:
    """Until everything that was told is on the page."""
    view._painter.changed()
    await asyncio.sleep(0.12)


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled", "nothing", "exception", "asking", "running"])
def test_however_it_ends_a_record_stays_and_no_widget(desk: Desk, displays: Displays, ending: str) -> None:
    whole = a_whole_turn().events
    events = {
        "completed": whole,
        "failed": [*whole[:-1], Told().failed()],
        "cancelled": [*whole[:5], Told().failed("cancelled", "stopped")],
        "nothing": whole[:3],
        "exception": whole[:3],
        "asking": whole[:5],
        "running": whole[:8],
    }[ending]

    async def scenario(view: LiveView) -> None:
        for event in events:
            view.on_event(event)
        await painted(view)
        assert WIDGET in displays.last
        if ending == "exception":
            raise RuntimeError("the turn broke")

    if ending == "exception":
        with pytest.raises(RuntimeError):
            live(desk, scenario)
    else:
        live(desk, scenario)
    assert len(displays.latest) == 1, "one display for the whole turn"
    assert set(displays.last) == {"text/html", "text/markdown", "text/plain"}
    expected = {"completed": "completed", "failed": "max_iterations"}.get(ending, "interrupted")
    assert expected in displays.last["text/html"]


def test_closing_twice_leaves_one_record(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        await view.close()

    live(desk, scenario)
    assert len(displays.everything) == 2


def test_the_order_is_line_question_calls_text(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        told = Told()
        for event in (
            told.started(), told.delta("The reply so far."), told.message("The reply so far.", (call(), call("c-2"))),
            told.tool_completed("one", call="c-2", name="list_dir"), told.usage(), told.asked("rm -r \u202ebuild"),
        ):  # fmt: skip
            view.on_event(event)
        await painted(view)
        shown = text_of(view.box)
        places = [shown.index(text) for text in ("round 1/8", "U+202E", "list_dir", "The reply so far.")]
        assert places == sorted(places)
        assert "100 in, 20 out" in shown and "session s-1234567890" in shown
        assert list(buttons(view.box)) == [
            "Stop", "Allow once", "Allow for this session", "Deny", "Deny with this note",
        ]  # fmt: skip

    live(desk, scenario)


def test_a_question_refreshes_the_fallback_which_never_claims_to_run(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        told = Told()
        view.on_event(told.started())
        view.on_event(told.asked("rm -r build"))
        for form in ("text/plain", "text/markdown"):
            fallback = displays.last[form]
            assert "Look around" in fallback and "%mxclaw show t-0987654321" in fallback and "rm -r build" in fallback
            assert "running" not in fallback

    live(desk, scenario)


def test_a_retry_is_seen_under_the_running_line_until_text_comes(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        told = Told()
        view.on_event(told.started())
        for number in (2, 3):
            view.on_event(told.notice(f"The provider answered 500 <b>; trying again in {number} s."))
        await painted(view)
        assert "500 &lt;b&gt;; trying again in 3 s." in view._line.value and "in 2 s" not in view._line.value
        assert "waiting for the model" in view._line.value
        view.on_event(told.notice("x " * 50_000))
        await painted(view)
        assert len(view._line.value) < 1500
        view.on_event(told.delta("At last."))
        await painted(view)
        assert "x x" not in view._line.value and "writing" in view._line.value

    live(desk, scenario)
    assert "trying again in 2 s." in displays.last["text/html"], "the record has them all"


def test_while_a_model_only_reasons_the_end_of_it_is_one_line(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        told = Told()
        view.on_event(told.started())
        for number in range(2000):
            view.on_event(told.thought(f"step\n{number} <i> "))
        await painted(view)
        assert ">thinking<" in view._line.value
        assert "step 1999 &lt;i&gt;" in view._line.value and "step 1800 " not in view._line.value
        assert len(view._line.value) < 1500
        view.on_event(told.delta("Now."))
        await painted(view)
        assert "step" not in view._line.value

    live(desk, scenario)
    assert "step" not in displays.last["text/html"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("Allow once", Answer("allow_once")),
        ("Allow for this session", Answer("allow_session")),
        ("Deny", Answer("deny")),
        ("Deny with this note", Answer("deny", "try something else")),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["on the loop's thread", "on another thread"])
def test_a_click_answers_on_whatever_thread_it_arrives_and_prints_nothing(
    desk: Desk, displays: Displays, capfd: pytest.CaptureFixture[str], name: str, answer: Answer, elsewhere: bool
) -> None:
    async def scenario(view: LiveView) -> None:
        told = Told()
        view.on_event(told.started())
        view.on_event(told.asked(request="a-7"))
        await painted(view)
        view._questions["a-7"]._word.value = " try something else "
        button = buttons(view.box)[name]
        if elsewhere:
            thread = threading.Thread(target=button.click)
            thread.start()
            thread.join(5)
        else:
            button.click()
        assert desk.answers == [("a-7", answer)]
        await asyncio.sleep(0.05)
        assert all(one.disabled for one in buttons(view.box).values() if one.description != "Stop")
        assert "passing it on" in text_of(view.box)
        view.on_event(told.answered(answer.choice, request="a-7"))
        await painted(view)
        assert list(buttons(view.box)) == ["Stop"]

    live(desk, scenario)
    assert capfd.readouterr().out == ""


def test_enter_in_the_field_denies_with_the_word(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        told = Told()
        view.on_event(told.asked(request="a-7"))
        field = view._questions["a-7"]._word
        field._handle_custom_msg({"event": "submit"}, [])  # the page sends this first
        field.value = "not like that"
        await asyncio.sleep(0.5)
        assert desk.answers == [("a-7", Answer("deny", "not like that"))]

    live(desk, scenario)


def test_enter_in_an_empty_field_answers_nothing(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        view.on_event(Told().asked(request="a-7"))
        view._questions["a-7"]._word._handle_custom_msg({"event": "submit"}, [])
        await asyncio.sleep(0.5)
        assert desk.answers == []

    live(desk, scenario)


def test_an_answer_from_elsewhere_is_shown_with_where_it_came_from(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        told = Told()
        for event in (told.asked(), told.answered("deny", by="cli"), told.tool_completed("no", status="denied")):
            view.on_event(event)
        await painted(view)
        assert "denied from a terminal" in text_of(view.box)

    live(desk, scenario)
    assert "denied from a terminal" in displays.last["text/html"]


def test_only_choices_that_were_offered_have_a_button(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        view.on_event(Told().asked(choices=("allow_once", "deny")))
        await painted(view)
        assert "Allow for this session" not in buttons(view.box)

    live(desk, scenario)


def test_stop_stops(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        buttons(view.box)["Stop"].click()
        await painted(view)
        assert desk.stops == 1
        assert buttons(view.box)["Stop"].disabled and "stopping" in text_of(view.box)

    live(desk, scenario)


def test_a_burst_is_shown_at_most_20_times_a_second_and_only_its_tail(desk: Desk, displays: Displays) -> None:
    sent: list[int] = []

    async def scenario(view: LiveView) -> None:
        view._text.observe(lambda change: sent.append(len(change["new"])), "value")
        told = Told()
        began = time.monotonic()
        for number in range(4000):
            view.on_event(told.delta(f"word {number} "))
            if number % 10 == 0:
                await asyncio.sleep(0.001)
        elapsed = time.monotonic() - began
        await painted(view)
        assert len(sent) <= elapsed * 20 + 5
        assert "word 3999" in view._text.value
        assert max(sent) < TAIL_CHARACTERS * 2

    live(desk, scenario)


def test_a_thousand_calls_do_not_make_a_thousand_widgets(desk: Desk, displays: Displays) -> None:
    async def scenario(view: LiveView) -> None:
        before = len(models())
        told = Told()
        for number in range(300):
            view.on_event(told.tool_started(f"c-{number}"))
            view.on_event(told.tool_completed("done", call=f"c-{number}"))
            if number % 50 == 0:
                await painted(view)
        await painted(view)
        assert len(models()) - before <= view_module.CARDS * 3

    live(desk, scenario)


def test_a_view_that_cannot_be_painted_does_not_disturb_the_turn(
    desk: Desk, displays: Displays, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(view: LiveView) -> None:
        def broken() -> None:
            raise ValueError("no")

        monkeypatch.setattr(view, "_paint_text", broken)
        for event in a_whole_turn().events:
            view.on_event(event)
        await painted(view)

    live(desk, scenario)
    assert "completed" in displays.last["text/html"]


# -- where no page answers


def test_without_a_sign_of_a_page_the_question_is_asked_by_input(
    desk: Desk, displays: Displays, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view_module, "PULSE_S", 0.05)
    monkeypatch.setattr("builtins.input", lambda prompt: "s")

    async def scenario(view: LiveView) -> None:
        view.on_event(Told().asked("rm -r \u202ebuild", request="a-7"))
        await asyncio.sleep(0.3)
        assert desk.answers == [("a-7", Answer("allow_session"))]

    live(desk, scenario)
    assert "U+202E" in capsys.readouterr().out


def test_a_page_that_answers_the_link_is_alive_and_nothing_is_asked_by_input(
    desk: Desk, displays: Displays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "PULSE_S", 0.1)
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail("asked by input"))

    async def scenario(view: LiveView) -> None:
        view.on_event(Told().asked(request="a-7"))
        view._pulse._target.set_state({"width": "1px"})
        await asyncio.sleep(0.3)
        assert desk.answers == []

    live(desk, scenario)


def test_a_question_that_is_answered_meanwhile_is_not_asked_by_input(
    desk: Desk, displays: Displays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "PULSE_S", 0.1)
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail("asked by input"))

    async def scenario(view: LiveView) -> None:
        told = Told()
        view.on_event(told.asked(request="a-7"))
        view.on_event(told.answered(request="a-7", by="cli"))
        await asyncio.sleep(0.3)

    live(desk, scenario)


def test_the_pulse_can_be_felt_from_another_thread() -> None:
    async def main() -> None:
        pulse = Pulse()
        threading.Timer(0.05, lambda: pulse._target.set_state({"width": "1px"})).start()
        assert await pulse.wait(5)
        pulse.close()

    asyncio.run(main())


# -- pages that attach, and the panel


def test_a_page_that_attaches_in_mid_turn_ends_with_the_record_in_the_live_box(desk: Desk, displays: Displays) -> None:
    turns = LiveTurns()

    async def main() -> LiveView:
        view = turns.open(lambda closed: LiveView(desk.handle(), on_close=closed))
        _attach()
        for event in a_whole_turn("The final reply.").events:
            view.on_event(event)
        await view.close()
        return view

    view = asyncio.run(main())
    assert "The final reply." in text_of(view.box)
    assert list(buttons(view.box)) == []
    assert "text/html" in displays.last
    ipywidgets.Widget.get_manager_state()
    turns.unload()


def _attach() -> None:
    """What ipywidgets' own handler refuses: enough to see that ours passed it on."""
    target = get_comm_manager().targets[CONTROL_TARGET]
    with pytest.raises(ValueError, match="Incompatible widget control protocol"):
        target(object(), {"metadata": {"version": "0.0"}})


def test_pages_are_watched_only_while_a_turn_runs_and_the_old_handler_comes_back(
    desk: Desk, displays: Displays
) -> None:
    ipywidgets.register_comm_target()
    before = get_comm_manager().targets[CONTROL_TARGET]
    turns = LiveTurns()

    async def main() -> None:
        one = turns.open(lambda closed: LiveView(desk.handle(), on_close=closed))
        two = turns.open(lambda closed: LiveView(desk.handle(), on_close=closed))
        assert get_comm_manager().targets[CONTROL_TARGET] != before
        await one.close()
        assert get_comm_manager().targets[CONTROL_TARGET] != before
        await two.close()

    asyncio.run(main())
    assert get_comm_manager().targets[CONTROL_TARGET] == before


def test_a_handler_that_somebody_put_over_ours_stays() -> None:
    ipywidgets.register_comm_target()
    before = get_comm_manager().targets[CONTROL_TARGET]
    watch = PageWatch(lambda: None)
    watch.start()

    def theirs(_comm: object, _message: object) -> None: ...

    get_comm_manager().register_target(CONTROL_TARGET, theirs)
    watch.stop()
    assert get_comm_manager().targets[CONTROL_TARGET] is theirs
    get_comm_manager().register_target(CONTROL_TARGET, before)


def test_the_panel_shows_what_runs_and_then_what_was_left(desk: Desk, displays: Displays) -> None:
    turns = LiveTurns()

    async def main() -> None:
        turns.show_panel()
        panel = turns._panel
        assert "No agent turn is running" in text_of(panel)
        view = turns.open(lambda closed: LiveView(desk.handle(), on_close=closed))
        told = a_whole_turn("The final reply.")
        view.on_event(told.events[0])
        view.on_event(told.asked(request="a-9"))
        await painted(view)
        buttons(panel)["Allow once"].click()
        assert desk.answers == [("a-9", Answer("allow_once"))]
        for event in told.events:
            view.on_event(event)
        await view.close()
        assert "The final reply." in text_of(panel) and "No agent turn is running" in text_of(panel)
        ipywidgets.Widget.get_manager_state()

    asyncio.run(main())
    assert displays.everything[0]["text/plain"].startswith("[agent panel")
    turns.unload()


def test_unloading_under_a_running_turn_leaves_its_view_alone(desk: Desk, displays: Displays) -> None:
    turns = LiveTurns()

    async def main() -> None:
        turns.show_panel()
        view = turns.open(lambda closed: LiveView(desk.handle(), on_close=closed))
        turns.unload()
        events: list[Event] = a_whole_turn().events
        for event in events:
            view.on_event(event)
        await painted(view)
        assert "All is well." in text_of(view.box)
        await view.close()

    asyncio.run(main())
