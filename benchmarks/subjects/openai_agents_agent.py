"""openai-agents over chat completions, streamed, tracing off, nothing stored."""

from __future__ import annotations

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from meter import PROMPT, SYSTEM, Meter, numbered, read_task, report
from openai import AsyncOpenAI


async def turn(agent: Agent, limit: int) -> tuple[int, int]:
    chunks, parts = 0, []
    result = Runner.run_streamed(agent, PROMPT, max_turns=limit)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            chunks += 1
            parts.append(event.data.delta)
    return chunks, len("".join(parts))


async def main() -> None:
    task = read_task()
    set_tracing_disabled(True)

    @function_tool
    def read_file(path: str) -> str:
        """Read a text file of the workspace, with numbered lines."""
        return numbered(task.folder, path)

    client = AsyncOpenAI(base_url=task.base_url, api_key="none", max_retries=0)
    model = OpenAIChatCompletionsModel(model="mock", openai_client=client)
    agent = Agent(name="bench", instructions=SYSTEM, model=model, tools=[read_file])
    chunks = characters = 0
    await turn(agent, task.count + 1)
    with Meter() as meter:
        for _ in range(task.repeats):
            got = await turn(agent, task.count + 1)
            chunks, characters = chunks + got[0], characters + got[1]
    report(meter, chunks=chunks, characters=characters)


asyncio.run(main())
