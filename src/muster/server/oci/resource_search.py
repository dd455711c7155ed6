"""Search resources of all compartments (OCI: Search Service API 20180409)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import invalid
from muster.server.oci.listings import every
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import common, target_of
from muster.server.oci.routes import OciRoute
from muster.server.oci.search_query import SearchQuery, parse_query
from muster.server.oci.value_pages import sorted_page, value_page
from muster.spec.formats.oci.model import Wire
from muster.store.resource_records import JOB, JOB_RUN, LOG, LOG_GROUP, ResourceFilter

_PATH = "/20180409/resources"
#: Kind -> what it is called in answers; in queries without regard to capitals.
_TYPES = {
    JOB: "DataScienceJob",
    JOB_RUN: "DataScienceJobRun",
    "datascienceproject": "DataScienceProject",
    LOG_GROUP: "LogGroup",
    LOG: "Log",
}
#: Kind -> what is needed to find it.
_INSPECTS = {
    JOB: Permission.JOB_INSPECT,
    JOB_RUN: Permission.JOB_RUN_INSPECT,
    "datascienceproject": Permission.PROJECT_INSPECT,
    LOG_GROUP: Permission.LOG_GROUP_INSPECT,
    LOG: Permission.LOG_GROUP_INSPECT,
}


class SearchDetails(Wire, frozen=True, kw_only=True):
    """OCI: StructuredSearchDetails, FreeTextSearchDetails."""

    type: str
    query: str | None = None
    text: str | None = None


def search_resources(request: OciRequest) -> Answer:
    """POST /resources"""
    given = request.read(SearchDetails)
    if given.type == "FreeText" and given.text:
        query = SearchQuery(("all",), _has_text(given.text))
    elif given.type == "Structured" and given.query:
        try:
            query = parse_query(given.query)
        except ValueError as error:
            raise invalid(f"query: {error}") from None
    else:
        raise invalid("type has to be Structured, with a query, or FreeText, with a text")
    unknown = [kind for kind in query.kinds if kind not in (*_TYPES, "all")]
    if unknown:
        raise invalid(f"query: no resources of the type {unknown[0]} are known here")
    values, headers = sorted_page(
        request,
        (resource for resource in _resources(request, query) if query.fits(resource)),
        lambda one: str(one.get(query.sort) or ""),
        descending=query.descending,
    )
    return Answer(encoded({"items": values}), headers=headers)


def list_resource_types(request: OciRequest) -> Answer:
    """GET /resourceTypes"""
    fields = ("identifier", "displayName", "compartmentId", "lifecycleState", "timeCreated")
    described = [
        {"name": name, "fields": [{"fieldName": field, "fieldType": "STRING"} for field in fields]}
        for name in _TYPES.values()
    ]
    return value_page(request, described)


def _has_text(text: str) -> Any:
    wanted = text.strip('"').lower()

    def fits(resource: Mapping[str, Any]) -> bool:
        return any(wanted in str(value).lower() for value in resource.values())

    return fits


def _resources(request: OciRequest, query: SearchQuery) -> Iterator[Mapping[str, Any]]:
    """The resources of the query's types that the caller sees, as they are sent."""
    for kind, name in _TYPES.items():
        if kind not in query.kinds and "all" not in query.kinds:
            continue
        for project, sees in request.visible(_INSPECTS[kind]):
            for record in every(request.store.resources, ResourceFilter(kind, project)):
                if not sees(target_of(request, record)):
                    continue
                shown = common(request, record)
                del shown["createdBy"]  # OCI: ResourceSummary has none
                yield {
                    "resourceType": name,
                    "identifier": shown.pop("id"),
                    "systemTags": {},
                    "additionalDetails": {},
                    **shown,
                }


ROUTES = (
    OciRoute("search_resources", "POST", _PATH, search_resources),
    OciRoute("list_resource_types", "GET", "/20180409/resourceTypes", list_resource_types),
)
