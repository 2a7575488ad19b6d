"""The other process of a test: obeys lines on its standard input, one answer a line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mxclaw_nb.protocol import Answer, Message, MxclawError, TurnSignal
from mxclaw_nb.storage import LeaseTiming, SqliteStore


async def obey(home: Path, ttl: float) -> None:
    store: SqliteStore | None = None
    turn = None
    signals: list[TurnSignal] = []
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        command, *words = line.split()
        answer = "ok"
        try:
            if command == "end":
                break
            if command == "open":
                store = SqliteStore.open(
                    home,
                    timing=LeaseTiming(ttl, ttl / 3, 0.02),
                    on_warning=lambda text: print("warning", text, file=sys.stderr),
                )
            assert store is not None
            if command == "acquire":
                turn = await store.acquire(words[0], words[1], on_signal=signals.append)
            elif command == "commit":
                assert turn is not None
                await turn.commit(messages=[Message("user", " ".join(words))])
            elif command == "request":
                assert turn is not None
                from mxclaw_nb.protocol import Detail, PermissionRequested, now_iso

                request = PermissionRequested(
                    sequence=turn.next_sequence(), session_id=turn.session_id, turn_id=turn.turn_id,
                    timestamp=now_iso(), request_id=words[0], call_id="c", name="x", summary="s",
                    detail=Detail(kind="text", text=""), reason="", choices=("allow_once", "deny"),
                )  # fmt: skip
                await turn.commit(request=request)
            elif command == "release":
                if turn is not None:
                    await turn.release(state="idle")
            elif command == "answer":
                await store.answer_approval(words[0], Answer("allow_once"), words[1])
            elif command == "stop":
                answer = str(await store.request_stop(words[0], "child"))
            elif command == "create":
                answer = (await store.create_session(workspace="/w", title=" ".join(words))).id
            elif command == "count":
                answer = str(len(await store.messages(words[0])))
            elif command == "sessions":
                answer = str(len(await store.sessions()))
            elif command == "signals":
                answer = " ".join(type(signal).__name__ for signal in signals) or "none"
        except MxclawError as error:
            answer = f"{error.code} {error.message}".replace("\n", " ")
        print(answer, flush=True)
    if store is not None:
        await store.close()


if __name__ == "__main__":
    asyncio.run(obey(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 30.0))
