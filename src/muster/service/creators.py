"""Who has created what a server carries out later, with the rights of then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.caller import Caller
from muster.errors import Forbidden, NotFound, Problem

if TYPE_CHECKING:
    from muster.iam.current_policies import CurrentPolicies
    from muster.store.protocols.accounts import Accounts


def current_caller(
    accounts: Accounts,
    policies: CurrentPolicies,
    user: str,
    project: str,
    *,
    local: bool,
    what: str,
) -> Caller:
    """The user who has created something, with its present rights. local: a user of the server's
    machine, who needs no account. what: names it in the error, `schedule nightly`. Raises Forbidden
    if the user has no account any more, or is disabled."""
    from muster.iam.authority import authority_of_user

    if local:
        return Caller(user, project)
    try:
        found = accounts.user(user)
    except NotFound:
        raise Forbidden(_not_allowed(user, what, "has no account")) from None
    if found.disabled:
        raise Forbidden(_not_allowed(user, what, "is disabled"))
    return Caller(found.name, project, authority_of_user(policies, found.name))


def _not_allowed(user: str, what: str, why: str) -> str:
    hint = f"have somebody else create the {what.partition(' ')[0]}"
    return str(Problem("", f"{user}, who created {what}, {why}", hint))
