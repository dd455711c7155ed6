"""When a delivery is attempted again, and when it is given up. Pure."""

from __future__ import annotations

from random import Random

from msgspec import Struct

#: Attempts, and seconds since the first one, after which a delivery is given up.
MOST_ATTEMPTS = 15
LONGEST = 24 * 3600.0
#: Seconds of the first delay at most, and of the longest one.
_FIRST, _MOST = 5.0, 3600.0
#: Seconds that a receiver may have us wait.
_MOST_ASKED = 6 * 3600.0


class Answer(Struct, frozen=True):
    """What came of an attempt."""

    delivered: bool
    text: str
    """What the receiver has answered, or why there is no answer. Shown to members."""
    retry_after: float = 0.0
    """Seconds after which the receiver wants the next attempt."""
    final: bool = False
    """Whether further attempts would fail in the same way."""


def next_attempt(
    answer: Answer, attempts: int, first_at: float, now: float, rng: Random
) -> float | None:
    """When a delivery is attempted again (epoch seconds); None if it is given up. attempts: so far,
    with the one that has failed.

    The delay is random between 0 and a bound that doubles each time, so that the deliveries which
    failed together do not come back together.
    """
    if answer.final or attempts >= MOST_ATTEMPTS or now - first_at >= LONGEST:
        return None
    delay = rng.uniform(0.0, min(_MOST, _FIRST * 2.0 ** min(attempts - 1, 30)))
    return now + max(delay, min(answer.retry_after, _MOST_ASKED))
