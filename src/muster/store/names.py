"""Names and ids that users type, and the errors for those that match nothing or too much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.errors import InvalidInput, NotFound, Problem

#: Ambiguous matches named in a message.
SHOWN = 5
#: Characters of an id that name it at least: a shorter prefix is more likely a mistake.
SHORTEST_PREFIX = 4


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


def no_job_error(job_id: str) -> NotFound:
    """The error for an id of no Job."""
    return NotFound(f"no job with the id {job_id!r}")


def no_run_error(run_id: str) -> NotFound:
    """The error for an id of no run."""
    return NotFound(f"no run with the id {run_id!r}")


def ambiguous_id_error(kinds: str, text: str, found: Sequence[tuple[str, str]]) -> InvalidInput:
    """The error for a prefix that several ids have. found: (id, name) of each."""
    named = ", ".join(f"{row_id} ({name})" for row_id, name in found[:SHOWN])
    more = ", ..." if len(found) > SHOWN else ""
    return InvalidInput(f"several {kinds} have an id that starts with {text!r}: {named}{more}")


class SameName(InvalidInput):
    """Several rows have the display name."""


class NoSuchVersion(NotFound):
    """The name exists, but not in this version."""


def ambiguous_name_error(kinds: str, text: str, handles: Sequence[str]) -> SameName:
    """The error for a display name of several rows."""
    named = ", ".join(handles[:SHOWN])
    more = ", ..." if len(handles) > SHOWN else ""
    return SameName(Problem("", f"several {kinds} are named {text!r}: {named}{more}", "use an id"))
