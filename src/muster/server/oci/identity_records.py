"""How policies, groups and dynamic groups are created, changed and deleted: all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from muster.caller import NO_VARIABLES, Caller, Variables
from muster.errors import AlreadyExists, NotFound
from muster.identity import DEFAULT_PROJECT
from muster.server.answers import Answer
from muster.server.oci.errors import OciError
from muster.server.oci.identity import (
    already_exists,
    answer,
    change,
    check_tag,
    content,
    still_used,
)
from muster.server.oci.request import OciRequest
from muster.service.policy_changes import changed_by
from muster.store.policy_records import DynamicGroupRecord, GroupRecord, PolicyRecord

if TYPE_CHECKING:
    from muster.service.backend import Backend
    from muster.store.protocols.policies import Policies

T = TypeVar("T")
R = TypeVar("R", PolicyRecord, GroupRecord, DynamicGroupRecord)


class RecordKind(Struct, Generic[R], frozen=True):
    """One kind of record: what the store does with it, and how it is shown."""

    name: str
    """In OCI's codes."""
    actions: str
    """What actions of the audit log begin with."""
    find: Callable[[Policies, str], R]
    insert: Callable[[Policies, R], None]
    replace: Callable[[Policies, R, R], R]
    remove: Callable[[Policies, R], None]
    shown: Callable[[OciRequest, R], Mapping[str, Any]]
    project: Callable[[R], str] = lambda _: DEFAULT_PROJECT
    """Where the permission of a route is needed."""
    variables: Callable[[R], Variables] = lambda _: NO_VARIABLES
    """What conditions of policies can know of a record."""

    def create(self, request: OciRequest, make: Callable[[str], R]) -> Answer:
        """Create a record, once if the request is repeated (OCI: opc-retry-token). make: makes it
        with an id. Raises OciError."""
        made_id, _ = request.creation(self.name)
        made, policies = make(made_id), request.store.policies
        with suppress(NotFound):
            before = self.find(policies, made_id)
            if content(before) != content(made):
                text = "The retry token was used for another request."
                raise OciError(409, "InvalidatedRetryToken", text)
            return self.answer(request, before)
        try:
            self.act(request, "create", made, lambda: self.insert(policies, made))
        except AlreadyExists as error:
            raise already_exists(self.name, error) from None
        return self.answer(request, self.find(policies, made_id))

    def update(self, request: OciRequest, before: R, after: R) -> Answer:
        """Change a record, whose entity tag was checked."""
        policies, new = request.store.policies, changed_by(after, request.principal.user)
        made = self.act(request, "change", before, lambda: self.replace(policies, before, new))
        return self.answer(request, made)

    def delete(
        self,
        request: OciRequest,
        record: R,
        check: Callable[[Backend, Caller, str], None] | None = None,
    ) -> Answer:
        """Delete a record, whose entity tag was checked. check: raises InvalidInput if something
        still uses what has this name."""

        def remove() -> None:
            if check is not None:
                check(request.state.backend, request.caller(self.project(record)), record.name)
            self.remove(request.store.policies, record)

        with still_used():
            self.act(request, "delete", record, remove)
        return Answer(status=204)

    def act(
        self, request: OciRequest, verb: str, record: R, do: Callable[[], T], about: str = ""
    ) -> T:
        """Do something to a record, as `identity.change`. about: what else the audit log has of
        it."""
        object = f"{record.name} ({about})" if about else record.name
        action, on = f"{self.actions}.{verb}", self.variables(record)
        return change(request, self.project(record), action, object, do, on)

    def answer(self, request: OciRequest, record: R) -> Answer:
        """A record as it is sent."""
        return answer(self.shown(request, record), _tag_of(record))

    def check_tag(self, request: OciRequest, record: R) -> None:
        """Raises OciError unless the header if-match, if there is one, names the record as it
        is."""
        check_tag(request, _tag_of(record))


def _tag_of(record: R) -> str:
    """The entity tag of a record: another one after each change."""
    return f"{record.id}-{record.version}"
