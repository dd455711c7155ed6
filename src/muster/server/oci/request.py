"""One request to the OCI API: who asks, for what, and its body."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec

from muster.identity import id_of, new_id
from muster.permissions import Permission
from muster.server.call import Call
from muster.server.oci.actor import Actor
from muster.server.oci.errors import OciError, check_text, invalid, missing
from muster.spec.formats.oci.decoding import decode_partial
from muster.type_info import decode_json, is_deeper

T = TypeVar("T")
#: Parameters of a query.
_MOST_FIELDS = 1000
#: Objects and arrays in each other. Tags are recorded as they are, and sent inside of others: what
#: can just be read could not be written.
_DEEPEST = 100
#: A NUL in a text of JSON: no database records it.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def whole_number(text: str) -> int | None:
    """The number that a text is; None if it is none, or has more digits than any that clients
    send: Python reads no more than some thousands."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


class OciRequest(Actor):
    """See the module."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.state, call.origin)
        self.call = call
        #: The parameters in the path.
        self.path: Mapping[str, str] = {}
        #: What the route needs (`OciRoute.permission`).
        self.route_permission: Permission | None = None
        #: The body; b"" if the handler reads it itself.
        self.body = b""
        try:
            self._query = parse_qs(call.query, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise invalid(f"the query has more than {_MOST_FIELDS} parameters") from None

    @property
    def permission(self) -> Permission:
        """What the route needs; only of those that need one."""
        assert self.route_permission is not None
        return self.route_permission

    def creation(self, kind: str) -> tuple[str, str]:
        """See `Actor.creation`: clients repeat a request with the same retry token."""
        token, digest = self.header("opc-retry-token"), hashlib.sha256(self.body).hexdigest()
        made = id_of(kind, self.principal.user, token) if token else new_id()
        return made, digest

    def header(self, name: str) -> str:
        """A header, by its name in small letters; "" if it is missing."""
        return self.call.header(name)

    def given(self, name: str) -> str | None:
        """A parameter of the query; None if it is missing or empty. Raises OciError."""
        return check_text(name, self._query.get(name, [""])[0]) or None

    def has(self, name: str) -> bool:
        """Whether the query has a parameter, with or without a value."""
        return name in self._query

    def required(self, name: str) -> str:
        """A parameter of the query. Raises OciError if it is missing."""
        if (value := self.given(name)) is None:
            raise missing(name)
        return value

    def number(self, name: str, default: int | None, least: int, most: int) -> int | None:
        """A whole number of the query. Raises OciError."""
        text = self.given(name)
        if text is None:
            return default
        found = whole_number(text)
        if found is None or not least <= found <= most:
            raise invalid(f"{name} has to be a whole number from {least} to {most}")
        return found

    def flag(self, name: str) -> bool | None:
        """A parameter that is `true` or `false`; None if it is missing. Raises OciError."""
        text = (self.given(name) or "").lower()
        if text not in ("", "true", "false"):
            raise invalid(f"{name} has to be true or false")
        return None if not text else text == "true"

    def read(self, kind: type[T], rules: Callable[[T], Iterable[str]] = lambda _: ()) -> T:
        """The JSON body. rules: what is wrong with a value. Raises OciError with everything that is
        wrong."""
        if _NUL.search(self.body):
            raise invalid("a text in the body has a NUL character")
        try:
            data: Any = decode_json(self.body or b"{}", Any)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise OciError(400, "CannotParseRequest", "The body is not valid JSON.") from None
        if is_deeper(data, _DEEPEST):
            text = f"The body has more than {_DEEPEST} objects and arrays in each other."
            raise OciError(400, "CannotParseRequest", text)
        value, found = decode_partial(kind, data)
        if value is not None:
            found += rules(value)
        if found or value is None:
            raise invalid("; ".join(found))
        return value

    def parts(self, most: int) -> AsyncIterator[bytes]:
        """The body in parts, for handlers that read it themselves. most: bytes in all."""
        return self.call.parts(most)
