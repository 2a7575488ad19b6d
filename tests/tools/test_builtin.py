"""What holds for all built-in tools."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from mxclaw_nb import tools
from mxclaw_nb.protocol import tool_spec

Desk = Any


def test_the_order_is_fixed_and_the_face_is_whole() -> None:
    names = [tool.name for tool in tools.builtin_tools()]
    assert names == ["read_file", "list_dir", "glob", "grep", "write_file", "edit_file", "run_command"]
    assert all(getattr(tools, name) is not None for name in tools.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        tools.nonsense  # noqa: B018


def test_what_the_model_is_told_is_complete_and_always_the_same() -> None:
    specs = [json.dumps([tool_spec(tool).description, tool_spec(tool).parameters]) for tool in tools.builtin_tools()]
    assert specs == [
        json.dumps([tool_spec(tool).description, tool_spec(tool).parameters]) for tool in tools.builtin_tools()
    ]
    for tool in tools.builtin_tools():
        schema = tool_spec(tool).parameters
        assert schema["additionalProperties"] is False
        assert all("description" in each for each in schema["properties"].values())


def test_risk_and_concurrency() -> None:
    by_risk = {tool.name: (tool.risk, tool.concurrency_safe) for tool in tools.builtin_tools()}
    assert {name for name, (risk, _) in by_risk.items() if risk == "read"} == {"read_file", "list_dir", "glob", "grep"}
    assert all(safe == (risk == "read") for risk, safe in by_risk.values())


@pytest.mark.parametrize("path", [5, None, ["a"], {"a": 1}, True], ids=lambda value: f"F23-{value!r}")
@pytest.mark.parametrize("name", ["read_file", "list_dir", "write_file", "edit_file", "grep", "glob"])
def test_f23_an_argument_of_the_wrong_type_is_a_schema_error(desk: Desk, name: str, path: object) -> None:
    required = {"write_file": {"content": ""}, "edit_file": {"old": "a", "new": "b"}, "grep": {"pattern": "x"},
                "glob": {"pattern": "x"}}.get(name, {})  # fmt: skip
    with pytest.raises(ValidationError):
        desk.preview(name, path=path, **required)
    with pytest.raises(ValidationError):
        desk.preview(name, path="a", unknown=1, **required)


@pytest.mark.parametrize("name", ["read_file", "list_dir", "glob", "grep", "write_file", "edit_file"])
def test_outside_and_our_home_are_denied_to_every_file_tool(desk: Desk, name: str) -> None:
    more = {"write_file": {"content": ""}, "edit_file": {"old": "a", "new": "b"}, "grep": {"pattern": "x"},
            "glob": {"pattern": "x"}}.get(name, {})  # fmt: skip
    desk.home.mkdir()
    (desk.home / "config.json").write_text("{}")
    for path in ("../secret.txt", str(desk.home / "config.json"), "/etc", "~"):
        assert path in desk.fails(name, status="denied", path=path, **more)


def test_a_preview_names_the_file_for_the_verdict_but_not_a_stored_output(desk: Desk) -> None:
    path = desk.file("a.txt", "x")
    desk.outputs.mkdir(parents=True)
    (desk.outputs / "long.txt").write_text("stored")
    assert [target.path for target in desk.preview("read_file", path="a.txt").targets] == [path]
    assert desk.preview("read_file", path=str(desk.outputs / "long.txt")).targets == ()
    assert desk.preview("write_file", path=".env", content="A=1").targets[0].protected
    assert not desk.preview("write_file", path="a.txt", content="A=1").targets[0].protected


def test_stored_outputs_can_be_read_and_searched_but_not_written(desk: Desk) -> None:
    desk.outputs.mkdir(parents=True)
    stored = desk.outputs / "long.txt"
    stored.write_text("one\nneedle\n")
    assert "needle" in desk.call("read_file", path=str(stored))
    assert desk.call("grep", pattern="needle", path=str(stored)) == f"{stored}:2:needle"
    assert desk.call("grep", pattern="needle", path=str(desk.outputs)) == f"{stored}:2:needle"
    desk.fails("write_file", status="denied", path=str(stored), content="x")
    desk.fails("read_file", status="denied", path=str(desk.outputs / ".." / "s-2" / "x"))


def test_the_room_starts_light() -> None:
    code = (
        "import sys; import mxclaw_nb.tools.search.matcher; print('pydantic' in sys.modules, 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False\n"
