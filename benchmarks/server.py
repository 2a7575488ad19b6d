"""A mock OpenAI-compatible server: deterministic, and cheap enough not to be what is measured.

Run as a process of its own (``python -m benchmarks.server``); it prints its port and ends when its standard input
closes. What it plays stands in the path, so that it holds no state between requests:

``/stream/COUNT/RATE/v1/chat/completions``
    COUNT text chunks, RATE a second (0: all at once, frames laid end to end).
``/rounds/COUNT/v1/chat/completions``
    Some text and one ``read_file`` call until the request holds COUNT results after its last user message, then a
    short answer. Each round's frames are sent at once.

Blocking sockets and a thread a connection: a paced frame leaves within 0.1 ms of its time, which an event loop's
timers do not give. Replies are encoded once and kept.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from functools import lru_cache

WORDS = (
    "Rows",
    " of",
    " column",
    " 'price'",
    " hold",
    " 3",
    " missing",
    " values",
    ",",
    " 价格",
    " is",
    " skewed",
    ".",
)
TEXT_CHUNKS_A_ROUND = 24
"""In each reply of ``rounds``."""
ARGUMENT_CHUNKS = ('{"pa', 'th": "', "notes/", "file_", "{index}", ".txt", '"}')
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"X-Request-Id: req_0123456789\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_LAST = b"0\r\n\r\n"
_PATH = re.compile(rb"POST /(?:stream/(\d+)/(\d+)|rounds/(\d+))/v1/chat/completions")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def frame(delta: dict[str, object], finish: str | None = None) -> bytes:
    """One chat.completion.chunk as a hosted service sends it: an SSE event in an HTTP chunk of its own."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event({"choices": [choice], "usage": None})


def _event(fields: dict[str, object]) -> bytes:
    body = {
        "id": "chatcmpl-C0Ffee1234567890abcdefghijk",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "mock",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
        **fields,
    }
    return _chunk(b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _usage(completion: int) -> bytes:
    total = {"prompt_tokens": 1000, "completion_tokens": completion, "total_tokens": 1000 + completion}
    return _event({"choices": [], "usage": total})


_DONE = _chunk(b"data: [DONE]\n\n") + _LAST


@lru_cache(maxsize=16)
def text_frames(count: int) -> tuple[bytes, ...]:
    """A reply of ``count`` text chunks: first the role, last the finish reason, the usage and the end together."""
    words = [frame({"content": WORDS[index % len(WORDS)]}) for index in range(count)]
    return (frame({"role": "assistant", "content": ""}), *words, frame({}, "stop") + _usage(count) + _DONE)


@lru_cache(maxsize=64)
def call_frames(index: int) -> tuple[bytes, ...]:
    """A reply of some text and one call of ``read_file``, its arguments in fragments."""
    text = [frame({"content": WORDS[at % len(WORDS)]}) for at in range(TEXT_CHUNKS_A_ROUND)]
    opening = {"index": 0, "id": f"call_{index:04d}", "type": "function"}
    calls = [frame({"tool_calls": [{**opening, "function": {"name": "read_file", "arguments": ""}}]})]
    for part in ARGUMENT_CHUNKS:
        arguments = part.replace("{index}", str(index))
        calls.append(frame({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}))
    end = frame({}, "tool_calls") + _usage(TEXT_CHUNKS_A_ROUND + len(ARGUMENT_CHUNKS)) + _DONE
    return (frame({"role": "assistant", "content": ""}), *text, *calls, end)


def results_of_last_turn(body: bytes) -> int:
    """How many tool results the request holds after its last user message."""
    count = 0
    for message in json.loads(body)["messages"]:
        if message["role"] == "user":
            count = 0
        elif message["role"] == "tool":
            count += 1
    return count


def serve_connection(connection: socket.socket) -> None:
    """Answer requests on one connection until the client closes it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pending = bytearray()
    with connection:
        while True:
            head, body = _read_request(connection, pending)
            if head is None:
                return
            match = _PATH.match(head)
            if match is None:
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            count, rate, rounds = (int(group) if group is not None else None for group in match.groups())
            if rounds is not None:
                done = results_of_last_turn(body)
                frames = call_frames(done) if done < rounds else text_frames(TEXT_CHUNKS_A_ROUND)
                connection.sendall(_HEAD + b"".join(frames))
            elif rate:
                _pace(connection, text_frames(count or 0), rate)
            else:
                connection.sendall(_HEAD + b"".join(text_frames(count or 0)))


def _pace(connection: socket.socket, frames: tuple[bytes, ...], rate: int) -> None:
    connection.sendall(_HEAD)
    start = time.perf_counter()
    for index, data in enumerate(frames):
        wait = start + index / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        connection.sendall(data)


def _read_request(connection: socket.socket, pending: bytearray) -> tuple[bytes | None, bytes]:
    while (end := pending.find(b"\r\n\r\n")) < 0:
        data = connection.recv(1 << 18)
        if not data:
            return None, b""
        pending += data
    head = bytes(pending[:end])
    found = _LENGTH.search(head)
    size = end + 4 + (int(found.group(1)) if found else 0)
    while len(pending) < size:
        data = connection.recv(1 << 20)
        if not data:
            return None, b""
        pending += data
    body = bytes(pending[end + 4 : size])
    del pending[:size]
    return head, body


def _handle(connection: socket.socket) -> None:
    try:
        serve_connection(connection)
    except (ConnectionError, OSError):
        return  # the client left in the middle of a reply


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_handle, args=(connection,), daemon=True).start()


def main() -> None:
    """Serve until standard input closes."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
