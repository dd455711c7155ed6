"""When deliveries are attempted again."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from muster.notify.retries import LONGEST, MOST_ATTEMPTS, Answer, next_attempt

FAILED = Answer(False, "HTTP 500")
RNG = random.Random(7)


def delay(attempts: int, answer: Answer = FAILED, *, now: float = 100.0) -> float:
    at = next_attempt(answer, attempts, 100.0, now, RNG)
    assert at is not None
    return at - now


def test_delays_are_random_below_a_bound_that_doubles() -> None:
    for attempts, bound in ((1, 5.0), (2, 10.0), (5, 80.0), (14, 3600.0)):
        found = [delay(attempts) for _ in range(200)]
        assert all(0 <= one <= bound for one in found)
        assert max(found) > bound / 2 > min(found)


def test_a_receiver_is_given_the_time_that_it_wants() -> None:
    busy = Answer(False, "HTTP 429", retry_after=120.0)
    assert min(delay(1, busy) for _ in range(50)) == 120.0
    forever = Answer(False, "HTTP 503", retry_after=1e9)
    assert delay(1, forever) == 6 * 3600


def test_a_delivery_is_given_up() -> None:
    assert next_attempt(FAILED, MOST_ATTEMPTS, 100.0, 101.0, RNG) is None
    assert next_attempt(FAILED, 2, 100.0, 100.0 + LONGEST, RNG) is None
    assert next_attempt(Answer(False, "gone", final=True), 1, 100.0, 100.0, RNG) is None


@given(st.integers(1, 10_000), st.floats(0, 1e9), st.integers())
def test_no_attempt_is_in_the_past(attempts: int, wait: float, seed: int) -> None:
    answer = Answer(False, "", retry_after=wait)
    at = next_attempt(answer, attempts, 100.0, 200.0, random.Random(seed))
    assert (at is None) == (attempts >= MOST_ATTEMPTS)
    assert at is None or at >= 200.0
