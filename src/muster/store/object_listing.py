"""List objects by their names, with those below a folder as one entry. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.store.object_records import ObjectRange, ObjectRecord

#: Reads objects of a bucket in the order of their names.
Read = Callable[[ObjectRange], Sequence[ObjectRecord]]
_LAST = "\U0010ffff"


class ListQuery(Struct, frozen=True):
    """What to list of a bucket."""

    bucket: str
    """Its id."""
    prefix: str = ""
    """What names have to start with."""
    start: str = ""
    """The first name that may be listed."""
    end: str | None = None
    """The first name that may not be listed any more."""
    delimiter: str = ""
    """Names that are the same up to the first delimiter after the prefix are one entry."""
    limit: int = 1000
    """Objects and prefixes together."""


class ListPage(Struct, frozen=True):
    """A page of a list."""

    objects: list[ObjectRecord]
    prefixes: list[str]
    """Starts of names, up to and with the delimiter."""
    next_start: str | None
    """Where the next page starts; None if this is the last one."""


def list_page(read: Read, query: ListQuery) -> ListPage:
    """The first page of what a query finds."""
    end = _least(after_all_with(query.prefix), query.end)
    start: str | None = max(query.start, query.prefix)
    more = True
    objects: list[ObjectRecord] = []
    prefixes: list[str] = []
    while more and start is not None and (end is None or start < end):
        wanted = query.limit - len(objects) - len(prefixes) + 1
        found = read(ObjectRange(query.bucket, start, end, wanted))
        more = len(found) == wanted
        for record in found:
            if start is None or record.name < start:
                continue  # below a prefix that is listed
            folder = _folder(record.name, query)
            if len(objects) + len(prefixes) == query.limit:
                return ListPage(objects, prefixes, record.name)
            if folder is None:
                objects.append(record)
                start = record.name + "\1"  # names have no NUL
            else:
                prefixes.append(folder)
                start = after_all_with(folder)
    return ListPage(objects, prefixes, None)


def seen_only(read: Read, is_seen: Callable[[ObjectRecord], bool]) -> Read:
    """Reads objects that are seen, as if there were no others."""

    def read_seen(wanted: ObjectRange) -> Sequence[ObjectRecord]:
        found: list[ObjectRecord] = []
        while True:
            some = read(wanted)
            found += filter(is_seen, some)
            if len(some) < wanted.limit or len(found) >= wanted.limit:
                return found[: wanted.limit]
            wanted = replace(wanted, start=some[-1].name + "\1")  # names have no NUL

    return read_seen


def after_all_with(prefix: str) -> str | None:
    """The first text after all that start with a prefix; None if there is none."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # no text has surrogates


def _folder(name: str, query: ListQuery) -> str | None:
    if not query.delimiter:
        return None
    at = name.find(query.delimiter, len(query.prefix))
    return None if at < 0 else name[: at + len(query.delimiter)]


def _least(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
