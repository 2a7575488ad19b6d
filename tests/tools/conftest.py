"""A workspace with the built-in tools on it, called as core calls them: JSON in, preview, run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mxclaw_nb.protocol import CallPreview, Settings, Tool, ToolContext, ToolFailure, ToolResult
from mxclaw_nb.tools import builtin_tools


@dataclass
class Desk:
    """A workspace, our home beside it, and the tools."""

    workspace: Path
    home: Path
    settings: Settings = field(default_factory=Settings)
    tools: dict[str, Tool] = field(default_factory=lambda: {tool.name: tool for tool in builtin_tools()})

    @property
    def outputs(self) -> Path:
        return self.home / "outputs" / "s-1"

    def context(self) -> ToolContext:
        return ToolContext("s-1", "t-1", "c-1", self.workspace, self.outputs, self.home, self.settings)

    def file(self, name: str, content: bytes | str = "") -> Path:
        """Make a file in the workspace."""
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def preview(self, name: str, **arguments: object) -> CallPreview:
        tool = self.tools[name]
        parsed = tool.arguments.model_validate_json(json.dumps(arguments))
        return asyncio.run(tool.preview(parsed, self.context()))

    def run(self, name: str, preview: CallPreview, **arguments: object) -> ToolResult:
        tool = self.tools[name]
        parsed = tool.arguments.model_validate_json(json.dumps(arguments))
        return asyncio.run(tool.run(parsed, self.context(), preview))

    def call(self, name: str, **arguments: object) -> str:
        """Preview and run; what the model reads. It can always be sent: valid UTF-8, no lone surrogate, no NUL."""
        result = self.run(name, self.preview(name, **arguments), **arguments)
        assert result.status == "ok"
        result.content.encode("utf-8")
        assert "\0" not in result.content
        return result.content

    def fails(self, name: str, *, status: str = "error", **arguments: object) -> str:
        """The sentence of a call that cannot be done."""
        with pytest.raises(ToolFailure) as caught:
            self.run(name, self.preview(name, **arguments), **arguments)
        assert caught.value.status == status, caught.value
        assert caught.value.__cause__ is None
        return caught.value.message


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An empty workspace; our home lies beside it."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    return Desk(tmp_path / "workspace", tmp_path / "mx-claw")
