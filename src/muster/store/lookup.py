"""Finding a row by what a person types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.errors import InvalidInput, NotFound
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

    close = get_close_matches(text, list(names), 3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"`{command}` shows what there is"
    return NotFound(f"no {kind} called {text!r} ({hint})")


def ambiguous(kinds: str, text: str, rows: Sequence[Row]) -> InvalidInput:
    """Several ids begin so."""
    named = ", ".join(f"{row['id']} ({row['name']})" for row in rows[:_SHOWN])
    more = ", ..." if len(rows) > _SHOWN else ""
    return InvalidInput(f"several {kinds} have an id that begins with {text!r}: {named}{more}")
