"""langgraph's prebuilt agent over langchain-openai, streaming messages, no checkpointer."""

from __future__ import annotations

import asyncio
import warnings

from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from meter import PROMPT, SYSTEM, Meter, numbered, read_task, report


async def turn(graph, limit: int) -> tuple[int, int]:
    chunks, parts = 0, []
    start = {"messages": [("user", PROMPT)]}
    async for message, _ in graph.astream(start, {"recursion_limit": limit}, stream_mode="messages"):
        if isinstance(message, AIMessageChunk) and isinstance(message.content, str) and message.content:
            chunks += 1
            parts.append(message.content)
    return chunks, len("".join(parts))


async def main() -> None:
    task = read_task()

    @tool
    def read_file(path: str) -> str:
        """Read a text file of the workspace, with numbered lines."""
        return numbered(task.folder, path)

    model = ChatOpenAI(
        model="mock", base_url=task.base_url, api_key="none", streaming=True, stream_usage=True, max_retries=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the prebuilt agent is named as deprecated in favour of a larger package
        graph = create_react_agent(model, [read_file], prompt=SYSTEM)
    limit = 2 * task.count + 3
    chunks = characters = 0
    await turn(graph, limit)
    with Meter() as meter:
        for _ in range(task.repeats):
            got = await turn(graph, limit)
            chunks, characters = chunks + got[0], characters + got[1]
    report(meter, chunks=chunks, characters=characters)


asyncio.run(main())
