"""The contract between Muster and those who manage it: users, projects, tokens, secrets, audit.

An `AccountsAPI` works for one caller, as a `MusterAPI` does. Its answers are plain data, so that
each method can be called over a network; no method returns the value of a secret or, except when it
is created, of a token. Each change is in the audit log, also if it was refused.

Besides the errors that a method names, each raises Forbidden if the caller may not do it, NotFound
for a user, project, token or secret that there is not, and StoreError. Names are case-insensitive.
Times are epoch seconds in UTC.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from muster.caller import Role
from muster.permissions import Right
from muster.store.account_records import (
    AuditEntry,
    AuditFilter,
    MemberRecord,
    ProjectRecord,
    PublicKeyRecord,
    SecretRecord,
    TokenRecord,
    UserRecord,
)

#: Seconds for which a token can be used if nobody says otherwise: 90 days.
TOKEN_LIFETIME = 90 * 86400.0


class Identity(Struct, frozen=True):
    """Who a caller is, and what it may do."""

    user: str
    project: str
    rights: tuple[Right, ...]
    """In this project, in alphabetical order."""
    projects: tuple[MemberRecord, ...] = ()
    """Where the user is a member."""
    token: TokenRecord | None = None
    """The one that the caller shows; None for the user of the server's machine."""


class NewSession(Struct, frozen=True):
    """A session token of the OCI API."""

    token: str
    """A JWT, as `security_token_file` of OCI's configuration has it."""
    expires_at: float
    """Epoch seconds."""


class OciAccess(Struct, frozen=True):
    """What a client of OCI needs to reach the server as a caller."""

    user: str
    """OCIDs of the caller, of the tenancy and of the caller's project."""
    tenancy: str
    compartment: str
    region: str = ""
    """What the client has as its region: the domain of the services; "" if the server has none, and
    the client has to name its address."""
    services: tuple[str, ...] = ()
    """Names in front of the domain."""
    ca: str = ""
    """The certificate of the authority to trust, in PEM; "" for those of the system."""


class NewToken(Struct, frozen=True):
    """A token that was just created."""

    record: TokenRecord
    text: str
    """What a caller shows. It is not stored, and cannot be shown again."""


class UserChange(Struct, frozen=True, omit_defaults=True):
    """What is to become of a user; None: stays as it is."""

    display_name: str | None = None
    admin: bool | None = None
    disabled: bool | None = None
    issuer: str | None = None
    subject: str | None = None


class AccountsAPI(Protocol):
    """See the module."""

    def close(self) -> None:
        """Close connections; the next call opens them again."""
        ...

    def whoami(self) -> Identity:
        """Who calls."""
        ...

    # Users

    def users(self) -> list[UserRecord]:
        """All users, by name. For administrators."""
        ...

    def user(self, name: str) -> UserRecord:
        """A user. For administrators, and oneself."""
        ...

    def create_user(self, user: UserRecord) -> UserRecord:
        """Add a user; when and by whom is set here. For administrators. Raises InvalidInput if the
        name is not valid or is taken."""
        ...

    def change_user(self, name: str, change: UserChange) -> UserRecord:
        """Change a user. For administrators. Raises InvalidInput if no person would be left who
        administers the server."""
        ...

    # Projects

    def projects(self) -> list[ProjectRecord]:
        """The projects where the caller is a member, by name; for administrators, all."""
        ...

    def create_project(self, name: str, description: str = "") -> ProjectRecord:
        """Add a project. For administrators. Raises InvalidInput if the name is not valid or is
        taken."""
        ...

    def change_project(self, name: str, description: str) -> ProjectRecord:
        """Describe a project. For its admins."""
        ...

    def delete_project(self, name: str) -> None:
        """Delete a project without jobs and runs. For administrators. Raises InvalidInput."""
        ...

    def members(self, project: str) -> list[MemberRecord]:
        """The members of a project, by name. For its members."""
        ...

    def set_member(self, project: str, user: str, role: Role) -> MemberRecord:
        """Add a member, or change its role. For the project's admins, who cannot give or take more
        rights than they have."""
        ...

    def remove_member(self, project: str, user: str) -> bool:
        """Remove a member; its runs continue. For the project's admins, and for oneself. False if
        it is none."""
        ...

    # Tokens

    def tokens(self, *, user: str | None = None, project: str | None = None) -> list[TokenRecord]:
        """Tokens, newest first, with expired and revoked ones. user: default: the caller; others
        for administrators. project: all that can be used in this project only, for its admins."""
        ...

    def create_token(
        self,
        name: str,
        *,
        user: str | None = None,
        project: str | None = None,
        scopes: Collection[Right] | None = None,
        expires_at: float | None = None,
    ) -> NewToken:
        """Create a token. user: default: the caller; those of others for administrators, and those
        of service accounts for admins of the project. project: the only one where it can be used.
        scopes: what it may be used for; None: everything that its user may do. expires_at: None:
        never. Raises InvalidInput if it would have expired already, or the user is disabled."""
        ...

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a token; a server forgets it within 5 seconds. False if it was revoked already."""
        ...

    def oci(self) -> OciAccess:
        """What a client of OCI needs."""
        ...

    # Keys

    def keys(self, name: str) -> list[PublicKeyRecord]:
        """The public keys of a user, the oldest first. Administrators see those of all users."""
        ...

    def add_key(self, name: str, pem: str, title: str = "") -> PublicKeyRecord:
        """Add a public key, in PEM, by which requests of a user to the OCI API are verified. title:
        for people, such as the machine where the private key is. Administrators add keys for all
        users. Raises InvalidInput for what is no public RSA key, AlreadyExists."""
        ...

    def create_session(self, pem: str) -> NewSession:
        """A session token for the caller, by which clients of the OCI API sign requests for an hour
        instead of with an API key. It can be refreshed for a day, and does not outlive the token
        that it is made with. pem: the session's public RSA key. Raises InvalidInput for what is
        none, Forbidden if the caller's token is limited to a project or scopes."""
        ...

    def delete_key(self, fingerprint: str) -> None:
        """Delete a public key. Administrators delete those of all users."""
        ...

    # Secrets of the caller's project

    def secrets(self) -> list[SecretRecord]:
        """The secrets of the project, by name, without their values."""
        ...

    def set_secret(self, name: str, value: str) -> SecretRecord:
        """Add a secret, or replace its value. Runs that have started keep the former one. Raises
        InvalidInput if the name is not valid, or the value is empty or longer than 64 KiB."""
        ...

    def delete_secret(self, name: str) -> None:
        """Delete a secret. Runs that have started keep it."""
        ...

    # Audit log

    def audit(self, chosen: AuditFilter) -> list[AuditEntry]:
        """Entries, newest first (oldest first after `after`); 1,000 unless `limit` says otherwise,
        and never more than 10,000: for the next page, `before` or `after` is the last one's `seq`.
        For administrators; for admins of the caller's project, its entries."""
        ...

    def prune_audit(self, before: float) -> int:
        """Delete entries that were recorded before a time, and record that. Returns their number.
        For administrators."""
        ...
