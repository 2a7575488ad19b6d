"""The stage for turns: a real store, real HTTP to a scripted model, the real tools and a few that tests can steer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from mxclaw_nb.core import AgentCore, Services, TurnOptions, TurnStream
from mxclaw_nb.protocol import (
    Answer,
    CallPreview,
    Event,
    ModelId,
    PermissionRequested,
    Risk,
    Session,
    Settings,
    Tool,
    ToolContext,
    ToolResult,
    UserInput,
)
from mxclaw_nb.providers import Endpoint, ModelProfile, OpenAICompatibleProvider
from mxclaw_nb.providers.rehearsal import RehearsalServer, Script
from mxclaw_nb.storage import SqliteStore
from mxclaw_nb.tools import builtin_tools

MODEL = ModelId("script", "quickstart")


class AnyArguments(BaseModel):
    """Arguments of a steered tool."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = ""


@dataclass
class SteeredTool:
    """A tool whose every run a test decides."""

    name: str
    act: Callable[[str, ToolContext], Awaitable[ToolResult]]
    risk: Risk = "read"
    concurrency_safe: bool = True
    description: str = "for tests"
    arguments: type[BaseModel] = AnyArguments

    async def preview(self, arguments: Any, context: ToolContext) -> CallPreview:
        return CallPreview(f"{self.name} {arguments.name}")

    async def run(self, arguments: Any, context: ToolContext, preview: CallPreview) -> ToolResult:
        return await self.act(arguments.name, context)


@dataclass
class Stage:
    """One process's worth of agent, in a test."""

    home: Path
    workspace: Path
    server: RehearsalServer
    store: SqliteStore
    provider: OpenAICompatibleProvider
    core: AgentCore
    settings: list[Settings]
    opened: list[SqliteStore] = field(default_factory=list)

    def configure(self, **changes: object) -> None:
        self.settings[0] = self.settings[0].model_copy(update=changes)

    async def session(self, **options: Any) -> Session:
        return await self.store.create_session(workspace=str(self.workspace), **options)

    def submit(self, session: Session, text: str = "go", **options: Any) -> TurnStream:
        return self.core.submit_turn(session.id, UserInput(text), TurnOptions(**options))

    async def turn(
        self, session: Session, text: str = "go", *, answer: Answer | None = None, **options: Any
    ) -> list[Event]:
        """Run a turn to its end and give its events; every approval gets ``answer``."""
        events: list[Event] = []
        async with asyncio.timeout(30), self.submit(session, text, **options) as stream:
            async for event in stream:
                events.append(event)
                if answer is not None and isinstance(event, PermissionRequested):
                    await self.core.answer(event.request_id, answer, "user")
        return events

    def another_store(self) -> SqliteStore:
        """The same database as another process would open it."""
        store = SqliteStore.open(self.home)
        self.opened.append(store)
        return store


@asynccontextmanager
async def stage(
    script: Script, home: Path, workspace: Path, *tools: Tool, settings: Settings | None = None
) -> AsyncIterator[Stage]:
    """Set everything up around ``script`` and take it down again."""
    box = [settings or Settings()]
    async with RehearsalServer(script) as server:
        endpoint = Endpoint(name="script", base_url=server.base_url, requires_key=True, profile=ModelProfile())

        async def key_for(_name: str) -> SecretStr | None:
            return SecretStr(server.token)

        store = SqliteStore.open(home)
        provider = OpenAICompatibleProvider(
            lambda name: replace(endpoint, name=name) if name == "script" else None,
            key_for,
            lambda: box[0],
            key_present=lambda _name: True,
        )
        core = AgentCore(
            Services(
                store=store,
                provider=provider,
                tools={tool.name: tool for tool in (*builtin_tools(), *tools)},
                settings=lambda: box[0],
                resolve_model=lambda _stored: MODEL,
                ready=provider.ready,
                home=home,
            )
        )
        made = Stage(home, workspace, server, store, provider, core, box)
        try:
            yield made
        finally:
            await provider.aclose()
            for other in made.opened:
                await other.close()
            await store.close()


Play = Callable[..., None]


@pytest.fixture
def play(mx_claw_home: Path, tmp_path: Path) -> Play:
    """Run a scenario ``async def scenario(stage)`` on a stage with that script, those tools and settings."""

    def run(
        script: Script, scenario: Callable[[Stage], Awaitable[None]], *tools: Tool, settings: Settings | None = None
    ) -> None:
        workspace = tmp_path / "workspace"
        workspace.mkdir(exist_ok=True)

        async def whole() -> None:
            async with stage(script, mx_claw_home, workspace, *tools, settings=settings) as made:
                await scenario(made)

        asyncio.run(whole())

    return run
