"""The ``openai`` client, bare: no agent, no tools, nothing stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from meter import PROMPT, SYSTEM, Meter, Task, read_task, report
from openai import AsyncOpenAI


async def stream(client: AsyncOpenAI, messages: list) -> tuple[int, int]:
    """One streamed reply: how many text chunks and characters it had."""
    chunks, parts = 0, []
    reply = await client.chat.completions.create(
        model="mock", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in reply:
        if chunk.choices and chunk.choices[0].delta.content:
            chunks += 1
            parts.append(chunk.choices[0].delta.content)
    return chunks, len("".join(parts))


async def measure_stream(task: Task) -> None:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
    async with (
        AsyncOpenAI(base_url=task.warm_up_url, api_key="none", max_retries=0) as warm,
        AsyncOpenAI(base_url=task.base_url, api_key="none", max_retries=0) as client,
    ):
        await stream(warm, messages)
        with Meter() as meter:
            chunks, characters = await stream(client, messages)
    report(meter, chunks=chunks, characters=characters)


def read_messages(task: Task) -> list:
    return json.loads(Path(task.folder, "messages.json").read_text(encoding="utf-8"))


async def measure_request(task: Task) -> None:
    """Long requests, each longer than the one before by one call and its result."""
    messages = read_messages(task)
    meter = Meter()
    async with AsyncOpenAI(base_url=task.base_url, api_key="none", max_retries=0) as client:
        await stream(client, messages)
        for _ in range(task.repeats):
            messages += messages[-2:]
            with meter:
                await stream(client, messages)
    report(meter, messages=len(messages))


async def main() -> None:
    task = read_task()
    await {"stream": measure_stream, "request": measure_request}[task.kind](task)


asyncio.run(main())
