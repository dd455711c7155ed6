"""Variables that have one of some values: which, and what is wrong with another one. Pure."""

from __future__ import annotations

from typing import NamedTuple

from muster.iam.policies.conditions import folded, pattern
from muster.iam.policies.operations import OPERATIONS
from muster.permissions import Permission
from muster.spec.wording import alternatives, close_to, short

_PRINCIPAL_TYPES = ("user", "datasciencejobrun", "instance")
_PAGE = "https://muster-jobs.github.io/muster/reference/oci/"
#: Up to how many are listed.
_FEW = 5
#: Variable -> the values that requests, runs and hosts have.
_KNOWN = {
    "request.principal.type": _PRINCIPAL_TYPES,
    "resource.type": _PRINCIPAL_TYPES[1:],  # rules are not about users
    "request.operation": tuple(sorted(OPERATIONS)),
    "request.permission": tuple(Permission),
}


class Unknown(NamedTuple):
    """A value that nothing has."""

    sentence: str
    meant: str
    """One that is like it; "" if none is."""
    hint: str
    """What to do if none is."""


def unknown_value(variable: str, text: str, *, is_pattern: bool = False) -> Unknown | None:
    """What is wrong with a value that a variable is compared with; None if there is nothing, or if
    the variable has any values."""
    known = _KNOWN.get(variable)
    if known is None or not text:
        return None
    if is_pattern:
        matches = pattern(folded(text))
        if any(matches(folded(one)) for one in known):
            return None
        return Unknown(f"no {variable} matches /{text}/", "", _hint(variable, known))
    if any(folded(text) == folded(one) for one in known):
        return None
    like = {folded(one): one for one in known}
    found = next(iter(close_to(folded(text), like, 1, 0.7)), "")
    return Unknown(
        f"nothing has {variable} {short(text)}", like.get(found, ""), _hint(variable, known)
    )


def _hint(variable: str, known: tuple[str, ...]) -> str:
    if len(known) <= _FEW:
        return f"write {alternatives(list(known))}"
    if variable == "request.operation":
        return f"{_PAGE} lists the operations"
    return "the page Policies of the documentation lists them"
