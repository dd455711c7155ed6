"""What the operations on all kinds of resources have in common: finding, listing, creating once."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.caller import Right
from muster.describe.times import time_text_ms
from muster.errors import NotFound
from muster.server.answers import Answer, encoded, matches
from muster.server.oci.actor import Actor
from muster.server.oci.errors import OciError, check_text, invalid, not_found
from muster.server.oci.request import OciRequest
from muster.spec.formats.oci.model import ChangeCompartment, Labels, plain
from muster.spec.ocids import ocid, split_ocid, user_ocid
from muster.store.resource_records import ResourceFilter, ResourceRecord

#: Resources of a page: by default, and at most (OCI).
_PAGE, _LARGEST_PAGE = 100, 1000
_SORTS = {
    "timeCreated": "created_at",
    "timeAccepted": "created_at",
    "displayName": "name",
    # of the Events service
    "TIME_CREATED": "created_at",
    "DISPLAY_NAME": "name",
}
#: Keys of a record's data that are not shown.
#: The OCID of a resource that clients know from OCI; others have one of Muster.
_FOREIGN = "ocid"
#: The digest of the request that has created it.
_REQUEST = "request"

Shown = Callable[[ResourceRecord], Mapping[str, Any]]


def ocid_of(record: ResourceRecord) -> str:
    """The OCID of a resource."""
    return str(record.data.get(_FOREIGN) or ocid(record.kind, record.id))


def find(actor: Actor, kind: str, text: str, right: Right) -> ResourceRecord:
    """The resource with this OCID, if the caller has a right in its compartment. Raises NotFound,
    OciError."""
    record = lookup(actor, kind, text)
    if record is None:
        raise _unknown(kind, text)
    actor.require(record.project, right)
    return record


def find_own(request: OciRequest, kind: str, text: str, right: Right) -> ResourceRecord:
    """As `find`, for what acts in the name of who has created it: others need the right to operate,
    too. Raises OciError, Forbidden."""
    record = find(request, kind, text, right)
    what = f"change a {kind}"
    request.caller(record.project).require_for_run(record.created_by, right, what)
    return record


def lookup(actor: Actor, kind: str, text: str) -> ResourceRecord | None:
    """The resource with this OCID, whoever's it is; None if there is none."""
    parts = split_ocid(text)
    if parts is None or parts[0] != kind:
        return None
    try:
        record = actor.store.resources.get(kind, parts[1])
    except NotFound:
        return None
    return record if ocid_of(record) == text else None


def _unknown(kind: str, text: str) -> NotFound:
    # for the server's log: clients are told the same of what is not theirs
    return NotFound(f"no {kind} has the OCID {text[:200]!r}")


def adopt(
    actor: Actor, kind: str, text: str, project: str, state: str, parent: str = ""
) -> ResourceRecord:
    """The resource with this OCID in a compartment. One that is of OCI is created here, so that
    code which names it runs as it is. Raises NotFound, OciError."""
    record = lookup(actor, kind, text)
    if record is not None:
        return _seen(actor, record)
    parts = split_ocid(text)
    if parts is None or parts[0] != kind or text.split(".")[2] == "muster":
        raise _unknown(kind, text)
    now = time.time()
    made = ResourceRecord(
        *(kind, parts[1], project, parts[1][:20], state, actor.principal.user, now, now),
        data={_FOREIGN: text},
        parent=parent,
    )
    actor.act(
        project,
        Right.SUBMIT,
        f"oci.{kind}.adopt",
        text,
        lambda: actor.store.resources.insert(made),
    )
    if (record := lookup(actor, kind, text)) is None:  # another resource has this id
        raise not_found()
    return _seen(actor, record)


def _seen(actor: Actor, record: ResourceRecord) -> ResourceRecord:
    if not actor.principal.sees(record.project):
        raise not_found()
    return record


def create(
    actor: Actor,
    record: Callable[[str], ResourceRecord],
    kind: str,
    action: str,
) -> tuple[ResourceRecord, bool]:
    """Create a resource, once if that is repeated, and whether it is new. record: makes it with an
    id. Raises OciError."""
    made_id, digest = actor.creation(kind)
    made = record(made_id)
    made = replace(made, data={**made.data, _REQUEST: digest})
    new = actor.act(
        made.project,
        Right.SUBMIT,
        action,
        made.name or made.id,
        lambda: actor.store.resources.insert(made),
    )
    found = actor.store.resources.get(kind, made_id)
    if found.data.get(_REQUEST) != digest:
        text = "The retry token was used for another request."
        raise OciError(409, "InvalidatedRetryToken", text)
    return found, new


def change(
    request: OciRequest, record: ResourceRecord, right: Right, action: str, **changes: Any
) -> ResourceRecord:
    """Change fields of a resource, if the request allows it (if-match). Raises OciError."""
    check_match(request, record)
    after = replace(record, **changes, updated_at=time.time())
    return request.act(
        record.project,
        right,
        action,
        record.name or record.id,
        lambda: request.store.resources.update(record, after),
    )


def new_project(request: OciRequest) -> str:
    """The project that a resource is to be moved to, by the body of the request. Raises OciError
    unless the caller may create resources there."""
    given = request.read(ChangeCompartment)
    return request.project_with(given.compartment_id, Right.SUBMIT)


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


def common(actor: Actor, record: ResourceRecord) -> dict[str, Any]:
    """The fields that every kind has."""
    return {
        "id": ocid_of(record),
        "compartmentId": actor.compartments.ocid(record.project),
        "displayName": record.name,
        "timeCreated": time_text_ms(record.created_at),
        "createdBy": user_ocid(record.created_by),
        "lifecycleState": record.state,
        "freeformTags": record.data.get("freeformTags") or {},
        "definedTags": record.data.get("definedTags") or {},
    }


def listing(
    request: OciRequest,
    kind: str,
    show: Shown,
    *,
    parent: str | None = None,
    states: Sequence[str] = (),
    name: str | None = None,
    within: ResourceRecord | None = None,
) -> Answer:
    """A page of the resources of a compartment. parent: the parameter that names what they belong
    to. states: those that there are. name: only resources with this one. within: list those
    that belong to a resource, which the caller may see, instead. Raises OciError."""
    if within is None:
        project = request.project_with(request.required("compartmentId"), Right.READ)
    else:
        project = within.project
    chosen = _filter(request, kind, project, parent, states)
    if chosen is None:
        return Answer(b"[]")
    if name is not None:
        chosen = replace(chosen, name=name)
    if within is not None:
        chosen = replace(chosen, parent=within.id)
    size = request.number("limit", _PAGE, 1, _LARGEST_PAGE) or _PAGE
    found = request.store.resources.listing(replace(chosen, limit=size + 1))
    headers = {}
    if len(found) > size:  # absent on the last page
        last = found[size - 1]
        headers["opc-next-page"] = page_token(getattr(last, chosen.sort), last.id)
    return Answer(encoded([show(record) for record in found[:size]]), headers=headers)


def _filter(
    request: OciRequest, kind: str, project: str, parent: str | None, states: Sequence[str]
) -> ResourceFilter | None:
    """None if nothing can fit."""
    found: dict[str, Any] = {}
    for name, field in (("id", "id"), (parent, "parent")):
        if name is not None and (text := request.given(name)) is not None:
            parts = split_ocid(text)
            if parts is None:
                return None
            found[field] = parts[1]
    found["name"] = request.given("displayName")
    if (state := request.given("lifecycleState") or request.given("status")) is not None:
        if states and state not in states:
            raise invalid(f"lifecycleState has to be one of {', '.join(states)}")
        found["states"] = (state,)
    if (creator := request.given("createdBy")) is not None:
        users = request.store.accounts.users()
        name = next((user.name for user in users if user_ocid(user.name) == creator), None)
        if name is None:
            return None
        found["created_by"] = name
    sort = request.given("sortBy") or "timeCreated"
    if sort not in _SORTS:
        raise invalid(f"sortBy has to be one of {', '.join(sorted(_SORTS))}")
    order = (request.given("sortOrder") or ("ASC" if _SORTS[sort] == "name" else "DESC")).upper()
    if order not in ("ASC", "DESC"):
        raise invalid("sortOrder has to be ASC or DESC")
    sorted_by: Any = _SORTS[sort]
    if (token := request.given("page")) is not None:
        found["after"] = read_page_token(token, str if sorted_by == "name" else float)
    return ResourceFilter(kind, project, **found, sort=sorted_by, descending=order == "DESC")


def page_token(value: str | float, identifier: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((value, identifier))).decode()


def read_page_token(token: str, kind: type[str] | type[float]) -> tuple[str | float, str]:
    """The place in a list where a page begins. kind: of the values by which the list is sorted.
    Raises OciError."""
    try:
        data = base64.urlsafe_b64decode(token.encode())
        value, identifier = msgspec.json.decode(data, type=tuple[kind, str])  # type: ignore[valid-type]
    except (ValueError, msgspec.DecodeError):
        raise invalid("page is not an opc-next-page of this list") from None
    check_text("page", f"{value}{identifier}")
    return value, identifier


def labels(given: Labels) -> dict[str, Any]:
    """The tags and the description that are given, as they are stored."""
    data, names = plain(given), ("freeformTags", "definedTags", "description")
    return {name: data[name] for name in names if data.get(name) is not None}


def default_name(prefix: str) -> str:
    """The name of a resource whose creator gives none (OCI)."""
    return f"{prefix}{datetime.now(UTC):%Y%m%d%H%M%S}"
