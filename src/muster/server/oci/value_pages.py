"""Pages of lists that are made for each request, such as those of shapes, users and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.server.answers import Answer, encoded
from muster.server.oci.errors import invalid
from muster.server.oci.request import OciRequest, whole_number

#: Values of a page: by default, and at most (OCI).
_LIMIT, _LARGEST = 100, 1000


def value_page(request: OciRequest, values: Sequence[Mapping[str, Any]]) -> Answer:
    """The page of a list that the request is for. Raises OciError."""
    found, headers = page_of(request, values)
    return Answer(encoded(found), headers=headers)


def page_of(
    request: OciRequest, values: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, str]]:
    """The values of the page that the request is for, and the headers of the answer. Raises
    OciError."""
    limit = request.number("limit", _LIMIT, 1, _LARGEST) or _LIMIT
    start = whole_number(request.given("page") or "0")
    if start is None:
        raise invalid("page is not an opc-next-page of this list")
    end = start + limit
    headers = {"opc-next-page": str(end)} if end < len(values) else {}
    return values[start:end], headers
