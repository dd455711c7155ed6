"""Limit how many requests a token makes, and how often an address guesses tokens."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from muster.errors import TooManyRequests

#: Wrong tokens that an address may send at once, and per second on average.
_GUESSES, _GUESSES_PER_SECOND = 20, 0.2
#: Buckets that are kept: those that were used least recently are forgotten.
_MOST_BUCKETS = 10_000


class Buckets:
    """A token bucket for each key: `burst` at once, and `rate` per second."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        #: Key -> what is left, and when that was.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, key: str) -> float:
        """What is left for a key."""
        now = self._clock()
        level, since = self._buckets.get(key, (self._burst, now))
        return min(self._burst, level + (now - since) * self._rate)

    def has(self, key: str) -> bool:
        """Whether something was taken for a key, lately."""
        return key in self._buckets

    def take(self, key: str) -> bool:
        """Take one. False if none is left."""
        left = self.left(key)
        self._buckets[key] = (max(left - 1.0, 0.0) if left >= 1.0 else left, self._clock())
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return left >= 1.0


class RateLimits:
    """The limits of a server. rate: requests of one token per second; burst: at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._requests = Buckets(rate, burst)
        self._guesses = Buckets(_GUESSES_PER_SECOND, _GUESSES)
        self._rate = rate

    def check_guesses(self, address: str, token: str) -> None:
        """Raises TooManyRequests for an address that has sent too many wrong tokens, before this
        one is looked at. Who has a token that was right a moment ago is not kept out by others
        behind the same address."""
        if self._guesses.left(address) < 1.0 and not self._requests.has(token):
            text = f"too many requests from {address} had no valid token; wait some seconds"
            raise TooManyRequests(text)

    def count_wrong_token(self, address: str) -> None:
        """Count a wrong token."""
        self._guesses.take(address)

    def count_request(self, token: str) -> None:
        """Count a request. Raises TooManyRequests."""
        if not self._requests.take(token):
            text = f"more than {self._rate:g} requests a second with this token; wait a second"
            raise TooManyRequests(text)
