"""Ids of jobs and runs, and who makes them."""

from __future__ import annotations

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: nothing to misread
_LENGTH = 10


def new_id() -> str:
    """Ten characters, 50 random bits: unique among all a person will ever have."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(_LENGTH))


def user_name() -> str:
    """Whose process this is: the user's name, or number if it has none (OCI: createdBy)."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
