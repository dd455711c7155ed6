"""`AccountsAPI` of a server, over HTTP. Each method is one request (`api.account_operations`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from muster.api.account_operations import ACCOUNT_OPERATIONS
from muster.api.accounts import Identity, NewSession, NewToken, OciAccess, UserChange
from muster.caller import Role
from muster.client.contexts import Address
from muster.client.http.connection import Connection
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

T = TypeVar("T")


class HttpAccounts:
    """See `AccountsAPI`, which documents the methods. Threads may share an object."""

    def __init__(self, address: Address) -> None:
        self.connection = Connection(address)

    def _call(self, name: str, answer: type[T], /, **given: object) -> T:
        """Request an operation. answer: the type of what it answers. given: all parameters of the
        method."""
        made: T = self.connection.call(ACCOUNT_OPERATIONS[name], given, answer)
        return made

    def close(self) -> None:
        self.connection.close()

    def whoami(self) -> Identity:
        return self._call("whoami", Identity)

    def users(self) -> list[UserRecord]:
        return self._call("users", list[UserRecord])

    def user(self, name: str) -> UserRecord:
        return self._call("user", UserRecord, name=name)

    def create_user(self, user: UserRecord) -> UserRecord:
        return self._call("create_user", UserRecord, user=user)

    def change_user(self, name: str, change: UserChange) -> UserRecord:
        return self._call("change_user", UserRecord, name=name, change=change)

    def projects(self) -> list[ProjectRecord]:
        return self._call("projects", list[ProjectRecord])

    def create_project(self, name: str, description: str = "") -> ProjectRecord:
        return self._call("create_project", ProjectRecord, name=name, description=description)

    def change_project(self, name: str, description: str) -> ProjectRecord:
        return self._call("change_project", ProjectRecord, name=name, description=description)

    def delete_project(self, name: str) -> None:
        self._call("delete_project", type(None), name=name)

    def members(self, project: str) -> list[MemberRecord]:
        return self._call("members", list[MemberRecord], project=project)

    def set_member(self, project: str, user: str, role: Role) -> MemberRecord:
        return self._call("set_member", MemberRecord, project=project, user=user, role=role)

    def remove_member(self, project: str, user: str) -> bool:
        return self._call("remove_member", bool, project=project, user=user)

    def tokens(self, *, user: str | None = None, project: str | None = None) -> list[TokenRecord]:
        return self._call("tokens", list[TokenRecord], user=user, project=project)

    def create_token(
        self,
        name: str,
        *,
        user: str | None = None,
        project: str | None = None,
        scopes: Collection[Right] | None = None,
        expires_at: float | None = None,
    ) -> NewToken:
        return self._call(
            "create_token",
            NewToken,
            name=name,
            user=user,
            project=project,
            scopes=scopes,
            expires_at=expires_at,
        )

    def revoke_token(self, token_id: str) -> bool:
        return self._call("revoke_token", bool, token_id=token_id)

    def oci(self) -> OciAccess:
        return self._call("oci", OciAccess)

    def keys(self, name: str) -> list[PublicKeyRecord]:
        return self._call("keys", list[PublicKeyRecord], name=name)

    def add_key(self, name: str, pem: str, title: str = "") -> PublicKeyRecord:
        return self._call("add_key", PublicKeyRecord, name=name, pem=pem, title=title)

    def create_session(self, pem: str) -> NewSession:
        return self._call("create_session", NewSession, pem=pem)

    def delete_key(self, fingerprint: str) -> None:
        self._call("delete_key", type(None), fingerprint=fingerprint)

    def secrets(self) -> list[SecretRecord]:
        return self._call("secrets", list[SecretRecord])

    def set_secret(self, name: str, value: str) -> SecretRecord:
        return self._call("set_secret", SecretRecord, name=name, value=value)

    def delete_secret(self, name: str) -> None:
        self._call("delete_secret", type(None), name=name)

    def audit(self, chosen: AuditFilter) -> list[AuditEntry]:
        return self._call("audit", list[AuditEntry], chosen=chosen)

    def prune_audit(self, before: float) -> int:
        return self._call("prune_audit", int, before=before)
