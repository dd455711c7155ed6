"""Errors as an API sends them (RFC 9457: Problem Details for HTTP APIs), and as they are raised
again by who receives them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.errors import (
    Conflict,
    EngineError,
    Forbidden,
    InvalidInput,
    MusterError,
    NotAuthenticated,
    NotFound,
    Problem,
    ResourceShortage,
    StoreBusy,
    StoreError,
    TooManyRequests,
    Unreadable,
)

MEDIA_TYPE = "application/problem+json"
#: The most specific kinds first.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (NotFound, 404),
    (Unreadable, 404),
    (InvalidInput, 422),
    (NotAuthenticated, 401),
    (Forbidden, 403),
    (Conflict, 409),
    (TooManyRequests, 429),
    (StoreBusy, 503),
    (ResourceShortage, 503),
    (StoreError, 500),
    (EngineError, 502),
    (TimeoutError, 408),
)
#: Precedes the name of the error's class.
_PREFIX = "muster:"


class ProblemDetails(Struct, frozen=True, omit_defaults=True):
    """An error: the members of RFC 9457, and what Muster's messages are made of."""

    #: `muster:` and the name of the error's class.
    type: str = "about:blank"
    title: str = ""
    status: int = 500
    #: What is wrong, where, and what to do: each problem is a line.
    detail: str = ""
    #: The id of the request, by which the server's log names it.
    instance: str = ""
    #: Each problem with its place, of an error in the input.
    problems: tuple[Problem, ...] = ()
    #: More general types, for clients that do not know the first.
    kinds: tuple[str, ...] = ()


def details_of(error: Exception, request_id: str = "") -> ProblemDetails:
    """The details of an error. Of one that Muster did not raise on purpose, nothing is told but the
    id of the request."""
    status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
    if not isinstance(error, (MusterError, TimeoutError)):
        text = f"internal error of the server: its log has more about the request {request_id}"
        error = EngineError(text)
    classes: tuple[type, ...] = type(error).__mro__
    kind, *more = (each.__name__ for each in classes if _can_be_sent(each))
    problems = error.problems if isinstance(error, InvalidInput) else ()
    return ProblemDetails(
        f"{_PREFIX}{kind}", _title(kind), status, str(error), request_id, problems, tuple(more)
    )


def _can_be_sent(kind: type) -> bool:
    """Whether an error of this class is made of its text, or of its problems."""
    made: tuple[object, ...] = (MusterError.__init__, InvalidInput.__init__)
    constructor: object = next(
        vars(one)["__init__"] for one in kind.__mro__ if "__init__" in vars(one)
    )
    return kind is TimeoutError or (issubclass(kind, MusterError) and constructor in made)


def _title(kind: str) -> str:
    """`NotFound` -> `not found`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind).strip()


def error_of(details: ProblemDetails) -> Exception:
    """The error to raise where the details were received."""
    known: dict[str, type[Exception]] = {each.__name__: each for each in _all_kinds()}
    known["TimeoutError"] = TimeoutError
    names = (details.type.removeprefix(_PREFIX), *details.kinds)
    kind = next((known[name] for name in names if name in known), MusterError)
    problems = details.problems if issubclass(kind, InvalidInput) else ()
    return kind(*problems) if problems else kind(details.detail or details.title)


def _all_kinds() -> Iterator[type[MusterError]]:
    """The errors that are defined in the modules that this process has imported."""
    waiting: list[type[MusterError]] = [MusterError]
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting += kind.__subclasses__()
