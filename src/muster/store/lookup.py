"""Find rows by names and ids that users type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.errors import InvalidInput, NotFound, Problem
from muster.store.database import Database, Row

#: Ambiguous matches named in a message.
_SHOWN = 5


def by_prefix(db: Database, table: str, text: str) -> list[Row]:
    """Rows whose id starts with `text`, limited to what the message for several matches shows."""
    if not text:
        return []
    # a range, since it uses the index on ids
    return db.read(
        f"SELECT * FROM {table} WHERE id >= ? AND id < ? ORDER BY id LIMIT {_SHOWN + 1}",
        (text, text + "\U0010ffff"),
    )


def id_from_ocid(text: str) -> str:
    """The id or id prefix: the last part of an OCID of Muster, else the text itself."""
    return text.rpartition(".")[2] if text.startswith("ocid1.") else text


def is_valid_unicode(text: str) -> bool:
    """Whether the text is valid Unicode: argv may contain bytes that are not, and SQLite refuses
    them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def not_found_error(kind: str, text: str, names: Iterable[str], command: str) -> NotFound:
    """The error for a name without a match. names: for suggestions, newest first."""
    from muster.spec.wording import close_to

    known = list(names)
    close = [name for name in known if name.startswith(f"{text}-")][:3] or close_to(text, known, 3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"`{command}` lists them"
    return NotFound(f"no {kind} named {text!r} ({hint})")


def ambiguous_id_error(kinds: str, text: str, rows: Sequence[Row]) -> InvalidInput:
    """The error for a prefix that several ids have."""
    named = ", ".join(f"{row['id']} ({row['name']})" for row in rows[:_SHOWN])
    more = ", ..." if len(rows) > _SHOWN else ""
    return InvalidInput(f"several {kinds} have an id that starts with {text!r}: {named}{more}")


class SameName(InvalidInput):
    """Several rows have the display name."""


class NoSuchVersion(NotFound):
    """The name exists, but not in this version."""


def ambiguous_name_error(kinds: str, text: str, handles: Sequence[str]) -> SameName:
    """The error for a display name of several rows."""
    named = ", ".join(handles[:_SHOWN])
    more = ", ..." if len(handles) > _SHOWN else ""
    return SameName(Problem("", f"several {kinds} are named {text!r}: {named}{more}", "use an id"))


def tag_conditions(tags: Mapping[str, str | None]) -> tuple[list[str], list[Any]]:
    """SQL conditions on the column `tags`, and their parameters. tags: None matches any value."""
    # a damaged row must not hide the others
    found = "SELECT 1 FROM json_each(tags) WHERE key = ?"
    where: list[str] = []
    values: list[Any] = []
    for key, value in tags.items():
        query = found if value is None else f"{found} AND value = ?"
        where.append(f"CASE WHEN json_valid(tags) THEN EXISTS ({query}) ELSE 0 END")
        values += [key] if value is None else [key, value]
    return where, values
