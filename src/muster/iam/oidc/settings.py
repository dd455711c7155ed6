"""The settings of logins: MUSTER_HOME/oidc.toml.

issuer = "https://id.example.org"
client_id = "muster"
create_users = true            # people who log in for the first time become users

[[roles]]                      # may be repeated; the highest role in a project counts
group = "vision-team"
project = "vision"
role = "submitter"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from muster.addresses import is_loopback
from muster.caller import Role
from muster.errors import InvalidInput, Problem
from muster.spec.quantities import is_bare_number, no_unit, parse_duration
from muster.spec.toml_file import read_toml, unknown_setting
from muster.spec.wording import suggestion

if TYPE_CHECKING:
    from pathlib import Path

_DAY = 86400.0


class GroupRole(Struct, frozen=True):
    """What the members of a group at the issuer are in a project."""

    group: str
    project: str
    role: Role


class OidcSettings(Struct, frozen=True):
    """See the module."""

    issuer: str
    client_id: str
    #: None: the issuer knows this as a public client.
    client_secret: str | None = None
    #: Who ID tokens must be for; None: the client.
    audience: str | None = None
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    #: The claim that names the user.
    name_claim: str = "preferred_username"
    #: The claim that lists the user's groups.
    groups_claim: str = "groups"
    #: Whether people who log in for the first time become users.
    create_users: bool = False
    #: Seconds until a login has to be repeated. The user's groups are looked at then.
    lasts: float = 7 * _DAY
    roles: tuple[GroupRole, ...] = ()


_TEXTS = ("issuer", "client_id", "client_secret", "audience", "name_claim", "groups_claim")


def read_settings(file: Path) -> OidcSettings | None:
    """None if there is no file: nobody logs in. Raises InvalidInput with every problem and its
    line."""
    found = read_toml(file)
    if found is None:
        return None
    problems = [found.placed(problem) for problem in _problems(found.data)]
    if "client_secret" in found.data and file.stat().st_mode & 0o077:
        problem = Problem("client_secret", "other users can read it", f"chmod 600 {file}")
        problems.append(found.placed(problem))
    if problems:
        raise InvalidInput(*problems)
    given = dict(found.data)
    if "lasts" in given:
        given["lasts"] = parse_duration(given["lasts"])
    if "scopes" in given:
        given["scopes"] = tuple(given["scopes"])
    roles = tuple(
        GroupRole(one["group"], one["project"], Role(one["role"])) for one in given.pop("roles", ())
    )
    return OidcSettings(**given, roles=roles)


def _problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    for name in data:
        if name not in OidcSettings.__struct_fields__:
            yield unknown_setting(name, name, OidcSettings.__struct_fields__)
    for name in ("issuer", "client_id"):
        if name not in data:
            yield Problem(name, "is missing", f'write {name} = "..."')
    for name in _TEXTS:
        if name in data and not (isinstance(data[name], str) and data[name]):
            yield Problem(name, "must be a text", f'write {name} = "..."')
    if isinstance(issuer := data.get("issuer"), str) and issuer and not is_safe(issuer):
        hint = "use https://, which only an issuer on this machine may lack"
        yield Problem("issuer", f"is not the address of an issuer: {issuer}", hint)
    if not isinstance(data.get("create_users", False), bool):
        yield Problem("create_users", "must be true or false")
    scopes = data.get("scopes", ["openid"])
    if not (isinstance(scopes, list) and all(isinstance(one, str) for one in scopes)):
        yield Problem("scopes", "must be a list of texts", 'write scopes = ["openid", "email"]')
    elif "openid" not in scopes:
        yield Problem("scopes", "lacks openid", "add it: there is no ID token without it")
    yield from _duration_problems(data.get("lasts", "7d"))
    yield from _role_problems(data.get("roles", []))


def _duration_problems(given: Any) -> Iterator[Problem]:
    try:
        seconds = parse_duration(given)
    except ValueError as error:
        yield Problem("lasts", str(error))
        return
    if is_bare_number(given):
        yield Problem("lasts", *no_unit(given, '"'))
    elif seconds < 60:
        yield Problem("lasts", f"is too short: {given}", "a login lasts at least 1m")


def _role_problems(given: Any) -> Iterator[Problem]:
    if not (isinstance(given, list) and all(isinstance(one, dict) for one in given)):
        yield Problem("roles", "must be tables", "write [[roles]] before each")
        return
    for number, one in enumerate(given):
        path = f"roles[{number}]"
        for key in GroupRole.__struct_fields__:
            if not (isinstance(one.get(key), str) and one[key]):
                yield Problem(f"{path}.{key}", "is missing, or not a text", f'write {key} = "..."')
        for key in one:
            if key not in GroupRole.__struct_fields__:
                yield unknown_setting(f"{path}.{key}", key, GroupRole.__struct_fields__)
        role = one.get("role")
        if isinstance(role, str) and role and role not in [*Role]:
            yield Problem(f"{path}.role", f"no role {role!r}", suggestion(role, [*Role]))


def is_safe(url: str) -> bool:
    """Whether an address is one of HTTPS, or of this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018  raises ValueError
    except ValueError:
        return False
    if not host or parts.username or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
