"""``mxclaw session ...`` from outside: what programs read, and what people do to sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, call, say
from tests.end_to_end.program import Mxclaw, assert_events_sound, assert_wire_valid, mxclaw_with


def script(request: ChatRequest) -> Reply:
    last = request.messages[-1]
    if last.text == "look":
        return call("list_dir")
    return say("天气 in Ghent is rain." if last.role == "tool" else f"You said {last.text}.")


@pytest.fixture
def mxclaw(tmp_path: Path) -> Iterator[Mxclaw]:
    with mxclaw_with(script, tmp_path) as made:
        yield made


def test_show_gives_one_object_with_all_of_a_session(mxclaw: Mxclaw) -> None:
    done = mxclaw.run("run", "--json", "look")
    session = done.last["sessionId"]
    shown = mxclaw.run("session", "show", session, "--json")
    assert shown.status == 0 and shown.errors == ""
    whole = json.loads(shown.out)
    assert list(whole) == ["session", "messages", "events"]
    assert whole["session"]["id"] == session and whole["session"]["messageCount"] == len(whole["messages"]) == 5
    assert [message["role"] for message in whole["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert whole["messages"][2]["toolCalls"][0]["name"] == "list_dir"
    assert whole["messages"][3]["toolCallId"] == whole["messages"][2]["toolCalls"][0]["id"]
    assert_events_sound(whole["events"])
    kept = [event for event in done.events if event["type"] != "message.delta"]
    assert [event for event in whole["events"] if event["type"] != "message.delta"] == kept
    [listed] = json.loads(mxclaw.run("session", "list", "--json").out)
    assert listed == whole["session"]


def test_a_session_is_forked_renamed_searched_and_deleted(mxclaw: Mxclaw) -> None:
    first = mxclaw.run("run", "--json", "look").last["sessionId"]
    forked = mxclaw.run("session", "fork", first, "--title", "另一个")
    assert forked.status == 0
    second = forked.out.decode().split()[1]
    assert second != first
    done = mxclaw.run("run", "--json", "--session", second, "more")
    assert done.status == 0
    assert [message.role for message in mxclaw.requests[-1].messages] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert_wire_valid(mxclaw.requests[-1])
    assert len(json.loads(mxclaw.run("session", "show", first, "--json").out)["messages"]) == 5
    assert mxclaw.run("session", "rename", first, "rain", "雨").status == 0
    titles = {row["id"]: row["title"] for row in json.loads(mxclaw.run("session", "list", "--json").out)}
    assert titles == {first: "rain 雨", second: "另一个"}
    for words in (("天气",), ("ghent", "RAIN"), ("雨",)):
        found = mxclaw.run("session", "search", *words)
        assert found.status == 0 and (first in found.out.decode() or words == ("雨",))
    refused = mxclaw.run("session", "delete", first)
    assert refused.status == 2 and "--yes" in refused.errors
    assert mxclaw.run("session", "delete", first, "--yes").status == 0
    gone = mxclaw.run("session", "show", first, "--json")
    assert (gone.status, gone.out) == (1, b"") and gone.errors.startswith("not_found: ")
    assert len(json.loads(mxclaw.run("session", "show", second, "--json").out)["messages"]) == 7


def test_a_prefix_serves_where_it_is_clear_and_is_refused_where_it_is_not(mxclaw: Mxclaw) -> None:
    ids = [mxclaw.run("run", "--json", f"p{number}").last["sessionId"] for number in range(2)]
    ambiguous = mxclaw.run("session", "show", "s-", "--json")
    assert (ambiguous.status, ambiguous.out) == (2, b"")
    assert ambiguous.errors.startswith("usage: ") and all(session in ambiguous.errors for session in ids)
    unique = next(ids[0][:length] for length in range(3, 13) if ids[0][:length] != ids[1][:length])
    assert json.loads(mxclaw.run("session", "show", unique, "--json").out)["session"]["id"] == ids[0]
    assert mxclaw.run("run", "--session", unique, "x").status == 0


def test_refusals_and_help_look_right_from_outside(mxclaw: Mxclaw) -> None:
    """Every wrong word is tried in tests/commands."""
    for words, status in {("session", "show"): 1, ("session", "nosuch"): 2, ("approve",): 2}.items():
        done = mxclaw.run(*words)
        assert done.status == status, (words, done)
        assert done.errors.count("\n") == 1 and ": " in done.errors, done.errors
    for words in ((), ("run", "--help"), ("--version",)):
        done = mxclaw.run(*words)
        assert done.status == 0 and done.out and not done.err


def test_a_setting_is_kept_and_used(mxclaw: Mxclaw) -> None:
    assert mxclaw.run("set", "max_iterations", "1").status == 0
    done = mxclaw.run("run", "--json", "look")
    assert done.status == 3 and done.last["code"] == "max_iterations"
    assert mxclaw.run("run", "--json", "--max-iterations", "2", "look").status == 0
