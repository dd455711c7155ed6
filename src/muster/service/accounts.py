"""`AccountsAPI` in this process: checks who calls, records what is done, and does it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import asdict, replace

from muster.api.accounts import Identity, NewSession, NewToken, OciAccess, UserChange
from muster.caller import Caller, Right, Role, local_caller
from muster.errors import Forbidden, InvalidInput, NotFound, Problem
from muster.iam.grants import check_in_project, check_new_token, check_others_token, check_role
from muster.iam.names import check_name, check_text
from muster.iam.public_keys import fingerprint_of, normal_pem, read_public_key
from muster.iam.tokens import new_token
from muster.identity import DEFAULT_PROJECT, is_id
from muster.service.audit import Origin, audited, entry_of
from muster.service.backend import Backend
from muster.spec.ocids import OCI_SERVICES, TENANCY, compartment_ocid, user_ocid
from muster.store.account_records import (
    AuditEntry,
    AuditFilter,
    MemberRecord,
    ProjectRecord,
    PublicKeyRecord,
    SecretRecord,
    TokenRecord,
    UserKind,
    UserRecord,
)

if TYPE_CHECKING:
    from muster.store.base import Accounts, Audit, Keys, Secrets

T = TypeVar("T")

#: Entries of the audit log in one answer: by default, and at most.
_PAGE, _LARGEST_PAGE = 1_000, 10_000


class EmbeddedAccounts:
    """See `AccountsAPI`, which documents the methods. Threads may share an object."""

    def __init__(
        self, backend: Backend, caller: Caller | None = None, origin: Origin | None = None
    ) -> None:
        """caller: default: the user of this process. origin: of the request; default: this
        machine."""
        self._backend = backend
        self._caller = caller or local_caller()
        self._origin = origin or Origin()

    @property
    def _accounts(self) -> Accounts:
        return self._backend.store.accounts

    @property
    def _keys(self) -> Keys:
        return self._backend.store.keys

    @property
    def _secrets(self) -> Secrets:
        return self._backend.store.secrets

    @property
    def _log(self) -> Audit:
        return self._backend.store.audit

    def _act(
        self,
        action: str,
        object: str,
        check: Callable[[], object],
        do: Callable[[], T],
        *,
        project: str = "",
    ) -> T:
        """Do something that changes records. check: raises Forbidden if the caller may not."""
        entry = entry_of(self._caller, self._origin, time.time(), action, object, project=project)
        with audited(self._log, lambda: entry, check):
            return do()

    def _administer(self, what: str) -> None:
        if Right.ADMINISTER not in self._caller.rights:
            raise Forbidden(f"{self._caller.user} may not {what}: only administrators may")

    def _shown(self) -> TokenRecord | None:
        """The token that the caller shows; None if it shows a key, which has no limits."""
        token_id = self._caller.token_id
        return self._accounts.token(token_id) if is_id(token_id) else None

    def close(self) -> None:
        self._backend.close()

    # Who

    def whoami(self) -> Identity:
        return Identity(
            user=self._caller.user,
            project=self._caller.project,
            rights=tuple(sorted(self._caller.rights)),
            projects=tuple(self._accounts.members(user=self._caller.user)),
            token=self._shown(),
        )

    # Users

    def users(self) -> list[UserRecord]:
        self._administer("list users")
        return self._accounts.users()

    def user(self, name: str) -> UserRecord:
        if name.lower() != self._caller.user.lower():
            self._administer("see other users")
        return self._accounts.user(name)

    def create_user(self, user: UserRecord) -> UserRecord:
        def do() -> UserRecord:
            check_name("user", user.name)
            check_text("display_name", user.display_name)
            _check_login(user)
            made = replace(user, created_at=time.time(), created_by=self._caller.user)
            self._accounts.create_user(made)
            return self._accounts.user(user.name)

        return self._act("users.create", user.name, lambda: self._administer("create users"), do)

    def change_user(self, name: str, change: UserChange) -> UserRecord:
        changes = {key: value for key, value in asdict(change).items() if value is not None}

        def do() -> UserRecord:
            before = self._accounts.user(name)
            after = replace(before, **changes)
            check_text("display_name", after.display_name)
            _check_login(after)
            return self._accounts.change_user(name, changes)

        changed = ", ".join(f"{key}={value}" for key, value in changes.items())
        object = f"{name} ({changed})" if changed else name
        return self._act("users.change", object, lambda: self._administer("change users"), do)

    # Projects

    def projects(self) -> list[ProjectRecord]:
        found = self._accounts.projects()
        if Right.ADMINISTER in self._caller.rights:
            return found
        own = {member.project for member in self._accounts.members(user=self._caller.user)}
        limit = None if (shown := self._shown()) is None else shown.project
        return [one for one in found if one.name in own and limit in (None, one.name)]

    def create_project(self, name: str, description: str = "") -> ProjectRecord:
        def do() -> ProjectRecord:
            check_name("project", name)
            check_text("description", description)
            project = ProjectRecord(name, time.time(), self._caller.user, description)
            self._accounts.create_project(project)
            return self._accounts.project(name)

        def check() -> None:
            self._administer("create projects")

        return self._act("projects.create", name, check, do, project=name)

    def change_project(self, name: str, description: str) -> ProjectRecord:
        def check() -> None:
            check_in_project(self._caller, name, Right.MANAGE, "change the project")

        def do() -> ProjectRecord:
            check_text("description", description)
            return self._accounts.change_project(name, description)

        return self._act("projects.change", name, check, do, project=name)

    def delete_project(self, name: str) -> None:
        self._act(
            "projects.delete",
            name,
            lambda: self._administer("delete projects"),
            lambda: self._accounts.delete_project(name),
            project=name,
        )

    def members(self, project: str) -> list[MemberRecord]:
        check_in_project(self._caller, project, Right.READ, "see members")
        return self._accounts.members(project=self._accounts.project(project).name)

    def set_member(self, project: str, user: str, role: Role) -> MemberRecord:
        def do() -> MemberRecord:
            self._accounts.set_member(MemberRecord(project, user, role))
            (made,) = self._accounts.members(project=project, user=user)
            return made

        return self._act(
            "members.set",
            f"{user} ({role})",
            lambda: check_role(self._caller, project, role, self._role(project, user)),
            do,
            project=project,
        )

    def remove_member(self, project: str, user: str) -> bool:
        def check() -> None:
            if user.lower() != self._caller.user.lower():
                check_role(self._caller, project, self._role(project, user))

        return self._act(
            "members.remove",
            user,
            check,
            lambda: self._accounts.remove_member(project, user),
            project=project,
        )

    def _role(self, project: str, user: str) -> Role | None:
        found = self._accounts.members(project=project, user=user)
        return found[0].role if found else None

    # Tokens

    def tokens(self, *, user: str | None = None, project: str | None = None) -> list[TokenRecord]:
        own = self._caller.user
        if project is not None:
            check_in_project(self._caller, project, Right.MANAGE, "list tokens")
        elif (user or own).lower() != own.lower():
            self._administer("list tokens of others")
        elif user is None and Right.ADMINISTER in self._caller.rights and not self._caller.token_id:
            return self._accounts.tokens()  # the user of the machine may have no account
        return self._accounts.tokens(user=user or (None if project else own), project=project)

    def create_token(
        self,
        name: str,
        *,
        user: str | None = None,
        project: str | None = None,
        scopes: Collection[Right] | None = None,
        expires_at: float | None = None,
    ) -> NewToken:
        owner, now = user or self._caller.user, time.time()
        text = new_token()
        record = TokenRecord(
            id=text.id,
            name=name,
            user=owner,
            created_at=now,
            created_by=self._caller.user,
            project=project,
            scopes=None if scopes is None else frozenset(scopes),
            expires_at=expires_at,
        )

        def check() -> None:
            try:
                account = self._accounts.user(owner)
            except NotFound:
                # the same answer as for a person who has an account
                nobody = UserRecord(owner, UserKind.PERSON, 0.0)
                check_others_token(self._caller, nobody, project, "create")
                if user is not None:
                    raise
                hint = f"add one: `muster users add {owner} --admin`; or name a user: --user"
                raise NotFound(Problem("", f"{owner} has no account here", hint)) from None
            roles = {one.project: one.role for one in self._accounts.members(user=owner)}
            check_new_token(self._caller, self._shown(), account, roles, record)

        def do() -> NewToken:
            check_text("name", name)
            account = self._accounts.user(owner)
            if account.disabled:
                raise InvalidInput(f"user {account.name} is disabled, and can use no token")
            if expires_at is not None and expires_at <= now:
                raise InvalidInput("the token would have expired already")
            self._accounts.create_token(record, text.digest())
            return NewToken(self._accounts.token(text.id), str(text))

        what = f"{text.id} ({name}, of {owner})"
        return self._act("tokens.create", what, check, do, project=project or "")

    def revoke_token(self, token_id: str) -> bool:
        def check() -> None:
            try:
                token = self._accounts.token(token_id)
                account = self._accounts.user(token.user)
                if token.user != self._caller.user:
                    check_others_token(self._caller, account, token.project, "revoke")
            except (NotFound, Forbidden):
                if Right.ADMINISTER not in self._caller.rights:  # the same words in both cases
                    raise Forbidden(
                        f"{self._caller.user} may not revoke a token {token_id}: there is none, or "
                        "it is of another user"
                    ) from None

        return self._act(
            "tokens.revoke",
            token_id,
            check,
            lambda: self._accounts.revoke_token(token_id, time.time()),
        )

    def oci(self) -> OciAccess:
        home = self._backend.home
        region = _text_of(home.oci_region).strip()
        return OciAccess(
            user=user_ocid(self._caller.user),
            tenancy=TENANCY,
            compartment=TENANCY
            if self._caller.project == DEFAULT_PROJECT
            else compartment_ocid(self._caller.project),
            region=region,
            services=OCI_SERVICES if region else (),
            ca=_text_of(home.oci_certificate / "ca.pem") if region else "",
        )

    # Keys

    def _own_or_administer(self, user: str, what: str) -> None:
        if user.lower() != self._caller.user.lower():
            self._administer(what)

    def keys(self, name: str) -> list[PublicKeyRecord]:
        self._own_or_administer(name, "see keys of others")
        if name != self._caller.user:  # the user of the machine may have no account
            self._accounts.user(name)  # raises NotFound
        return self._keys.listing(name)

    def add_key(self, name: str, pem: str, title: str = "") -> PublicKeyRecord:
        def check() -> None:
            self._own_or_administer(name, "add keys of others")
            if (shown := self._shown()) is not None and (shown.project or shown.scopes is not None):
                raise Forbidden(
                    f"the token {shown.id} is limited, and a key is not: use a token without limits"
                )

        def do() -> PublicKeyRecord:
            check_text("title", title)
            key, by = read_public_key(pem), self._caller.user
            owner = self._accounts.user(name).name
            given = (fingerprint_of(key), owner, title, normal_pem(key), time.time(), by)
            self._keys.insert(PublicKeyRecord(*given))
            return self._keys.get(given[0])

        return self._act("keys.add", name, check, do)

    def create_session(self, pem: str) -> NewSession:
        from muster.iam.session_tokens import LONGEST_SESSION
        from muster.service.sessions import session_tokens

        user, now, shown = self._caller.user, time.time(), self._shown()

        def check() -> None:
            if shown is not None and (shown.project is not None or shown.scopes is not None):
                text = "is limited, and a session is not: use a token without limits"
                raise Forbidden(f"the token {shown.id} {text}")

        def do() -> NewSession:
            until = now + LONGEST_SESSION
            if shown is not None and shown.expires_at is not None:
                until = min(until, shown.expires_at)
            sessions, token_id = (
                session_tokens(self._backend.home),
                "" if shown is None else shown.id,
            )
            token = sessions.issue(user, read_public_key(pem), now, until, token_id)
            return NewSession(token, sessions.verify(token, now).expires_at)

        return self._act("sessions.create", user, check, do)

    def delete_key(self, fingerprint: str) -> None:
        def check() -> None:
            owner = ""
            with suppress(NotFound):
                owner = self._keys.get(fingerprint).user
            if owner.lower() != self._caller.user.lower():  # the same words if there is none
                self._administer("delete keys of others")

        def do() -> None:
            self._keys.get(fingerprint)  # raises NotFound
            self._keys.delete(fingerprint)

        self._act("keys.delete", fingerprint, check, do)

    # Secrets

    def secrets(self) -> list[SecretRecord]:
        self._caller.require(Right.READ, "see secrets")
        return self._secrets.listing(self._caller.project)

    def set_secret(self, name: str, value: str) -> SecretRecord:
        from muster.service.stored_secrets import sealed_secret

        project = self._caller.project

        def do() -> SecretRecord:
            check_name("secret", name)
            sealed = sealed_secret(self._backend.home, name, value)
            by = self._caller.user
            return self._secrets.set(project, name, sealed, by=by, now=time.time())

        return self._act("secrets.set", name, self._may_set_secrets, do, project=project)

    def delete_secret(self, name: str) -> None:
        project = self._caller.project

        def do() -> None:
            if not self._secrets.delete(project, name):
                hint = "`muster secrets list` lists them"
                raise NotFound(Problem("", f"no secret {name!r} in project {project}", hint))

        self._act("secrets.delete", name, self._may_set_secrets, do, project=project)

    def _may_set_secrets(self) -> None:
        self._caller.require(Right.SET_SECRETS, "change secrets")

    # Audit log

    def audit(self, chosen: AuditFilter) -> list[AuditEntry]:
        if Right.ADMINISTER not in self._caller.rights:
            project = chosen.project or self._caller.project
            check_in_project(self._caller, project, Right.MANAGE, "read the audit log")
            chosen = replace(chosen, project=self._caller.project)
        limit = _PAGE if chosen.limit is None else min(chosen.limit, _LARGEST_PAGE)
        return self._log.listing(replace(chosen, limit=limit))

    def prune_audit(self, before: float) -> int:
        from muster.describe.times import time_text

        return self._act(
            "audit.prune",
            f"before {time_text(before)}",
            lambda: self._administer("delete entries of the audit log"),
            lambda: self._log.delete_before(before),
        )


def _text_of(file: Path) -> str:
    """The content of a file; "" if it is missing."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def _check_login(user: UserRecord) -> None:
    """Raises InvalidInput unless issuer and subject fit together, and to the kind of user."""
    if bool(user.issuer) != bool(user.subject):
        raise InvalidInput(Problem("", "issuer and subject belong together", "give both, or none"))
    if user.subject and user.kind == UserKind.SERVICE:
        text = f"{user.name} is a service account, and cannot log in"
        raise InvalidInput(Problem("", text, "leave out issuer and subject"))
    check_text("issuer", user.issuer)
    check_text("subject", user.subject)
