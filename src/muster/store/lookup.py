"""Finding a row by what a person types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.errors import InvalidInput, NotFound, Problem
from muster.store.database import Database, Row

#: Ambiguous matches named in a message.
_SHOWN = 5


def by_prefix(db: Database, table: str, text: str) -> list[Row]:
    """Rows whose id begins with `text`, as far as telling one from several needs it."""
    if not text:
        return []
    # a range, since the index on ids serves it
    return db.read(
        f"SELECT * FROM {table} WHERE id >= ? AND id < ? ORDER BY id LIMIT {_SHOWN + 1}",
        (text, text + "\U0010ffff"),
    )


def id_in(text: str) -> str:
    """The id, or beginning of one, that is meant: an OCID of ours ends in one."""
    return text.rpartition(".")[2] if text.startswith("ocid1.") else text


def typed(text: str) -> bool:
    """Whether the database can be asked for it: argv may hold bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def missing(kind: str, text: str, names: Iterable[str], command: str) -> NotFound:
    """Nothing is called so."""
    from difflib import get_close_matches

    close = get_close_matches(text, list(dict.fromkeys(names)), 3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"`{command}` shows what there is"
    return NotFound(f"no {kind} called {text!r} ({hint})")


def ambiguous(kinds: str, text: str, rows: Sequence[Row]) -> InvalidInput:
    """Several ids begin so."""
    named = ", ".join(f"{row['id']} ({row['name']})" for row in rows[:_SHOWN])
    more = ", ..." if len(rows) > _SHOWN else ""
    return InvalidInput(f"several {kinds} have an id that begins with {text!r}: {named}{more}")


class SameName(InvalidInput):
    """A display name that several have."""


class NoSuchVersion(NotFound):
    """A name that is there, and has no such version."""


def same_name(kinds: str, text: str, handles: Sequence[str]) -> SameName:
    """Several have this display name."""
    named = ", ".join(handles[:_SHOWN])
    more = ", ..." if len(handles) > _SHOWN else ""
    return SameName(
        Problem("", f"several {kinds} are called {text!r}: {named}{more}", "say which of them")
    )


def having_tags(tags: Mapping[str, str | None]) -> tuple[list[str], list[Any]]:
    """Conditions on the column `tags`, and their values. None: with any value."""
    # a damaged row must not be in the way of the others
    found = "SELECT 1 FROM json_each(tags) WHERE key = ?"
    where: list[str] = []
    values: list[Any] = []
    for key, value in tags.items():
        wanted = found if value is None else f"{found} AND value = ?"
        where.append(f"CASE WHEN json_valid(tags) THEN EXISTS ({wanted}) ELSE 0 END")
        values += [key] if value is None else [key, value]
    return where, values
