"""Every wait has an end: limits of time, cancelling, and what is left behind (nothing)."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from mxclaw_nb.protocol import Completion, ModelError, Settings, StreamInterrupted, TextDelta
from tests.providers.loopback import (
    STOP,
    Loopback,
    Peer,
    Script,
    answer,
    ask,
    calls,
    consume,
    delta,
    frames,
    hang,
    head,
    play,
    provider_for,
    run,
    stream,
)

QUICK = Settings(connect_timeout_s=0.4, first_byte_timeout_s=0.4, idle_timeout_s=0.4, token_timeout_s=1.2)
HEAD = head(200, [("Connection", "close")])
EMPTY, ROLE = frames(delta(content=""), done=False), frames(delta(role="assistant"), done=False)


def every(seconds: float, data: bytes, first: bytes = b"") -> Script:
    """Say the same again and again until the client leaves."""

    async def script(peer: Peer) -> None:
        await peer.send(HEAD + first)
        gone = asyncio.ensure_future(peer.until_gone())
        while not gone.done():
            peer.writer.write(data)
            await asyncio.wait({gone}, timeout=seconds)
        peer.writer.close()

    return script


@pytest.mark.parametrize(
    ("script", "words", "least", "most"),
    [
        pytest.param(hang(), "first_byte_timeout_s", 0.35, 1.5, id="no-head"),
        pytest.param(hang(HEAD), "first_byte_timeout_s", 0.35, 1.5, id="no-body"),
        pytest.param(hang(HEAD + b": ping\n\n"), "idle_timeout_s", 0.35, 1.5, id="silence"),
        pytest.param(every(0.1, b": ping\n\n"), "token_timeout_s", 1.1, 2.5, id="S39"),
        pytest.param(every(0.1, EMPTY), "token_timeout_s", 1.1, 2.5, id="S39-empty-deltas"),
        pytest.param(every(0.1, ROLE), "token_timeout_s", 1.1, 2.5, id="S39-roles"),
    ],
)  # fmt: skip
def test_a_limit_of_time_is_kept(script: Script, words: str, least: float, most: float) -> None:
    started = time.monotonic()
    outcome, requests = play(script, settings=QUICK)
    assert type(outcome.error) is ModelError
    assert words in outcome.error.message
    assert least < time.monotonic() - started < most
    assert len(requests) == 1


def test_silence_after_text_interrupts() -> None:
    outcome, _ = play(hang(HEAD + frames(delta(content="a"), done=False)), settings=QUICK)
    assert isinstance(outcome.error, StreamInterrupted)
    assert outcome.error.partial.text == "a"


@pytest.mark.parametrize(
    "beat", [b": ping\n\n", frames(calls({"index": 0, "function": {"arguments": " "}}), done=False)]
)
def test_S36_what_keeps_a_stream_alive(beat: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(HEAD + frames(delta(content="a"), done=False))
        for _ in range(4):
            await asyncio.sleep(0.2)
            await peer.send(beat)
        await peer.send(frames(delta(content="b"), STOP))
        peer.writer.close()

    outcome, _ = play(script, settings=QUICK)
    assert outcome.error is None, outcome.error


def test_a_provider_that_said_why_it_stopped_but_does_not_close_is_not_waited_for() -> None:
    outcome, _ = play(hang(HEAD + frames(delta(content="a"), STOP, done=False)), settings=QUICK)
    assert outcome.error is None
    assert isinstance(outcome.items[-1], Completion)


def test_a_provider_that_keeps_the_connection_open_after_done_is_not_waited_for() -> None:
    started = time.monotonic()
    outcome, _ = play(hang(HEAD + frames(delta(content="a"), STOP)))
    assert outcome.error is None
    assert time.monotonic() - started < 2


def test_a_slow_consumer_is_not_the_providers_silence() -> None:
    async def main(url: str) -> list[str]:
        provider = provider_for(url, settings=QUICK)
        texts = []
        async for item in provider.stream(ask()):
            if isinstance(item, TextDelta):
                texts.append(item.text)
                await asyncio.sleep(0.7 if len(texts) < 3 else 0)
        await provider.aclose()
        return texts

    async def script(peer: Peer) -> None:
        await peer.send(HEAD)
        for i in range(200):
            await peer.send(frames(delta(content=str(i % 10) * 20_000), done=False))
        await peer.send(frames(STOP))
        peer.writer.close()

    with Loopback([script]) as server:
        assert len(asyncio.run(main(server.url))) == 200


def test_an_endless_error_body_is_not_read_to_its_end() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(head(400, [("Connection", "close")], "text/plain"))
        while True:
            await peer.send(b"words " * 10_000)

    started = time.monotonic()
    outcome, _ = play(script)
    assert type(outcome.error) is ModelError
    assert time.monotonic() - started < 5


@pytest.fixture
def deaf() -> Iterator[str]:
    """The URL of a server that accepts no connection and refuses none."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill the backlog, so that another connection hangs
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def test_a_peer_that_never_accepts_is_given_up_after_the_connect_timeout(deaf: str) -> None:
    started = time.monotonic()
    outcome = run(deaf, settings=QUICK)
    assert type(outcome.error) is ModelError
    assert "too long" in outcome.error.message
    assert time.monotonic() - started < 6


# Cancelling


class Gone:
    """A server that notes when its client left."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.ready, self.left = threading.Event(), threading.Event()

    async def __call__(self, peer: Peer) -> None:
        await peer.send(self.said)
        self.ready.set()
        await peer.until_gone()
        self.left.set()
        peer.writer.close()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="before-the-head"),
        pytest.param(HEAD, id="before-the-body"),
        pytest.param(HEAD + frames(delta(content="a"), done=False), id="while-streaming"),
        pytest.param(head(500, [("Content-Length", "100")]) + b"x", id="in-an-error-body"),
    ],
)
def test_the_server_sees_a_cancelled_client_leave_at_once(said: bytes) -> None:
    gone = Gone(said)

    async def main(url: str) -> float:
        provider = provider_for(url)
        task = asyncio.ensure_future(consume(provider, ask()))
        assert await asyncio.to_thread(gone.ready.wait, 5)
        await asyncio.sleep(0.05)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(gone.left.wait, 5)
        took = time.monotonic() - started
        await provider.aclose()
        return took

    with Loopback([gone]) as server:
        assert asyncio.run(main(server.url)) < 0.2


@pytest.mark.parametrize("how", ["aclose", "drop"])
def test_the_server_sees_an_abandoned_iterator_leave_at_once(how: str) -> None:
    gone = Gone(HEAD + frames(delta(content="a"), done=False))

    async def main(url: str) -> float:
        provider = provider_for(url)
        iterator = provider.stream(ask())
        async for _item in iterator:
            break
        started = time.monotonic()
        if how == "aclose":
            await iterator.aclose()
        del iterator
        assert await asyncio.to_thread(gone.left.wait, 5)
        took = time.monotonic() - started
        await provider.aclose()
        return took

    with Loopback([gone]) as server:
        assert asyncio.run(main(server.url)) < 0.2


def test_cancelling_while_connecting_leaves_nothing(deaf: str) -> None:
    async def main() -> None:
        provider = provider_for(deaf)
        task = asyncio.ensure_future(consume(provider, ask()))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


# Connections

GOOD = stream(frames(delta(content="a"), STOP))


def test_a_connection_is_used_again() -> None:
    async def main(url: str) -> None:
        provider = provider_for(url)
        for _ in range(5):
            assert (await consume(provider, ask())).error is None
        await provider.aclose()

    with Loopback([GOOD]) as server:
        asyncio.run(main(server.url))
        assert (len(server.requests), server.connections) == (5, 1)


def test_a_connection_is_used_again_when_its_last_chunk_comes_late() -> None:
    from tests.providers.loopback import chunked

    async def script(peer: Peer) -> None:
        await peer.send(head(200, [("Transfer-Encoding", "chunked")]) + chunked(frames(delta(content="a"), STOP)))
        await asyncio.sleep(0.02)
        await peer.send(b"0\r\n\r\n")

    async def main(url: str) -> None:
        provider = provider_for(url)
        for _ in range(3):
            assert (await consume(provider, ask())).error is None
        await provider.aclose()

    with Loopback([script]) as server:
        asyncio.run(main(server.url))
        assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize("polite", [True, False])
def test_a_connection_that_the_server_closed_meanwhile_costs_no_try(polite: bool) -> None:
    async def script(peer: Peer) -> None:
        await GOOD(peer)
        await asyncio.sleep(0.05)
        if polite:
            peer.writer.close()
        else:
            peer.reset()

    async def main(url: str) -> None:
        provider = provider_for(url)
        for pause in (0.2, 0.0, 0.2):
            outcome = await consume(provider, ask())
            assert outcome.error is None
            assert len(outcome.items) == 2
            await asyncio.sleep(pause)
        await provider.aclose()

    with Loopback([script]) as server:
        asyncio.run(main(server.url))


def test_a_server_that_drops_a_reused_connection_on_the_request_costs_no_try() -> None:
    served: set[asyncio.StreamWriter] = set()

    async def script(peer: Peer) -> None:
        if peer.writer in served:
            peer.writer.close()
            return
        served.add(peer.writer)
        await GOOD(peer)

    async def main(url: str) -> None:
        provider = provider_for(url)
        for _ in range(3):
            outcome = await consume(provider, ask())
            assert outcome.error is None
            assert len(outcome.items) == 2
        await provider.aclose()

    with Loopback([script]) as server:
        asyncio.run(main(server.url))


def test_many_at_once() -> None:
    async def main(url: str) -> None:
        provider = provider_for(url)
        outcomes = await asyncio.gather(*(consume(provider, ask(str(n))) for n in range(40)))
        assert all(outcome.error is None for outcome in outcomes)
        await provider.aclose()

    with Loopback([GOOD]) as server:
        asyncio.run(main(server.url))
        assert len(server.requests) == 40


@pytest.mark.parametrize("close", [True, False])
def test_turns_on_several_loops_leave_no_thread_no_task_and_no_warning(close: bool) -> None:
    before = set(threading.enumerate())
    with Loopback([GOOD]) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        url = server.url.replace("127.0.0.1", "localhost")
        provider = provider_for(url)

        async def turn() -> None:
            outcome = await consume(provider, ask())
            assert outcome.error is None, outcome.error
            assert asyncio.all_tasks() == {asyncio.current_task()}
            if close:
                await provider.aclose()

        for _ in range(3):
            asyncio.run(turn())
        thread = threading.Thread(target=lambda: asyncio.run(turn()))
        thread.start()
        thread.join(10)
        gc.collect()
        mine = {thread for thread in threading.enumerate() if thread is not server._thread}
    assert mine <= before


@pytest.mark.parametrize("closed", [True, False])
def test_a_loop_that_nobody_cleans_up_is_no_reason_to_complain(
    closed: bool, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Loopback([GOOD]) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of asyncio: Python shows it to nobody who does not ask
        provider = provider_for(server.url)
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(consume(provider, ask())).error is None
        if closed:
            loop.close()
        del provider, loop
        gc.collect()
    assert not caplog.records
    assert capfd.readouterr().err == ""


def test_closing_ends_the_connections_of_another_running_loop() -> None:
    with Loopback([GOOD]) as server:
        provider = provider_for(server.url)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            future = asyncio.run_coroutine_threadsafe(consume(provider, ask()), loop)
            assert future.result(10).error is None
            asyncio.run(provider.aclose())
            again = asyncio.run_coroutine_threadsafe(consume(provider, ask()), loop)
            assert again.result(10).error is None
            asyncio.run_coroutine_threadsafe(provider.aclose(), loop).result(10)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()
        assert server.connections == 2


def test_a_large_request_that_is_refused_early_is_told_why() -> None:
    async def script(peer: Peer) -> None:
        await answer(413, {"error": {"message": "far too large"}})(peer)

    outcome, _ = play(script, request=ask("x" * 3_000_000))
    assert outcome.error is not None
    assert outcome.error.code == "context_overflow"


def test_informational_heads_are_passed_over() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        await GOOD(peer)

    outcome, _ = play(script)
    assert outcome.error is None


def test_informational_heads_without_end_are_given_up() -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    outcome, _ = play(script, settings=QUICK)
    assert type(outcome.error) is ModelError
    assert "first_byte_timeout_s" in outcome.error.message
    assert time.monotonic() - started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"X-Same: again\r\n" * 100, id="headers"),
        pytest.param(b"x" * 10_000, id="one-header"),
        pytest.param(b"X-Long: \r\n" + b" more\r\n" * 1000, id="folded"),
    ],
)
def test_a_head_without_end_is_given_up(endless: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await peer.send(endless)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    outcome, _ = play(script, settings=QUICK)
    assert type(outcome.error) is ModelError
    assert time.monotonic() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_explained_and_not_followed(status: int) -> None:
    with Loopback([GOOD]) as other:
        outcome, requests = play(answer(status, b"", [("Location", f"{other.url}/chat/completions")]))
        assert type(outcome.error) is ModelError
        assert "redirects" in outcome.error.message
        assert str(other.port) in outcome.error.message
        assert len(requests) == 1
        assert not other.requests


def test_a_redirect_on_the_same_server_is_followed_with_the_same_body() -> None:
    outcome, requests = play(answer(307, b"", [("Location", "/v2/chat/completions?x=1")]), GOOD)
    assert outcome.error is None
    assert requests[1].target == "/v2/chat/completions?x=1"
    assert requests[0].body == requests[1].body
    outcome, requests = play(answer(308, b"", [("Location", "/v1/chat/completions")]))
    assert type(outcome.error) is ModelError
    assert len(requests) <= 16
