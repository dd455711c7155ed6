"""Lists of resources: filtered, sorted, page by page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.caller import always
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import check_text, invalid
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import lookup, target_of
from muster.spec.ocids import split_ocid, user_ocid
from muster.store.protocols.resources import Resources
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

Shown = Callable[[ResourceRecord], Mapping[str, Any]]


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
    """A page of the resources of a compartment, of those that the caller sees. parent: the
    parameter that names what they belong to. states: those that there are. name: only resources
    with this one. within: list those that belong to a resource instead. Raises OciError,
    Forbidden."""
    if within is None:
        project = request.project_of(request.required("compartmentId"))
    else:
        project = within.project
    sees = request.seen(project, request.permission)
    chosen = _filter(request, kind, project, parent, states)
    if chosen is None:
        return Answer(b"[]")
    if name is not None:
        chosen = replace(chosen, name=name)
    if within is not None:
        chosen = replace(chosen, parent=within.id)
    size = request.number("limit", _PAGE, 1, _LARGEST_PAGE) or _PAGE
    listed = every(request.store.resources, chosen, size + 1)
    found = [
        *islice(
            (one for one in listed if sees is always or sees(target_of(request, one))), size + 1
        )
    ]
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
            record = None if parts is None else lookup(request, parts[0], text, request.permission)
            if record is None:
                return None
            found[field] = record.id
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
    """The token of the page after the resource with this value and id."""
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


def every(
    resources: Resources, chosen: ResourceFilter, page: int = _LARGEST_PAGE
) -> Iterator[ResourceRecord]:
    """The resources that a filter chooses, of which a page is in memory at a time."""
    while True:
        found = resources.listing(replace(chosen, limit=page))
        yield from found
        if len(found) < page:
            return
        chosen = replace(chosen, after=(getattr(found[-1], chosen.sort), found[-1].id))
