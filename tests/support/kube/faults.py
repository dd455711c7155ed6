"""Faults of an API server that a test asks for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from support.kube.access import Attributes


class Call(NamedTuple):
    """A request that has arrived."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    query: Mapping[str, str]
    #: Of what creates or patches something.
    body: bytes = b""
    #: Of the API.
    group: str = ""


class Fault(NamedTuple):
    """What happens to requests, instead of their answers or to them."""

    #: An answer with this code; 0: none.
    status: int = 0
    #: Seconds of `Retry-After`; -1: no such header.
    retry_after: int = -1
    #: Seconds before the request is looked at.
    delay: float = 0.0
    #: Close the connection `before` the request has an effect, or `after` it.
    drop: str = ""
    #: The requests: verb, resource; "" for any.
    verb: str = ""
    resource: str = ""
    message: str = ""


class Faults:
    """Faults that are to come, each for some requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: list[tuple[Fault, float]] = []

    def add(self, *, times: float = 1, **what: Any) -> None:
        """The next requests of a kind have a fault. what: fields of `Fault`."""
        with self._lock:
            self._planned.append((Fault(**what), times))

    def clear(self) -> None:
        with self._lock:
            self._planned.clear()

    def take(self, asked: Attributes) -> Fault:
        """The fault of a request; one without anything if it has none."""
        with self._lock:
            for place, (fault, left) in enumerate(self._planned):
                resource = asked.resource + (f"/{asked.subresource}" if asked.subresource else "")
                if fault.verb in ("", asked.verb) and fault.resource in ("", resource):
                    if left <= 1:
                        del self._planned[place]
                    else:
                        self._planned[place] = (fault, left - 1)
                    return fault
        return Fault()
