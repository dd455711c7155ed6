"""What the operations on all kinds of resources have in common: finding, creating, changing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from muster.describe.times import time_text_ms
from muster.errors import NotFound
from muster.iam.resources import (
    FOREIGN,
    ids_of,
    is_foreign,
    ocid_of,
    variables_of,
    variables_of_new,
)
from muster.permissions import Permission
from muster.server.answers import Answer, encoded, matches
from muster.server.oci.actor import Actor
from muster.server.oci.errors import OciError, not_found
from muster.server.oci.request import OciRequest
from muster.spec.formats.oci.model import ChangeCompartment, Labels, plain
from muster.spec.ocids import split_ocid, user_ocid
from muster.store.resource_records import LOG, ResourceRecord

#: The digest of the request that has created it.
_REQUEST = "request"
#: The OCID of the compartment that its creator has given.
_COMPARTMENT = "compartmentId"


def target_of(actor: Actor, record: ResourceRecord) -> Mapping[str, str]:
    """What is known of a resource, for conditions of policies."""
    return variables_of(record, actor.group_of(record) if record.kind == LOG else None)


def find(actor: Actor, kind: str, text: str, permission: Permission) -> ResourceRecord:
    """The resource with this OCID, if the caller has a permission for it. Raises NotFound,
    Forbidden."""
    record = lookup(actor, kind, text, permission)
    if record is None:
        raise _unknown(kind, text)
    actor.require(record.project, permission, target_of(actor, record))
    return record


def lookup(actor: Actor, kind: str, text: str, permission: Permission) -> ResourceRecord | None:
    """The resource with this OCID, preferably one that the caller has a permission for; None if
    there is none."""
    parts = split_ocid(text)
    if parts is None or parts[0] != kind:
        return None
    hidden = None
    for identifier in ids_of(text):
        with suppress(NotFound):
            record = actor.store.resources.get(kind, identifier)
            if ocid_of(record) == text:
                if allows(actor, record, permission):
                    return record
                hidden = hidden or record
    return hidden


def allows(actor: Actor, record: ResourceRecord, permission: Permission) -> bool:
    """Whether the caller has a permission for a resource."""
    return actor.allows(record.project, permission, target_of(actor, record))


def _unknown(kind: str, text: str) -> NotFound:
    # for the server's log: clients are told the same of what is not theirs
    return NotFound(f"no {kind} has the OCID {text[:200]!r}")


def adopt(
    actor: Actor,
    kind: str,
    text: str,
    project: str,
    *,
    needs: Permission,
    creates: Permission,
    parent: str = "",
) -> ResourceRecord:
    """The resource with this OCID in a compartment. One that is of OCI is created here, so that
    code which names it runs as it is. needs: what is needed of the resource. creates: what is
    needed to create it. Raises NotFound, OciError, Forbidden."""
    record = lookup(actor, kind, text, needs)
    if record is not None and allows(actor, record, needs):
        return record
    parts = split_ocid(text)
    if parts is None or parts[0] != kind or not is_foreign(text):
        if record is not None:  # the server's log says which permission is missing
            actor.require(record.project, needs, target_of(actor, record))
        raise _unknown(kind, text)
    now = time.time()
    made = ResourceRecord(
        *(kind, parts[1], project, parts[1][:20], "ACTIVE", actor.principal.user, now, now),
        data={FOREIGN: text},
        parent=parent,
    )
    actor.require(project, needs, target_of(actor, made))
    insert = actor.store.resources.insert
    actor.act(
        project,
        creates,
        f"oci.{kind}.adopt",
        text,
        lambda: any(insert(replace(made, id=identifier)) for identifier in ids_of(text)),
        variables_of_new(kind, made.name),
    )
    record = lookup(actor, kind, text, needs)
    if record is None or not allows(actor, record, needs):  # all ids are taken
        raise not_found()
    return record


def create(
    actor: Actor,
    record: Callable[[str], ResourceRecord],
    kind: str,
    permission: Permission,
    action: str,
) -> tuple[ResourceRecord, bool]:
    """Create a resource, once if that is repeated, and whether it is new. record: makes it with an
    id. Raises OciError, Forbidden."""
    made_id, digest = actor.creation(kind)
    made = record(made_id)
    made = replace(made, data={**made.data, _REQUEST: digest})
    new = actor.act(
        made.project,
        permission,
        action,
        made.name or made.id,
        lambda: actor.store.resources.insert(made),
        variables_of_new(kind, made.name),
    )
    found = actor.store.resources.get(kind, made_id)
    if found.data.get(_REQUEST) != digest:
        text = "The retry token was used for another request."
        raise OciError(409, "InvalidatedRetryToken", text)
    return found, new


def change(
    request: OciRequest, record: ResourceRecord, action: str, **changes: Any
) -> ResourceRecord:
    """Change fields of the resource that a request is about, if that allows it (if-match). Raises
    OciError, Forbidden."""
    check_match(request, record)
    return change_related(request, record, request.permission, action, **changes)


def change_related(
    request: OciRequest, record: ResourceRecord, permission: Permission, action: str, **changes: Any
) -> ResourceRecord:
    """As `change`, of a resource that belongs to the one that the request is about. Raises
    OciError, Forbidden."""
    after = replace(record, **changes, updated_at=time.time())
    return request.act(
        record.project,
        permission,
        action,
        record.name or record.id,
        lambda: request.store.resources.update(record, after),
        target_of(request, record),
    )


def moved(request: OciRequest, record: ResourceRecord, creates: Permission) -> dict[str, Any]:
    """What changes of a resource that is moved to the compartment in the body of the request.
    creates: what is needed there. Raises OciError, Forbidden."""
    target = request.read(ChangeCompartment).compartment_id
    project = request.project_with(target, creates, target_of(request, record))
    return {"project": project, "data": {**record.data, _COMPARTMENT: target}}


def etag(record: ResourceRecord) -> str:
    """The entity tag: another one after each change."""
    return f"{record.id}-{record.version}-{record.state.lower()}"


def check_match(request: OciRequest, record: ResourceRecord) -> None:
    """Raises OciError unless the resource is as the header if-match says."""
    given = request.header("if-match")
    if given and not matches(given.replace('"', ""), etag(record)):
        raise OciError(412, "NoEtagMatch", "The resource has changed since it was read.")


def shown(
    record: ResourceRecord, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Answer:
    """A resource as it is sent. headers: besides its entity tag."""
    return Answer(encoded(body), headers={"etag": etag(record), **(headers or {})})


def compartment_of(actor: Actor, record: ResourceRecord) -> str:
    """The OCID of a resource's compartment: the one that its creator has given, as a project may be
    several compartments of OCI."""
    given = record.data.get(_COMPARTMENT)
    if given is not None and actor.compartments.project(given) == record.project:
        return str(given)
    return actor.compartments.ocid(record.project)


def common(actor: Actor, record: ResourceRecord) -> dict[str, Any]:
    """The fields that every kind has."""
    return {
        "id": ocid_of(record),
        "compartmentId": compartment_of(actor, record),
        "displayName": record.name,
        "timeCreated": time_text_ms(record.created_at),
        "createdBy": user_ocid(record.created_by),
        "lifecycleState": record.state,
        "freeformTags": record.data.get("freeformTags") or {},
        "definedTags": record.data.get("definedTags") or {},
    }


def labels(given: Labels) -> dict[str, Any]:
    """The tags, the description and the compartment that are given, as they are stored."""
    names = ("freeformTags", "definedTags", "description", _COMPARTMENT)
    data = plain(given)
    return {name: data[name] for name in names if data.get(name) is not None}


def default_name(prefix: str) -> str:
    """The name of a resource whose creator gives none (OCI)."""
    return f"{prefix}{datetime.now(UTC):%Y%m%d%H%M%S}"
