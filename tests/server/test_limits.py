"""How many requests a token may make, and how many wrong tokens an address may send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.errors import TooManyRequests
from muster.server.limits import Buckets, RateLimits
from muster.service.backend import Backend
from muster.storage.home import Home
from support.server_thread import TOKEN, ServerThread, running_server


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_again() -> None:
    clock = Clock()
    buckets = Buckets(rate=2.0, burst=3.0, clock=clock)
    assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
    assert buckets.take("b"), "each key has its own"
    clock.now += 0.5
    assert [buckets.take("a") for _ in range(2)] == [True, False]
    clock.now += 1000
    assert buckets.left("a") == 3.0


def test_a_refused_request_does_not_take_what_comes_in() -> None:
    clock = Clock()
    buckets = Buckets(rate=1.0, burst=1.0, clock=clock)
    assert buckets.take("a")
    for _ in range(8):
        clock.now += 0.125
        taken = buckets.take("a")
    assert taken, "it fills while requests are refused"


def test_the_least_used_buckets_are_forgotten() -> None:
    buckets = Buckets(rate=0.0, burst=1.0, clock=Clock())
    for number in range(10_001):
        buckets.take(str(number))
    assert not buckets.has("0")
    assert buckets.has("1") and buckets.has("10000")


def test_who_guesses_keeps_out_only_strangers() -> None:
    limits = RateLimits(rate=1.0, burst=1000)
    limits.count_request("known")
    for _ in range(20):
        limits.check_guesses("192.0.2.1", "guess")
        limits.count_wrong_token("192.0.2.1")
    with pytest.raises(TooManyRequests, match=r"too many requests from 192\.0\.2\.1 had no valid"):
        limits.check_guesses("192.0.2.1", "another guess")
    limits.check_guesses("192.0.2.1", "known")
    limits.check_guesses("192.0.2.2", "guess")


@pytest.fixture
def server(own_home: Home) -> Iterator[ServerThread]:
    with running_server(Backend(Home(own_home))) as running:
        yield running


def test_tokens_cannot_be_guessed(server: ServerThread) -> None:
    """After twenty wrong tokens, no other one is looked at, whether it is right or not."""
    from support.teams import ask

    statuses = [ask(server.port, "GET", "/v1/caller", f"guess-{n}").status for n in range(25)]
    assert statuses == [401] * 20 + [429] * 5
    reply = ask(server.port, "GET", "/v1/caller", TOKEN)
    assert (reply.status, reply.problem) == (429, "TooManyRequests")
    assert reply.headers["retry-after"] == "1"
    others = ask(server.port, "GET", "/v1/caller", TOKEN, source="127.0.0.2")
    assert others.status == 200
    assert ask(server.port, "GET", "/v1/caller", TOKEN).status == 200, "it is known by now"
    assert ask(server.port, "GET", "/healthz").status == 200
