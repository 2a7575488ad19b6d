"""The bounded queue between a turn and its consumer."""

from __future__ import annotations

import asyncio

from mxclaw_nb.core.channel import Channel
from mxclaw_nb.protocol import Event, MessageDelta, Notice, ToolOutput


def delta(number: int, message: str = "m") -> MessageDelta:
    return MessageDelta(
        sequence=number, session_id="s", turn_id="t", timestamp="", message_id=message, delta=f"{number} "
    )


async def drained(channel: Channel) -> list[Event]:
    channel.close()
    events = []
    while (event := await channel.get()) is not None:
        events.append(event)
    return events


def test_a_consumer_that_keeps_up_sees_every_event() -> None:
    async def scenario() -> list[Event]:
        channel = Channel()
        for number in range(100):
            channel.put(delta(number))
        return await drained(channel)

    assert [event.sequence for event in asyncio.run(scenario())] == list(range(100))


def test_a_slow_consumer_gets_merged_deltas_and_no_text_is_lost() -> None:
    async def scenario() -> list[Event]:
        channel = Channel()
        for number in range(5000):
            channel.put(delta(number))
        return await drained(channel)

    events = asyncio.run(scenario())
    assert len(events) <= 256 + 5, "full deltas of 8,192 characters, no more"
    assert "".join(event.delta for event in events if isinstance(event, MessageDelta)) == "".join(
        f"{number} " for number in range(5000)
    )
    numbers = [event.sequence for event in events]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 4999


def test_deltas_of_different_messages_and_other_events_are_never_merged() -> None:
    async def scenario() -> list[Event]:
        channel = Channel()
        for number in range(256):
            channel.put(delta(number))
        channel.put(delta(256, "other"))
        channel.put(Notice(sequence=257, session_id="s", turn_id="t", timestamp="", level="info", text="x"))
        channel.put(ToolOutput(sequence=258, session_id="s", turn_id="t", timestamp="", call_id="a", delta="x"))
        channel.put(ToolOutput(sequence=259, session_id="s", turn_id="t", timestamp="", call_id="b", delta="y"))
        return await drained(channel)

    assert [event.sequence for event in asyncio.run(scenario())][-4:] == [256, 257, 258, 259]


def test_a_cancelled_get_loses_nothing() -> None:
    async def scenario() -> Event | None:
        channel = Channel()
        waiting = asyncio.ensure_future(channel.get())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        channel.put(delta(1))
        return await channel.get()

    event = asyncio.run(scenario())
    assert event is not None and event.sequence == 1
