"""When a request is sent again, how long we wait, and when we do not."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from mxclaw_nb.protocol import Completion, ModelError, ProviderNotice, TextDelta
from mxclaw_nb.providers import RetryPolicy
from tests.providers.loopback import STOP, Peer, Script, answer, closing, delta, frames, hang, head, play, run, stream

GOOD = stream(frames(delta(content="hi"), STOP))
LATER = (408, 409, 429, 500, 502, 503, 504, 520)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def slam(peer: Peer) -> None:
    """Close without a word."""
    peer.writer.close()


async def reset(peer: Peer) -> None:
    peer.reset()


async def half_a_head(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    peer.writer.close()


@pytest.mark.parametrize(
    "script",
    [
        *(pytest.param(answer(status, {"error": "later"}), id=str(status)) for status in LATER),
        pytest.param(answer(529, {"error": "overloaded"}), id="S62"),
        pytest.param(slam, id="closed-without-a-word"),
        pytest.param(reset, id="reset"),
        pytest.param(half_a_head, id="closed-in-the-head"),
        pytest.param(closing(b"", reset=True), id="reset-after-the-head"),
        pytest.param(stream(frames({"error": {"code": 529, "message": "overloaded"}})), id="error-frame"),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again(script: Script) -> None:
    outcome, requests = play(script, script, GOOD)
    assert outcome.error is None, outcome.error
    assert [type(item) for item in outcome.items] == [ProviderNotice, ProviderNotice, TextDelta, Completion]
    assert outcome.waits == [0.5, 1.0]
    assert len({request.body for request in requests}) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 529])
def test_four_tries_in_all(status: int) -> None:
    outcome, requests = play(answer(status, {"error": "later"}))
    assert type(outcome.error) is ModelError
    assert outcome.error.status == status
    assert "4 tries" in outcome.error.message
    assert outcome.waits == [0.5, 1.0, 2.0]
    assert len(requests) == 4
    assert [item.text for item in outcome.items if isinstance(item, ProviderNotice)][-1].endswith("(try 4 of 4).")


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 406, 410, 422, 451])
def test_S63_what_will_not_pass_is_not(status: int) -> None:
    outcome, requests = play(answer(status, {"error": "no"}), GOOD)
    assert type(outcome.error) is ModelError
    assert (outcome.error.status, len(requests), outcome.items) == (status, 1, [])


def test_an_account_without_credit_is_not_asked_again() -> None:
    outcome, requests = play(
        answer(429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}})
    )
    assert type(outcome.error) is ModelError
    assert len(requests) == 1


def test_a_refused_connection_is_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        outcome = run(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert type(outcome.error) is ModelError
    assert "could not be reached" in outcome.error.message
    assert "refused" in outcome.error.message.lower()
    assert len(outcome.waits) == 3


def test_a_name_that_does_not_exist_is_a_sentence() -> None:
    outcome = run("http://no-such-host.invalid/v1")
    assert type(outcome.error) is ModelError
    assert "no-such-host.invalid" in outcome.error.message


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ([("Retry-After", "7")], 7.0),
        ([("Retry-After", "0")], 0.5),
        ([("Retry-After", "0.1")], 0.5),
        ([("Retry-After", "60")], 60.0),
        ([("Retry-After", "-3")], 0.5),
        ([("Retry-After", "soon")], 0.5),
        ([("Retry-After", "")], 0.5),
        ([("retry-after-ms", "1500")], 1.5),
        ([("Retry-After", format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True))], 0.5),
    ],
)
def test_the_providers_wish_is_obeyed_with_our_own_wait_as_its_floor(
    headers: list[tuple[str, str]], wait: float
) -> None:
    outcome, _ = play(answer(429, {"error": "slow down"}, headers), GOOD)
    assert outcome.error is None
    assert outcome.waits == [pytest.approx(wait)]


def test_a_date_is_obeyed() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    outcome, _ = play(answer(503, b"", [("Retry-After", soon)]), GOOD)
    assert outcome.error is None
    assert 17 < outcome.waits[0] <= 20


@pytest.mark.parametrize(
    "value",
    ["61", "3600", pytest.param(format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True), id="a date")],
)
def test_a_longer_wish_fails_at_once_and_says_when_to_come_back(value: str) -> None:
    outcome, requests = play(answer(429, {"error": "slow down"}, [("Retry-After", value)]), GOOD)
    assert type(outcome.error) is ModelError
    assert outcome.error.retry_after is not None
    assert outcome.error.retry_after > 60
    assert "asked again in" in outcome.error.message
    assert "UTC" in outcome.error.message
    assert len(requests) == 1


def test_the_jitter_is_a_quarter_at_most() -> None:
    assert RetryPolicy(random=lambda: 0.0).wait(1, None) == 0.375
    assert RetryPolicy(random=lambda: 1.0).wait(1, None) == 0.625
    assert RetryPolicy(random=lambda: 0.5).wait(3, None) == 2.0


def test_a_waiting_time_is_put_into_words() -> None:
    policy = RetryPolicy(now=lambda: NOW)
    assert policy.when(90) == "1 min 30 s (at 2026-01-01 00:01:30 UTC)"
    assert policy.when(7200) == "2 h (at 2026-01-01 02:00:00 UTC)"
    assert policy.when(9e9)
    assert policy.when(9e15) == "a very long time"


def test_nothing_is_tried_again_once_text_was_shown() -> None:
    outcome, requests = play(closing(frames(delta(content="a"), done=False), reset=True), GOOD)
    assert [item.text for item in outcome.items if isinstance(item, TextDelta)] == ["a"]
    assert outcome.error is not None
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000, "not HTTP: Too many headers"),
        (head(200, [("Content-Length", "x")]), "Content-Length"),
    ],
)
def test_a_peer_that_does_not_speak_http_is_named_as_such(said: bytes, words: str) -> None:
    outcome, _ = play(hang(said))
    assert type(outcome.error) is ModelError
    assert words in outcome.error.message
