"""Addresses without what nobody should read in them."""

from __future__ import annotations

import re

# the user part of a web address may be a token all by itself; that of ssh is a name
_WEB = r"(?i)(?<![A-Za-z0-9])((?:git\+)?(?:https?|ftps?)://)[^/\s@]*(?:@[^/\s@]*)*@"
# so many characters of the scheme are enough to know it by, and of a long word none is read again
_OTHER = r"([A-Za-z][A-Za-z0-9+.-]{0,30}://[^/\s@:]*):[^/\s]*@"


def without_credentials(text: str) -> str:
    """A text with the user and password of every web address in it left out, and the password of
    any other address."""
    return re.sub(_OTHER, r"\1@", re.sub(_WEB, r"\1", text))


def has_credentials(text: str) -> bool:
    """Whether there is anything in it that should not be shown."""
    return without_credentials(text) != text
