"""The links from a page of a list to the next one (RFC 8288)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from muster.server.parameters import parse_query


class Cursor(Struct, frozen=True):
    """How the next page of a list is requested."""

    #: The parameter that says where it begins.
    parameter: str
    #: Its value, from the last item of the page before.
    after: Callable[[Any], str | float]


_OLDER = Cursor("before", lambda run: run.position)
#: Method -> the cursor of the list that it returns.
CURSORS: Mapping[str, Cursor] = {
    "runs": _OLDER,
    "jobs": Cursor("before", lambda job: job.id),
    "schedules": Cursor("after", lambda schedule: schedule.name),
    "firings": Cursor("before", lambda firing: firing.time),
    "notifications": Cursor("after", lambda notification: notification.name),
    "deliveries": Cursor("before", lambda delivery: delivery.seq),
    "nodes": Cursor("after", lambda node: node.rank),
    "events": Cursor("after", lambda entry: entry.seq),
}


def next_link(
    name: str, url: str, query: str, limit: int | None, items: Sequence[Any]
) -> Mapping[str, str]:
    """The header with the link to the next page of a list; none after the last page. name: of the
    method. url: its path. query, limit: of the request for this page."""
    cursor, given = CURSORS.get(name), parse_query(query)
    # of the last nodes, which are read backwards, the next page is not the following one
    if cursor is None or not limit or len(items) < limit or "last" in given:
        return {}
    following = {**given, cursor.parameter: [str(cursor.after(items[-1]))]}
    return {"link": f'<{url}?{urlencode(following, doseq=True)}>; rel="next"'}
