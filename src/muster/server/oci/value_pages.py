"""Pages of lists that are made for each request, such as those of shapes, users and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
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
    start, end = _bounds(request)
    headers = {"opc-next-page": str(end)} if end < len(values) else {}
    return values[start:end], headers


def sorted_page(
    request: OciRequest,
    values: Iterable[Mapping[str, Any]],
    key: Callable[[Mapping[str, Any]], str],
    *,
    descending: bool,
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, str]]:
    """As `page_of`, of values that are sorted first. Those after the page are not kept in memory.
    Raises OciError."""
    first = nlargest if descending else nsmallest
    # one more than the page: whether another page follows
    return page_of(request, first(_bounds(request)[1] + 1, values, key=key))


def _bounds(request: OciRequest) -> tuple[int, int]:
    """Where the page begins and ends. Raises OciError."""
    limit = request.number("limit", _LIMIT, 1, _LARGEST) or _LIMIT
    start = whole_number(request.given("page") or "0")
    if start is None:
        raise invalid("page is not an opc-next-page of this list")
    return start, start + limit
