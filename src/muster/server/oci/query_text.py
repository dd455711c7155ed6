"""What the query languages of the OCI API have in common. Pure."""

from __future__ import annotations

import re

from lark import UnexpectedInput

from muster.spec.wording import short


def unquoted(token: str) -> str:
    """The text in quotes; a backslash is before a character that stands for itself."""
    return re.sub(r"\\(.)", r"\1", str(token)[1:-1], flags=re.DOTALL)


def place_of(text: str, error: UnexpectedInput) -> str:
    """A sentence about where a query cannot be read."""
    at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
    found = short(text[at : at + 20]) if 0 <= at < len(text) else "the end"
    return f"the query cannot be read at character {at + 1}: {found}"
