"""pydantic-ai with the HTTP client that it brings, streaming events."""

from __future__ import annotations

import asyncio

from meter import PROMPT, SYSTEM, Meter, Task, numbered, read_task, report
from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def make_agent(url: str, folder: str) -> Agent:
    agent = Agent(OpenAIChatModel("mock", provider=OpenAIProvider(base_url=url, api_key="none")), instructions=SYSTEM)

    if folder:

        @agent.tool_plain
        def read_file(path: str) -> str:
            """Read a text file of the workspace, with numbered lines."""
            return numbered(folder, path)

    return agent


async def turn(agent: Agent) -> tuple[int, int]:
    """One run: how many text chunks and characters were streamed."""
    chunks, parts = 0, []
    async with agent.run_stream_events(PROMPT) as events:
        async for event in events:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
            elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                text = event.part.content
            else:
                continue
            chunks += 1
            parts.append(text)
    return chunks, len("".join(parts))


async def main() -> None:
    task: Task = read_task()
    await turn(make_agent(task.warm_up_url, task.folder))
    agent = make_agent(task.base_url, task.folder)
    if task.kind == "rounds":
        await turn(agent)
    chunks = characters = 0
    with Meter() as meter:
        for _ in range(task.repeats):
            got = await turn(agent)
            chunks, characters = chunks + got[0], characters + got[1]
    report(meter, chunks=chunks, characters=characters)


asyncio.run(main())
