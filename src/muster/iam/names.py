"""Names of users, groups, projects, policies, secrets, schedules and notifications, and texts about
them. Pure."""

from __future__ import annotations

import re

from muster.errors import InvalidInput, Problem
from muster.escapes import visible_line
from muster.spec.wording import short

_LONGEST_NAME = 100
_LONGEST_TEXT = 500
#: Kind -> the characters that a name may have besides letters and digits.
_ALSO = {
    "user": "._@-",
    "project": "._-",
    "secret": "._-",
    "schedule": "._-",
    "notification": "._-",
    "policy": "._-",
    "group": "._-",
    "dynamic group": "._-",
}
#: Those whose names may begin with any of their characters (OCI).
_ANY_FIRST = frozenset({"policy", "group", "dynamic group"})


def check_name(kind: str, name: str) -> str:
    """The name, if it can be one of this kind: a user, a group, a dynamic group, a project, a
    policy, a secret, a schedule or a notification. Raises InvalidInput."""
    also = _ALSO[kind]
    first = "[A-Za-z0-9_]" if kind == "secret" else "[A-Za-z0-9]"
    if kind in _ANY_FIRST:
        first = f"[A-Za-z0-9{also}]"
    if re.fullmatch(rf"{first}[A-Za-z0-9{also}]{{0,{_LONGEST_NAME - 1}}}", name):
        return name
    hint = f"use up to {_LONGEST_NAME} letters, digits and any of {' '.join(also)}"
    if kind not in _ANY_FIRST:
        hint += ", with a letter or digit first"
    raise InvalidInput(Problem("", f"{short(name)} is not a valid name of a {kind}", hint))


def check_text(what: str, text: str) -> str:
    """A text of one line for people, such as a description. Raises InvalidInput."""
    if len(text) > _LONGEST_TEXT:
        problem = f"has {len(text):,} characters, {_LONGEST_TEXT} are allowed"
        raise InvalidInput(Problem(what, problem, "make it shorter"))
    if visible_line(text) != text:
        problem = f"has characters that cannot be printed: {visible_line(text)}"
        raise InvalidInput(Problem(what, problem, "leave them out"))
    return text
