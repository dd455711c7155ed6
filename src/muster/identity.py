"""Ids of jobs and runs, and the name of the user."""

from __future__ import annotations

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no characters that look alike
_LENGTH = 10


def new_id() -> str:
    """A new id: ten characters, 50 random bits."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(_LENGTH))


def user_name() -> str:
    """The user of this process: the name, or the number if it has none (OCI: createdBy)."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
