"""One request to the OCI API: who asks, for what, and its body."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace

from muster.caller import Caller, Right
from muster.iam.principals import Principal
from muster.server.call import Call
from muster.server.oci.errors import OciError, invalid, missing, not_found
from muster.service.audit import audited, entry_of
from muster.spec.formats.oci import model

if TYPE_CHECKING:
    from muster.server.oci.compartments import Compartments
    from muster.server.state import ServerState
    from muster.service.embedded import EmbeddedAPI
    from muster.store.base import Store

T = TypeVar("T")


class OciRequest:
    """See the module."""

    def __init__(self, call: Call, compartments: Compartments) -> None:
        self.call = call
        self.compartments = compartments
        #: The parameters in the path.
        self.path: Mapping[str, str] = {}
        #: The body; b"" if the handler reads it itself.
        self.body = b""
        self._principal: Principal | None = None
        self._query = parse_qs(call.query, keep_blank_values=True, max_num_fields=1000)

    @property
    def state(self) -> ServerState:
        """The server."""
        return self.call.state

    @property
    def store(self) -> Store:
        """The records."""
        return self.call.state.backend.store

    @property
    def principal(self) -> Principal:
        """Who asks; set before a handler is called, except for routes that need no signature."""
        assert self._principal is not None
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    def header(self, name: str) -> str:
        """A header, by its name in small letters; "" if it is missing."""
        return self.call.header(name)

    def given(self, name: str) -> str | None:
        """A parameter of the query; None if it is missing or empty."""
        return self._query.get(name, [""])[0] or None

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
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise invalid(f"{name} has to be a whole number from {least} to {most}")
        return int(text)

    def flag(self, name: str) -> bool | None:
        """A parameter that is `true` or `false`; None if it is missing. Raises OciError."""
        text = (self.given(name) or "").lower()
        if text not in ("", "true", "false"):
            raise invalid(f"{name} has to be true or false")
        return None if not text else text == "true"

    def read(self, kind: type[T]) -> T:
        """The JSON body. Raises OciError."""
        try:
            data: Any = msgspec.json.decode(self.body or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise OciError(400, "CannotParseRequest", "The body is not valid JSON.") from None
        try:
            return model.decode(kind, data)
        except ValueError as error:
            raise invalid(str(error)) from None

    def parts(self, most: int) -> AsyncIterator[bytes]:
        """The body in parts, for handlers that read it themselves. most: bytes in all."""
        return self.call.parts(most)

    # Who may do what

    def project_of(self, compartment: str) -> str:
        """The project that is a compartment. Raises OciError if there is none."""
        project = self.compartments.project(compartment)
        if project is None:
            raise not_found()
        return project

    def caller(self, project: str) -> Caller:
        """The caller in a project."""
        return self.principal.caller(project)

    def require(self, project: str, right: Right) -> Caller:
        """The caller in a project. Raises OciError unless it has a right there: the same as for
        what does not exist."""
        caller = self.caller(project)
        if right not in caller.rights:
            raise not_found()
        return caller

    def act(
        self,
        project: str,
        right: Right,
        action: str,
        object: str,
        do: Callable[[], T],
    ) -> T:
        """Do something that changes records, if the caller has a right in a project, and record it
        in the audit log. action, object: as in `AuditEntry`."""
        caller = self.caller(project)

        def check() -> None:
            caller.require(right, f"do {action}")

        def entry() -> Any:
            return entry_of(
                *(caller, self.call.origin, time.time(), action, object), project=project
            )

        with audited(self.store.audit, entry, check):
            return do()

    def api_elsewhere(self, project: str, other: str) -> EmbeddedAPI:
        """Muster in another project, with the rights that the caller has in this one."""
        caller = replace(self.caller(project), project=other)
        return self.state.api(caller, self.call.origin, {}, may_start=False)

    def api(
        self,
        project: str,
        *,
        created_id: str | None = None,
        oci_names: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> EmbeddedAPI:
        """Muster for the caller in a project. created_id, oci_names: see `Submission`."""
        caller = self.caller(project)
        return self.state.api(
            *(caller, self.call.origin, environ or {}, created_id),
            may_start=created_id is not None,
            oci_names=oci_names,
        )
