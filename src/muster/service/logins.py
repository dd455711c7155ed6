"""The first user of a server, and people who log in."""

from __future__ import annotations

import re
import time
from shlex import quote
from typing import TYPE_CHECKING

from muster.api.accounts import TOKEN_LIFETIME, NewToken
from muster.caller import NOTHING, Caller
from muster.errors import Forbidden, NotAuthenticated
from muster.iam.tokens import new_token
from muster.identity import user_name
from muster.service.audit import Origin, audited, entry_of, refused
from muster.store.account_records import TokenRecord, UserKind, UserRecord

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from muster.iam.oidc.people import Person
    from muster.iam.oidc.settings import OidcSettings
    from muster.store.base import Store


def create_first_admin(store: Store, now: float | None = None) -> NewToken | None:
    """Make the user of this process the first user, who administers the server, with a token that
    is shown once. None if there are users: of several servers that start at once, one makes it."""
    now = time.time() if now is None else now
    # a name of a domain may have characters that names do not have here
    name = re.sub(r"[^A-Za-z0-9._@-]", "-", user_name()).lstrip("._@-") or "admin"
    text = new_token()
    token = TokenRecord(
        id=text.id,
        name="first start",
        user=name,
        created_at=now,
        created_by=name,
        expires_at=now + TOKEN_LIFETIME,
    )
    user = UserRecord(name, UserKind.PERSON, now, name, admin=True)
    if not store.accounts.create_first(user, token, text.digest()):
        return None
    store.audit.append(entry_of(Caller(name), Origin(), now, "users.create", f"{name} (first)"))
    return NewToken(store.accounts.token(text.id), str(text))


def log_in(
    store: Store,
    settings: OidcSettings,
    claims: Mapping[str, Any],
    origin: Origin,
    *,
    token_name: str = "login",
) -> NewToken:
    """A token for the person whom verified claims of an ID token are about. Roles by groups are
    brought up to date. token_name: for the user, such as the machine's name.

    Raises NotAuthenticated if the claims lack a name, Forbidden if the person is no user here and
    does not become one, or is disabled.
    """
    from muster.iam.oidc.people import person_of

    now = time.time()
    try:
        person = person_of(claims, settings)
    except NotAuthenticated as error:
        nobody = Caller("", "", NOTHING)
        entry = entry_of(nobody, origin, now, "users.login", str(claims.get("sub", "")))
        store.audit.append(refused(entry, error))
        raise
    known = store.accounts.user_of_subject(person.issuer, person.subject)
    name = person.name if known is None else known.name
    text = new_token()
    caller = Caller(name, "", NOTHING, text.id)
    entry = entry_of(caller, origin, now, "users.login", person.subject)

    def check() -> None:
        if known is None:
            _check_new(store, settings, person)
        elif known.disabled:
            raise Forbidden(f"the user {name} is disabled; ask who administers the server")

    def do() -> NewToken:
        if known is None:
            store.accounts.create_user(
                UserRecord(
                    name=name,
                    kind=UserKind.PERSON,
                    created_at=now,
                    created_by=name,
                    display_name=person.display_name,
                    issuer=person.issuer,
                    subject=person.subject,
                )
            )
        elif person.display_name not in ("", known.display_name):
            store.accounts.change_user(name, {"display_name": person.display_name})
        store.accounts.set_group_roles(name, person.roles)
        token = TokenRecord(
            id=text.id,
            name=token_name,
            user=name,
            created_at=now,
            created_by=name,
            expires_at=now + settings.lasts,
        )
        store.accounts.create_token(token, text.digest())
        return NewToken(store.accounts.token(text.id), str(text))

    with audited(store.audit, lambda: entry, check):
        return do()


def _check_new(store: Store, settings: OidcSettings, person: Person) -> None:
    """Raises Forbidden if a person whom nobody knows by the subject does not become a user. One
    with the same name is somebody else, until an administrator says otherwise: at many issuers,
    people choose their names."""
    link = f"--issuer {quote(person.issuer)} --subject {quote(person.subject)}"
    if any(one.name.lower() == person.name.lower() for one in store.accounts.users()):
        raise Forbidden(
            f"there is a user {person.name} already, who has not logged in in this way before; if "
            f"it is the same person, an administrator links both: `muster users change "
            f"{person.name} {link}`"
        )
    if not settings.create_users:
        raise Forbidden(
            f"{person.name} is no user of this server; an administrator adds users: "
            f"`muster users add {person.name} {link}`"
        )
