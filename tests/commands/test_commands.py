"""Every command of the tree, as typed, with its refusals."""

from __future__ import annotations

import html
import json
import stat

import pytest

from mxclaw_nb.commands import (
    AgentHelp,
    Call,
    Place,
    TurnRequest,
    complete,
    complete_agent,
    parse_agent_line,
    run_line,
    run_turn,
)
from mxclaw_nb.protocol import (
    Answer,
    MxclawError,
    NotFound,
    PermissionRequested,
    ProviderNotReady,
    TurnCompleted,
    TurnStarted,
    UsageError,
)

from .conftest import Screen, Typed


def test_alone_it_says_where_you_are_and_what_you_can_type(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        assert await run_line(call, "") == 0
        for word in ("session", "model", "mode", "workspace", "doctor", "approve", "deepseek/deepseek", "%%agent"):
            assert word in screen.text

    typed(scenario)


def test_a_slip_of_the_fingers_is_answered_with_what_was_meant(typed: Typed) -> None:
    async def scenario(call: Call, _screen: Screen) -> None:
        for line, hint in [
            ("sesion list", "session"),
            ("session lst", "list"),
            ("xyzzy", "There are"),
            ("approve", "ID"),
        ]:
            with pytest.raises(UsageError, match=hint) as caught:
                await run_line(call, line)
            assert caught.value.exit_status == 2
        with pytest.raises(UsageError, match="read"):
            await run_line(call, "session rename 'open")

    typed(scenario)


@pytest.mark.parametrize("line", ["--help", "session --help", "approve --help", "run --help", "set --help"])
def test_help_reaches_the_person_through_the_screen(typed: Typed, line: str) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        assert await run_line(call, line) == 0
        assert "Usage: %mxclaw" in screen.text

    typed(scenario)


def test_sessions_are_made_used_renamed_forked_found_and_deleted(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        await run_line(call, "session list")
        assert "no sessions yet" in screen.text
        await run_line(call, "session new First one")
        first = call.place.session_id
        assert first is not None
        await run_line(call, "session new 第二个")
        second = call.place.session_id
        assert second is not None and second != first
        await run_line(call, f"session use {first[:6]}" if first[:6] != second[:6] else f"session use {first}")
        assert call.place.session_id == first
        await run_line(call, "session rename A better | title")
        await run_line(call, "session fork")
        forked = call.place.session_id
        assert forked not in {first, second}
        screen.said.clear()
        await run_line(call, "session list")
        assert "A better &#124; title" in screen.text and "第二个" in screen.text
        await run_line(call, "session list --json")
        listed = json.loads(screen.written.pop())
        assert {item["id"] for item in listed} == {first, second, forked}
        with pytest.raises(UsageError, match="--yes"):
            await run_line(call, f"session delete {second}")
        screen.can_answer, screen.answers = True, [False, True]
        assert await run_line(call, f"session delete {second}") == 1
        assert await run_line(call, f"session delete {second}") == 0
        with pytest.raises(NotFound):
            await run_line(call, f"session show {second}")
        await run_line(call, f"session delete {forked} --yes")
        assert call.place.session_id is None

    typed(scenario)


def test_without_a_ready_provider_a_turn_says_so_in_one_line_with_the_two_ways_on(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        with pytest.raises(ProviderNotReady) as caught:
            await run_turn(call, TurnRequest("hello"))
        text = str(caught.value)
        assert "\n" not in text and "config.json" in text and "%mxclaw rehearse" in text
        assert not screen.handles

    typed(scenario)


_DAMAGED = '{"version": 1,\n "activeProvider" "mine"}'
_WITHOUT_MODELS = (
    '{"activeProvider": "mine", "providers": {"mine": {"baseURL": "http://127.0.0.1:9/v1", "model": "m"}}}'
)
_NEEDS_KEY = _WITHOUT_MODELS.replace('"m"}', '"m", "models": ["m"]}')


@pytest.mark.parametrize(
    ("config", "key", "model", "reason"),
    [
        (None, None, None, "No provider is chosen"),
        (None, "sk-1", None, "No provider is chosen"),
        (None, "sk-1", "gpt-4o", "No provider is chosen"),
        (None, None, "deepseek/deepseek-flash", "needs an API key"),
        (_DAMAGED, "sk-1", None, "line 2, column 19"),
        (_DAMAGED, "sk-1", "deepseek/deepseek-flash", "line 2, column 19"),
        (_DAMAGED, "sk-1", "mine/m", "line 2, column 19"),
        (_WITHOUT_MODELS, "sk-1", None, 'write `"models": ["m"]`'),
        (_NEEDS_KEY, None, None, "needs an API key"),
    ],
)
def test_a_provider_that_is_not_ready_or_not_chosen_is_refused_in_one_line_that_says_nothing_twice(
    typed: Typed,
    monkeypatch: pytest.MonkeyPatch,
    config: str | None,
    key: str | None,
    model: str | None,
    reason: str,
) -> None:
    monkeypatch.setenv("MX_CLAW_API_KEY", key or "")

    async def scenario(call: Call, screen: Screen) -> None:
        path = call.app.home / "config.json"
        if config is not None:
            path.write_text(config)
        with pytest.raises(ProviderNotReady) as caught:
            await run_turn(call, TurnRequest("hello", model=model))
        text = str(caught.value)
        assert caught.value.exit_status == 2 and "\n" not in text and reason in text
        assert text.count("%mxclaw rehearse") == 1 and text.count(str(path)) == 1
        assert text.count("MX_CLAW_API_KEY") <= 1 and "sk-1" not in text
        assert not await call.app.store.sessions() and not screen.handles
        if model is None:
            for line in ("", "doctor"):
                screen.said.clear()
                await run_line(call, line)
                assert reason in html.unescape(screen.text).replace("\\", "")
                assert " ready |" not in screen.text
                assert ("deepseek/deepseek" in screen.text) is (config is None)

    typed(scenario)


def test_the_rehearsal_works_beside_a_damaged_configuration(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        (call.app.home / "config.json").write_text(_DAMAGED)
        await run_line(call, "rehearse")
        outcome = await run_turn(call, TurnRequest("look around this folder", mode="plan"))
        assert outcome.failure is None

    typed(scenario)


def test_a_rehearsal_that_does_not_run_starts_with_the_next_turn_and_says_so(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        await run_line(call, "rehearse")
        call.app.directory.close()  # as after a restart of the kernel
        for line, words in (("", "(starts with the next turn)"), ("doctor", " starts with the next turn")):
            screen.said.clear()
            await run_line(call, line)
            assert words in html.unescape(screen.text).replace("\\", "")
            assert "not ready" not in screen.text and "rehearse`" not in screen.text
        outcome = await run_turn(call, TurnRequest("look around this folder", mode="plan"))
        assert outcome.failure is None
        assert screen.handles[-1].earlier_messages == 0
        await run_turn(call, TurnRequest("look around this folder", mode="plan"))
        session = await call.current_session()
        assert session is not None and 0 < screen.handles[-1].earlier_messages < session.message_count
        screen.said.clear()
        await run_line(call, "")
        assert "starts with" not in screen.text

    typed(scenario)


def test_a_configuration_written_after_a_refusal_is_used_in_the_same_kernel(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        for request in (TurnRequest("hello"), TurnRequest("hello", model="mine/x")):
            with pytest.raises(UsageError):
                await run_turn(call, request)
        model = call.app.directory.start_rehearsal()
        address = call.app.directory.provider(model.provider)
        assert address is not None
        entry = {"baseURL": address.base_url, "model": "x", "models": ["x"], "requiresApiKey": False}
        path = call.app.home / "config.json"
        path.write_text(json.dumps({"activeProvider": "mine", "providers": {"mine": entry}}))
        for request in (TurnRequest("hello", model="mine/x"), TurnRequest("hello")):
            await run_turn(call, request)
            assert [event.model for event in screen.events if isinstance(event, TurnStarted)][-1] == "mine/x"
        assert not [text for _, text in screen.said if "changed" in text]
        path.write_text(json.dumps({"activeProvider": "openai"}))
        for _ in range(2):
            await run_turn(call, TurnRequest("hello"))
        assert [event.model for event in screen.events if isinstance(event, TurnStarted)][-1] == "mine/x"
        assert len([text for _, text in screen.said if "has changed since" in text]) == 1
        screen.said.clear()
        await run_line(call, "doctor")
        assert "has changed since" in screen.text

    typed(scenario)


def test_a_rehearsal_runs_a_whole_turn_with_approvals_and_is_never_the_default(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        (call.place.workspace / "data.csv").write_text("a,b\n1,2\n")
        await run_line(call, "rehearse")
        session = await call.current_session()
        assert session is not None and session.model == "rehearsal/quickstart"
        screen.can_answer = True

        def answer(event: object) -> None:
            screen.events.append(event)  # type: ignore[arg-type]
            if isinstance(event, PermissionRequested):
                screen.handles[-1].answer(event.request_id, Answer("allow_once"))

        screen.on_event = answer  # type: ignore[method-assign]
        outcome = await run_turn(call, TurnRequest("look around this folder"))
        assert outcome.failure is None and "rehearsal" in outcome.text.lower()
        assert isinstance(screen.events[0], TurnStarted) and screen.events[0].model == "rehearsal/quickstart"
        assert isinstance(screen.events[-1], TurnCompleted) and screen.closed == 1
        assert (call.place.workspace / "rehearsal-notes.md").exists()
        assert not (call.app.home / "config.json").exists()
        with pytest.raises(ProviderNotReady, match="No provider is chosen"):
            call.app.resolve_model(None)
        await run_line(call, "show")
        assert screen.records[-1][-1].type == "turn.completed"
        elsewhere = Call(call.app, screen, Place(call.place.workspace))
        await run_line(elsewhere, f"show {outcome.session_id}")
        await run_line(elsewhere, f"show {outcome.turn_id} --session {outcome.session_id}")
        assert len(screen.records) == 3 and {len(record) for record in screen.records} == {len(screen.records[0])}
        await run_line(call, f"session show {outcome.session_id} --json")
        shown = json.loads(screen.written.pop())
        assert set(shown) == {"session", "messages", "events"}
        assert shown["events"][0]["type"] == "turn.started" and shown["events"][0]["sessionId"] == outcome.session_id
        screen.said.clear()
        await run_line(call, "session search rehearsal")
        assert outcome.session_id in screen.text
        await run_line(call, "session show")
        again = Call(call.app, screen, Place(call.place.workspace, notebook="nb:/x.ipynb", prefix="%mxclaw"))
        found = await again.current_session()
        assert found is not None and found.id == outcome.session_id

    typed(scenario)


def test_settings_are_listed_changed_kept_and_refused(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        await run_line(call, "settings")
        assert "`max_iterations`" in screen.text
        await run_line(call, "set max_iterations 12")
        await run_line(call, "set default_mode plan")
        await run_line(call, "set deny 'run_command(rm *)' write_file")
        now = call.app.settings.load()
        assert (now.max_iterations, now.default_mode, now.deny) == (12, "plan", ("run_command(rm *)", "write_file"))
        path = call.app.home / "settings.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        stored = json.loads(path.read_text())
        path.write_text(json.dumps({**stored, "future": [1]}))
        await run_line(call, "set max_iterations 9")
        assert json.loads(path.read_text())["future"] == [1]
        await run_line(call, "set deny none")
        assert call.app.settings.load().deny == ()
        for line in (
            "set deny run_comand",
            "set deny 'run_command(rm *'",
            "set deny 'run_command()'",
            "set nope 1",
            "set max_iterations 0",
            "set max_iterations many",
            "set default_mode yolo",
        ):
            with pytest.raises(UsageError):
                await run_line(call, line)
        assert call.app.settings.load().max_iterations == 9

    typed(scenario)


def test_a_damaged_settings_file_is_said_and_left_alone(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        path = call.app.home / "settings.json"
        path.write_text('{"max_iterations": "lots", "command_timeout_s": 7')
        assert call.app.settings.load().max_iterations == 8
        await run_line(call, "settings")
        await run_line(call, "settings")
        assert [level for level, _ in screen.said].count("warning") == 1
        assert path.read_text().startswith('{"max')

    typed(scenario)


def test_nothing_to_approve_stop_or_show_is_said(typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        await run_line(call, "approvals")
        assert "No approval is waiting" in screen.text
        for line in ("approve a-1", "deny a-1", "stop", "show", "session use s-1"):
            with pytest.raises(MxclawError) as caught:
                await run_line(call, line)
            assert caught.value.code == "not_found" and caught.value.exit_status == 1
        with pytest.raises(UsageError, match="panel"):
            await run_line(call, "panel")

    typed(scenario)


def test_the_doctor_shows_the_endpoint_and_hides_credentials(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy:1")

    async def scenario(call: Call, screen: Screen) -> None:
        await run_line(call, "doctor")
        assert "https://api.deepseek.com" in screen.text and "proxy:1" in screen.text
        assert "hunter2" not in screen.text

    typed(scenario)


@pytest.mark.parametrize("name", ["approve", "deny"])
def test_a_command_of_the_agent_cannot_answer_for_the_person(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("MX_CLAW_AGENT_COMMAND", "1")

    async def scenario(call: Call, _screen: Screen) -> None:
        for line in (f"{name} a-1", "stop", "set default_mode allow-all"):
            with pytest.raises(MxclawError) as caught:
                await run_line(call, line)
            assert caught.value.code == "refused"

    typed(scenario)


def test_the_options_of_an_agent_cell(typed: Typed) -> None:
    options = parse_agent_line(
        "--session s-1 --model ollama/qwen2.5-coder:7b --mode plan --max-iterations 3 --to answer"
    )
    assert (options.session, options.model, options.mode) == ("s-1", "ollama/qwen2.5-coder:7b", "plan")
    assert (options.max_iterations, options.to) == (3, "answer")
    assert parse_agent_line("").session is None
    with pytest.raises(AgentHelp, match="--to NAME"):
        parse_agent_line("--help")


@pytest.mark.parametrize(
    "line",
    [
        "--nope",
        "--session",
        "--mode yolo",
        "--max-iterations 0",
        "--to 1x",
        "--to a.b",
        "--to class x",
        "--new --session s",
        "hello there",
        "--to __builtins__",
        "--to ''",
        "'open",
    ],
)
def test_wrong_options_of_an_agent_cell_are_refused_with_a_sentence(line: str) -> None:
    with pytest.raises(UsageError):
        parse_agent_line(line)


def test_tab_offers_what_could_come_next(typed: Typed) -> None:
    async def scenario(call: Call, _screen: Screen) -> None:
        session = await call.new_session()
        assert "session" in complete(call, "se") and "settings" in complete(call, "se")
        assert set(complete(call, "session ")) >= {"list", "new", "use", "show", "search", "rename", "fork", "delete"}
        assert complete(call, "session use ") == [session.id]
        assert complete(call, f"session use {session.id[:4]}") == [session.id]
        assert "max_iterations" in complete(call, "set max")
        assert "deepseek/deepseek-flash" in complete_agent(call, "--model deep")
        assert complete_agent(call, "--session ") == [session.id]
        assert complete_agent(call, "--mode a") == ["ask", "accept-edits", "allow-all"]
        assert "--max-iterations" in complete_agent(call, "--m")
        assert complete(call, "nonsense here ") == complete(call, "")

    typed(scenario)
