"""Errors as OCI's clients expect them: a status and a code, by which they decide what to repeat.

OCI's SDKs repeat 429, 5xx but 501, and 409 with IncorrectState; nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MusterError,
    NotAuthenticated,
    NotFound,
    ResourceShortage,
    StoreBusy,
    TooManyRequests,
)
from muster.iam.signatures import SkewedClock
from muster.server.answers import Answer
from muster.server.call import BodyTooLarge, Changed
from muster.server.routes import WrongVerb


class OciError(MusterError):
    """An error with the status and the code of OCI."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status, self.code, self.headers = status, code, headers or {}
        super().__init__(message)

    @property
    def is_transient(self) -> bool:
        """Whether OCI's SDKs repeat what was answered with it."""
        passes = self.status == 409 and self.code == "IncorrectState"
        return passes or self.status == 429 or (self.status >= 500 and self.status != 501)


def not_found() -> OciError:
    """The one answer for what does not exist and what is not the caller's (OCI)."""
    return OciError(
        404,
        "NotAuthorizedOrNotFound",
        "Authorization failed or requested resource not found.",
    )


def invalid(message: str) -> OciError:
    """A parameter has a value that it cannot have."""
    return OciError(400, "InvalidParameter", message)


def check_text(name: str, text: str) -> str:
    """A text that a client sends. Raises OciError if it cannot be recorded, or looked for."""
    if "\0" in text:
        raise invalid(f"{name} has a NUL character")
    return text


def missing(name: str) -> OciError:
    """A parameter that has to be given is not."""
    return OciError(400, "MissingParameter", f"{name} is required")


def conflict(message: str) -> OciError:
    """A state in which this is not possible, and that does not pass."""
    return OciError(409, "Conflict", message)


def not_yet(message: str) -> OciError:
    """A state in which this is not possible, and that passes: clients try again."""
    return OciError(409, "IncorrectState", message)


#: The first class that fits decides.
_CODES: tuple[tuple[type[Exception], int, str], ...] = (
    (NotAuthenticated, 401, "NotAuthenticated"),
    (TooManyRequests, 429, "TooManyRequests"),
    (BodyTooLarge, 413, "RequestEntityTooLarge"),
    (Changed, 412, "NoEtagMatch"),
    (StoreBusy, 503, "ServiceUnavailable"),
    (ResourceShortage, 503, "ServiceUnavailable"),
    (InvalidInput, 400, "InvalidParameter"),
    (Conflict, 409, "Conflict"),
)


def oci_error(error: Exception) -> OciError:
    """What a client is told of an error."""
    if isinstance(error, OciError):
        return error
    if isinstance(error, WrongVerb):
        return OciError(405, "MethodNotAllowed", str(error))
    if isinstance(error, (NotFound, Forbidden)):
        return not_found()
    if isinstance(error, SkewedClock):
        return OciError(401, "NotAuthenticated", str(error))
    if isinstance(error, NotAuthenticated):
        # what is wrong is in the server's log
        text = (
            "The required information to complete authentication was not provided or was incorrect."
        )
        return OciError(401, "NotAuthenticated", text)
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            return OciError(status, code, str(error))
    return OciError(500, "InternalServerError", "An internal server error occurred.")


def answer_of(error: OciError) -> Answer:
    """An error as it is sent."""
    body = msgspec.json.encode({"code": error.code, "message": str(error)})
    return Answer(body, error.status, headers=error.headers)
