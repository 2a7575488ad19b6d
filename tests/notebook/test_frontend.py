"""The Jupyter front end's choices: which view, who can be asked, and what is said."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mxclaw_nb.notebook import frontend as frontend_module
from mxclaw_nb.notebook.approvals_input import ask_by_input, parse_answer
from mxclaw_nb.notebook.frontend import JupyterFrontend
from mxclaw_nb.notebook.place import locate
from mxclaw_nb.notebook.static_view import StaticView
from mxclaw_nb.notebook.styles import STYLE
from mxclaw_nb.notebook.view import LiveView
from mxclaw_nb.protocol import CHOICES, Answer, Frontend, UsageError
from tests.notebook.conftest import Desk, Displays
from tests.notebook.events import Told, a_whole_turn
from tests.notebook.pages import harmless


def kernel(*, allow_stdin: bool) -> JupyterFrontend:
    return JupyterFrontend(SimpleNamespace(kernel=SimpleNamespace(_allow_stdin=allow_stdin)))  # type: ignore[arg-type]


def test_it_is_a_front_end() -> None:
    front: Frontend = kernel(allow_stdin=True)
    assert front.can_answer


def test_where_no_input_is_taken_no_widget_is_made_and_only_the_record_is_shown(desk: Desk, displays: Displays) -> None:
    async def main() -> None:
        front = kernel(allow_stdin=False)
        assert not front.can_answer
        view = front.open_turn(desk.handle())
        assert isinstance(view, StaticView)
        for event in a_whole_turn().events:
            view.on_event(event)
        assert displays.everything == []
        await view.close()
        await view.close()

    asyncio.run(main())
    assert len(displays.everything) == 1
    assert set(displays.last) == {"text/html", "text/markdown", "text/plain"}


def test_the_first_turn_of_a_kernel_in_a_session_that_has_some_says_so_once(
    desk: Desk, displays: Displays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend_module, "_repeats", {})

    async def main() -> None:
        for session, earlier, resumed in (
            ("s-1", 12, True), ("s-1", 14, False), ("s-2", 0, False), ("s-2", 4, False), ("s-1", 16, False),
        ):  # fmt: skip
            handle = replace(desk.handle(), session_id=session, earlier_messages=earlier)
            view = kernel(allow_stdin=False).open_turn(handle)
            view.on_event(Told().started())
            await view.close()
            assert (f"session {session} resumed, {earlier} messages" in displays.last["text/plain"]) is resumed
            assert ("resumed" in displays.last["text/html"]) is resumed

    asyncio.run(main())


def test_on_an_old_kernel_it_says_so_once_and_asks_by_input(
    desk: Desk,
    displays: Displays,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace(version_info=(6, 29, 5)))
    monkeypatch.setattr(frontend_module, "_advised", set())
    monkeypatch.setattr("builtins.input", lambda prompt: "n")

    async def main() -> None:
        for _ in range(2):
            view = kernel(allow_stdin=True).open_turn(desk.handle())
            assert isinstance(view, StaticView)
            view.on_event(Told().asked(request="a-1"))
            await asyncio.sleep(0.05)
            await view.close()

    asyncio.run(main())
    assert desk.answers == [("a-1", Answer("deny"))] * 2
    assert capsys.readouterr().err.count("Restart the kernel") == 1


@pytest.mark.parametrize(
    ("version", "hears"),
    [((6, 29, 5), False), ((7, 3, 9), False), ((7, 4, 0), True), ((7, 4, 0, "dev0"), True), ((8, 0), True)],
)
def test_which_kernels_hear_a_click(
    desk: Desk, displays: Displays, monkeypatch: pytest.MonkeyPatch, version: tuple[object, ...], hears: bool
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace(version_info=version))

    async def main() -> None:
        view = kernel(allow_stdin=True).open_turn(desk.handle())
        assert isinstance(view, LiveView) is hears
        await view.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", Answer("allow_once")),
        (" YES ", Answer("allow_once")),
        ("s", Answer("allow_session")),
        ("", Answer("deny")),
        ("n", Answer("deny")),
        ("No", Answer("deny")),
        ("yes please", Answer("deny", "yes please")),
        ("用别的名字", Answer("deny", "用别的名字")),
    ],
)
def test_what_a_typed_answer_means(typed: str, answer: Answer) -> None:
    assert parse_answer(typed, CHOICES) == answer


def test_a_typed_answer_cannot_allow_what_was_not_offered() -> None:
    assert parse_answer("s", ("allow_once", "deny")) == Answer("deny")


def test_the_end_of_input_is_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", closed)
    assert ask_by_input(Told().asked()) == Answer("deny")


def test_questions_are_refused_where_nobody_can_answer() -> None:
    front = kernel(allow_stdin=False)
    for question in (front.ask("x"), front.confirm("x"), front.choose("x", ["a"]), front.read_secret("x")):
        with pytest.raises(UsageError, match="Nobody can answer"):
            asyncio.run(question)  # type: ignore[arg-type]


def test_choosing_takes_a_number_or_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["7", "b", "1", "x", "x", "x"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    front = kernel(allow_stdin=True)
    assert asyncio.run(front.choose("which?", ["a", "b"])) == "b"
    assert asyncio.run(front.choose("which?", ["a", "b"])) == "a"
    with pytest.raises(UsageError):
        asyncio.run(front.choose("which?", ["a", "b"]))


def test_what_is_said_has_no_control_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    front = kernel(allow_stdin=True)
    front.say("a\x1b[31mb\x1b]0;title\x07c")
    front.say("bad", level="error")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("abc\n", "bad\n")


def test_markdown_that_is_said_is_harmless(displays: Displays) -> None:
    kernel(allow_stdin=True).say_markdown("| a |\n|---|\n| <img src=x onerror=alert(1)> |")
    harmless(displays.last["text/html"], ours=STYLE)


def test_a_turn_can_be_shown_again_from_its_events(displays: Displays) -> None:
    told = a_whole_turn("Told again.")
    kernel(allow_stdin=False).show_record(told.events)
    assert "Told again." in displays.last["text/html"]


def test_the_panel_needs_a_page(displays: Displays) -> None:
    assert kernel(allow_stdin=False).show_panel() is False


@pytest.mark.parametrize(
    ("names", "environ", "headless", "key"),
    [
        ({}, {}, False, None),
        ({}, {"JPY_SESSION_NAME": "{folder}/a.ipynb"}, False, "{folder}/a.ipynb"),
        ({}, {"JPY_SESSION_NAME": "{folder}/./a.ipynb"}, False, "{folder}/a.ipynb"),
        ({"__vsc_ipynb_file__": "{folder}/b.ipynb"}, {}, False, "{folder}/b.ipynb"),
        ({"__vsc_ipynb_file__": "{folder}/b.ipynb"}, {"JPY_SESSION_NAME": "/x/a.ipynb"}, False, "{folder}/b.ipynb"),
        ({"__vsc_ipynb_file__": 7}, {}, False, None),
        ({}, {"JPY_SESSION_NAME": "{folder}/a.ipynb"}, True, None),
    ],
)
def test_a_notebook_is_known_by_its_path(
    tmp_path: object, names: dict[str, object], environ: dict[str, str], headless: bool, key: str | None
) -> None:
    from pathlib import Path

    folder, elsewhere = Path(str(tmp_path)), Path("/")

    def at(value: object) -> object:
        return value.format(folder=folder) if isinstance(value, str) else value

    place = locate(
        {name: at(value) for name, value in names.items()},
        {name: str(at(value)) for name, value in environ.items()},
        headless=headless,
        cwd=elsewhere,
    )
    assert place.key == at(key)
    assert place.workspace == (folder if key else elsewhere)
