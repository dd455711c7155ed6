"""Records of who may do what: users, projects, members, tokens; secrets; the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from muster.caller import Role
from muster.permissions import Right
from muster.store.records import Moment


class UserKind(StrEnum):
    """Who a user is."""

    PERSON = "person"
    SERVICE = "service"
    """A program, such as a pipeline. It has tokens and no login."""


class UserRecord(Struct, frozen=True):
    """A user. Users are disabled and never deleted, since runs and the audit log name them."""

    name: str
    """Unique, also without regard to capitals, and never changed."""
    kind: UserKind
    created_at: Moment
    created_by: str = ""
    display_name: str = ""
    issuer: str = ""
    """The OpenID Connect issuer that knows the user; "" if none."""
    subject: str = ""
    """The user's `sub` there."""
    admin: bool = False
    """Whether it administers the server: may do everything in all projects."""
    disabled: bool = False


class ProjectRecord(Struct, frozen=True):
    """A project: what its members have in common."""

    name: str
    """Unique, also without regard to capitals, and never changed."""
    created_at: Moment
    created_by: str = ""
    description: str = ""
    parent: str = ""
    """The project that it is right below; "" for `default`, which is the root, and for itself."""


class MemberRecord(Struct, frozen=True):
    """A user's role in a project."""

    project: str
    user: str
    role: Role
    from_groups: bool = False
    """Whether it follows from the user's groups at the issuer, and goes with them."""


class TokenRecord(Struct, frozen=True):
    """A token, without its secret."""

    id: str
    name: str
    """For people, such as the machine where it is used."""
    user: str
    created_at: Moment
    created_by: str = ""
    project: str | None = None
    """The only project where it can be used; None: all of the user's."""
    scopes: frozenset[Right] | None = None
    """What it may be used for; None: everything that its user may do."""
    expires_at: Moment | None = None
    last_used_at: Moment | None = None
    """Written at most once a minute."""
    revoked_at: Moment | None = None


class Credential(Struct, frozen=True):
    """What is known of the caller who shows a token."""

    token: TokenRecord
    digest: bytes
    """Of the token's secret: SHA-256."""
    user: UserRecord
    roles: Mapping[str, Role]
    """The user's, by project."""


class PublicKeyRecord(Struct, frozen=True):
    """A public key: its user signs requests with the private one (OCI: API key)."""

    fingerprint: str
    """MD5 of the key in DER: 16 pairs of hexadecimal digits with colons (OCI)."""
    user: str
    name: str
    """For people, such as the machine where the private key is."""
    pem: str
    created_at: Moment
    created_by: str = ""


class SecretRecord(Struct, frozen=True):
    """A project's secret, without its value."""

    name: str
    version: int
    """From 1, one more with each value."""
    set_by: str
    set_at: Moment


class AuditEntry(Struct, frozen=True):
    """Who did what, when, from where, and whether it was allowed."""

    time: Moment
    user: str
    """"" if the caller is not known."""
    action: str
    """What it was: `runs.start`, `users.create`."""
    object: str = ""
    """The name or id of what it was done to."""
    project: str = ""
    """"" for what is not of a project."""
    allowed: bool = True
    why: str = ""
    """Why it was refused or, if it was allowed, why it failed; "" if it was done."""
    token_id: str = ""
    """The id of the caller's token; "" for a user of the server's machine."""
    address: str = ""
    """Where the request came from; "" for the server's machine."""
    request_id: str = ""
    permission: str = ""
    """What the caller needed: `DATA_SCIENCE_JOB_RUN_CREATE`; "" if no policy decided it."""
    statement: str = ""
    """What allowed it: a policy, and the number of its statement, as `job-runs#2`; "" if nothing
    did."""
    attributes: Mapping[str, str] = {}
    """What conditions of policies could know of the object, such as `target.bucket.name`."""
    run: str = ""
    """The id of the run that asked; "" if a user did."""
    seq: int = 0
    """Grows from entry to entry; given by the store."""


class AuditFilter(Struct, frozen=True):
    """Which entries of the audit log to list, newest first unless `after` is given."""

    user: str | None = None
    action: str | None = None
    """An action, or the kind of object before its dot: `runs`."""
    object: str | None = None
    project: str | None = None
    allowed: bool | None = None
    since: float | None = None
    """Recorded at this time or later (epoch seconds)."""
    until: float | None = None
    """Recorded before this time."""
    permission: str | None = None
    """What the caller needed, by its name: `OBJECT_READ`."""
    before: int | None = None
    """Only entries with a lower `seq`: the next page of a list."""
    after: int | None = None
    """Only entries with a higher `seq`, oldest first: for an export that continues later."""
    limit: int | None = None
