"""`AccountsAPI` in this process: checks who calls, records what is done, and does it."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import asdict, replace

from muster.api.accounts import Identity, NewSession, NewToken, OciAccess, UserChange
from muster.caller import EVERYTHING, NO_VARIABLES, Role
from muster.errors import Forbidden, InvalidInput, NotFound, Problem
from muster.iam.authority import authority_of_user
from muster.iam.grants import check_acts_as, check_new_token, check_others_token, check_role
from muster.iam.names import check_name, check_text
from muster.iam.public_keys import fingerprint_of, normal_pem, read_public_key
from muster.iam.resources import variables_of_secret, variables_of_user
from muster.iam.tokens import new_token
from muster.identity import DEFAULT_PROJECT, is_id
from muster.permissions import Decision, Permission, Right
from muster.service.recorded_calls import RecordedCalls
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
    from muster.service.policies import EmbeddedPolicies
    from muster.store.protocols.accounts import Accounts
    from muster.store.protocols.audit import Audit
    from muster.store.protocols.keys import Keys
    from muster.store.protocols.secrets import Secrets

T = TypeVar("T")

#: Entries of the audit log in one answer: by default, and at most.
_PAGE, _LARGEST_PAGE = 1_000, 10_000


class EmbeddedAccounts(RecordedCalls):
    """See `AccountsAPI`, which documents the methods. Threads may share an object."""

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

    def _administer(self, permission: Permission, what: str, user: str | None = None) -> Decision:
        """Raises NotPermitted unless the caller has a permission in the tenancy. user: whom it is
        about."""
        on = NO_VARIABLES if user is None else variables_of_user(user)
        return self._caller.require(permission, what, on, project=DEFAULT_PROJECT)

    def _check(
        self,
        permission: Permission,
        what: str,
        project: str = DEFAULT_PROJECT,
        user: str | None = None,
    ) -> None:
        """Raises NotPermitted unless the caller has a permission in a project, to read. user: whom
        it is about."""
        on = NO_VARIABLES if user is None else variables_of_user(user)
        self._read(project, permission, what, on)

    def _shown(self) -> TokenRecord | None:
        """The token that the caller shows; None if it shows a key, which has no limits."""
        token_id = self._caller.token_id
        return self._accounts.token(token_id) if is_id(token_id) else None

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
        self._check(Permission.USER_INSPECT, "list users")
        return self._accounts.users()

    def user(self, name: str) -> UserRecord:
        if name.lower() != self._caller.user.lower():
            self._check(Permission.USER_READ, "see other users", user=name)
        return self._accounts.user(name)

    def create_user(self, user: UserRecord) -> UserRecord:
        def do() -> UserRecord:
            check_name("user", user.name)
            check_text("display_name", user.display_name)
            _check_login(user)
            made = replace(user, created_at=time.time(), created_by=self._caller.user)
            self._accounts.create_user(made)
            return self._accounts.user(user.name)

        def check() -> Decision:
            if user.admin:
                self._administer(Permission.SERVER_MANAGE, "create administrators")
            return self._administer(Permission.USER_CREATE, "create users")

        return self._act("users.create", user.name, check, do)

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

        def check() -> Decision:
            if change.admin is not None or self._is_administrator(name):
                self._administer(Permission.SERVER_MANAGE, "change administrators")
            decision = self._administer(Permission.USER_UPDATE, "change users", name)
            if change.issuer is not None or change.subject is not None:
                self._check_acts_as(name, "change logins")
            return decision

        return self._act("users.change", object, check, do)

    def _check_acts_as(self, name: str, what: str) -> None:
        """Raises Forbidden if the caller could do more by acting as another user."""
        if name.lower() == self._caller.user.lower() or self._caller.authority is EVERYTHING:
            return
        with suppress(NotFound):
            user = self._accounts.user(name)
            authority = authority_of_user(self._backend.policies, user.name)
            projects = [one.name for one in self._accounts.projects()]
            check_acts_as(self._caller, user, authority, projects, what)

    def _is_administrator(self, name: str) -> bool:
        with suppress(NotFound):
            return self._accounts.user(name).admin
        return False

    # Projects

    def projects(self) -> list[ProjectRecord]:
        found = self._accounts.projects()
        limit = self._caller.project if self._caller.only_here else None
        reaches = self._caller.authority.reaches
        return [one for one in found if limit in (None, one.name) and reaches(one.name)]

    @property
    def _compartments(self) -> EmbeddedPolicies:
        """Where projects are created and deleted: they are the compartments."""
        from muster.service.policies import EmbeddedPolicies

        return EmbeddedPolicies(self._backend, self._caller, self._origin)

    def create_project(self, name: str, description: str = "") -> ProjectRecord:
        return self._compartments.create_compartment(name, description=description)

    def change_project(self, name: str, description: str) -> ProjectRecord:
        def check() -> Decision:
            return self._caller.require(
                Permission.COMPARTMENT_UPDATE, "change the project", project=name
            )

        def do() -> ProjectRecord:
            check_text("description", description)
            return self._accounts.change_project(name, description)

        return self._act("projects.change", name, check, do, project=name)

    def delete_project(self, name: str) -> None:
        self._compartments.delete_compartment(name)

    def members(self, project: str) -> list[MemberRecord]:
        self._check(Permission.MEMBER_INSPECT, "see members", project)
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
            self._check(Permission.TOKEN_INSPECT, "list tokens", project)
        elif (user or own).lower() != own.lower():
            self._check(Permission.USER_READ, "list tokens of others")
        elif user is None and self._caller.authority is EVERYTHING:
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
            authority = authority_of_user(self._backend.policies, account.name)
            projects = [one.name for one in self._accounts.projects()]
            check_new_token(self._caller, self._shown(), account, authority, record, projects)

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
                # the same words in both cases
                if not self._caller.allows(Permission.USER_UPDATE, project=DEFAULT_PROJECT):
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
            compartment=compartment_ocid(self._caller.project),
            region=region,
            services=OCI_SERVICES if region else (),
            ca=_text_of(home.oci_certificate / "ca.pem") if region else "",
        )

    # Keys

    def _own_or_administer(self, user: str, permission: Permission, what: str) -> None:
        if user.lower() != self._caller.user.lower():
            self._administer(permission, what, user)

    def keys(self, name: str) -> list[PublicKeyRecord]:
        if name.lower() != self._caller.user.lower():
            self._check(Permission.USER_READ, "see keys of others", user=name)
        if name != self._caller.user:  # the user of the machine may have no account
            self._accounts.user(name)  # raises NotFound
        return self._keys.listing(name)

    def add_key(self, name: str, pem: str, title: str = "") -> PublicKeyRecord:
        def check() -> None:
            self._own_or_administer(name, Permission.USER_UPDATE, "add keys of others")
            self._check_acts_as(name, "add keys")
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
                self._administer(Permission.USER_UPDATE, "delete keys of others")

        def do() -> None:
            self._keys.get(fingerprint)  # raises NotFound
            self._keys.delete(fingerprint)

        self._act("keys.delete", fingerprint, check, do)

    # Secrets

    def secrets(self) -> list[SecretRecord]:
        self._check(Permission.SECRET_INSPECT, "see secrets", self._caller.project)
        return self._secrets.listing(self._caller.project)

    def set_secret(self, name: str, value: str) -> SecretRecord:
        from muster.service.stored_secrets import sealed_secret

        project = self._caller.project

        def do() -> SecretRecord:
            check_name("secret", name)
            sealed = sealed_secret(self._backend.home, name, value)
            by = self._caller.user
            return self._secrets.set(project, name, sealed, by=by, now=time.time())

        def check() -> Decision:
            is_known = any(one.name == name for one in self._secrets.listing(project))
            permission = Permission.SECRET_UPDATE if is_known else Permission.SECRET_CREATE
            on = variables_of_secret(project, name)
            return self._caller.require(permission, "change secrets", on)

        return self._act("secrets.set", name, check, do, project=project)

    def delete_secret(self, name: str) -> None:
        project = self._caller.project

        def do() -> None:
            if not self._secrets.delete(project, name):
                hint = "`muster secrets list` lists them"
                raise NotFound(Problem("", f"no secret {name!r} in project {project}", hint))

        def check() -> Decision:
            on = variables_of_secret(project, name)
            return self._caller.require(Permission.SECRET_DELETE, "delete secrets", on)

        self._act("secrets.delete", name, check, do, project=project)

    # Audit log

    def audit(self, chosen: AuditFilter) -> list[AuditEntry]:
        if not self._caller.allows(Permission.SERVER_MANAGE, project=DEFAULT_PROJECT):
            project = chosen.project or self._caller.project
            self._check(Permission.AUDIT_READ, "read the audit log", project)
            chosen = replace(chosen, project=project)
        limit = _PAGE if chosen.limit is None else min(chosen.limit, _LARGEST_PAGE)
        return self._log.listing(replace(chosen, limit=limit))

    def prune_audit(self, before: float) -> int:
        from muster.describe.times import time_text

        return self._act(
            "audit.prune",
            f"before {time_text(before)}",
            lambda: self._administer(Permission.SERVER_MANAGE, "delete entries of the audit log"),
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
