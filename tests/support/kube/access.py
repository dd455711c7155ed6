"""Who may do what: tokens of users, and rules as those of Roles."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from support.kube.objects import ApiError

ALL = ("*",)


class Rule(NamedTuple):
    """As a rule of a Role; namespace: of the Role, "" for a ClusterRole."""

    verbs: Sequence[str]
    resources: Sequence[str]
    groups: Sequence[str] = ALL
    namespace: str = ""

    def allows(self, asked: Attributes) -> bool:
        what = asked.resource + (f"/{asked.subresource}" if asked.subresource else "")
        return (
            bool({"*", asked.verb} & {*self.verbs})
            and bool({"*", what} & {*self.resources})
            and bool({"*", asked.group} & {*self.groups})
            and self.namespace in ("", asked.namespace)
        )


class Attributes(NamedTuple):
    """What a request asks for."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class User(NamedTuple):
    """Who has a token. rules: None: may do anything."""

    name: str
    rules: tuple[Rule, ...] | None = None


class Access:
    """The users of a cluster."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[User, float]] = {}

    def grant(self, token: str, user: User, seconds: float = float("inf")) -> None:
        """Accept a token for some time."""
        self._tokens[token] = (user, time.monotonic() + seconds)

    def revoke(self, token: str) -> None:
        self._tokens.pop(token, None)

    def authenticate(self, header: str | None) -> User:
        """Raises ApiError."""
        kind, _, token = (header or "").partition(" ")
        user, until = self._tokens.get(token, (None, 0.0))
        if kind != "Bearer" or user is None or until < time.monotonic():
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def authorize(self, user: User, asked: Attributes) -> None:
        """Raises ApiError, with the text of a real API server."""
        if may(user, asked):
            return
        what = asked.resource + (f"/{asked.subresource}" if asked.subresource else "")
        kind = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
        name = f' "{asked.name}"' if asked.name else ""
        where = (
            f' in the namespace "{asked.namespace}"'
            if asked.namespace
            else (" at the cluster scope")
        )
        text = (
            f'{kind}{name} is forbidden: User "{user.name}" cannot {asked.verb} resource "{what}" '
            f'in API group "{asked.group}"{where}'
        )
        details = {"kind": asked.resource}
        details |= {"group": asked.group} if asked.group else {}
        raise ApiError(403, "Forbidden", text, details | ({"name": asked.name} if name else {}))


def may(user: User, asked: Attributes) -> bool:
    return user.rules is None or any(rule.allows(asked) for rule in user.rules)
