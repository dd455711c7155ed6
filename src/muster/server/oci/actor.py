"""Who acts in the OCI API: a client by its request, or a schedule or a rule in the name of its
creator."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from muster.caller import NO_VARIABLES, Caller, Chooser, Only, Variables, never
from muster.errors import Forbidden, NotFound, Problem
from muster.iam.principals import Principal, operation_name
from muster.iam.resources import ocid_of
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Decision, Permission, StatementRef
from muster.server.oci.compartments import is_below
from muster.server.oci.errors import OciError
from muster.service.audit import Origin, audited, entry_of, note_read, refused
from muster.store.resource_records import LOG_GROUP, ResourceRecord

if TYPE_CHECKING:
    from muster.plan.model import MountPlan
    from muster.server.state import ServerState
    from muster.service.accounts import EmbeddedAccounts
    from muster.service.embedded import EmbeddedAPI
    from muster.store.account_records import AuditEntry
    from muster.store.base import Store

T = TypeVar("T")


class Actor:
    """See the module."""

    def __init__(self, state: ServerState, origin: Origin) -> None:
        #: The server.
        self.state = state
        self.compartments = state.compartments
        #: Where it comes from, for the audit log.
        self.origin = origin
        #: The operation, such as `list_jobs`; "" if no client asks.
        self.operation = ""
        #: Whether what the caller may do was asked for.
        self.has_asked = False
        #: What has allowed what was asked for, for the audit log.
        self._statements: dict[Permission, StatementRef | None] = {}
        self._principal: Principal | None = None
        #: The OCIDs of log groups by their ids.
        self._groups: dict[str, str | None] = {}

    @abstractmethod
    def creation(self, kind: str) -> tuple[str, str]:
        """The id of a resource of a kind that is created, the same one if that is repeated, and the
        digest of what is asked for."""

    @property
    def store(self) -> Store:
        """The records."""
        return self.state.backend.store

    @property
    def principal(self) -> Principal:
        """Who acts; set before a handler is called, except for routes that need no signature."""
        assert self._principal is not None
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    def project_of(self, compartment: str) -> str:
        """The project that is a compartment. Raises NotFound if there is none: its text is for the
        server's log, as clients are told the same of compartments that are not theirs."""
        project = self.compartments.project(compartment)
        if project is None:
            raise NotFound(
                Problem(
                    "",
                    f"no project is the compartment {compartment[:200]!r}",
                    "name its project in server.toml, in the section [oci.compartments]",
                )
            )
        return project

    def project_with(
        self, compartment: str, permission: Permission, on: Variables = NO_VARIABLES
    ) -> str:
        """The project that is a compartment, if the caller has a permission there. Raises as
        `project_of` and `require`."""
        project = self.project_of(compartment)
        self.require(project, permission, on)
        return project

    def answer_everybody(self) -> None:
        """Note that everybody who signs a request may have the answer."""
        self.has_asked = True

    def caller(self, project: str) -> Caller:
        """The caller in a project."""
        self.has_asked = True
        return self.principal.caller(project)

    def allows(self, project: str, permission: Permission, on: Variables = NO_VARIABLES) -> bool:
        """Whether the caller has a permission in a project. on: see `Caller.require`."""
        return self.caller(project).allows(permission, on)

    def require(self, project: str, permission: Permission, on: Variables = NO_VARIABLES) -> None:
        """Raises Forbidden unless the caller has a permission in a project: clients are told the
        same as of what does not exist. on: see `Caller.require`."""
        self.require_of(self.caller(project), permission, on)

    def require_of(self, caller: Caller, permission: Permission, on: Variables) -> None:
        """As `require`, of a caller, such as who has made a link."""
        try:
            decision = caller.require(permission, self._what(), on)
        except Forbidden as error:
            self._note_refusal(caller, error)
            raise
        self._note(caller, decision)

    def require_user(self, project: str, what: str, creator: str = "") -> None:
        """Raises OciError unless a user asks, and not one of the user's runs or hosts, for what
        will act in the name of that user: whatever the policies say, a run gets no authority that
        is not its own, and outlives it. what: continues "may not". creator: the user in whose name
        it will act; "": who asks."""
        principal = self.principal
        user = creator or principal.user
        if principal.is_user(user):
            return
        who = f"{principal.acting} of {principal.user}" if principal.acting else principal.user
        text = f"{who} may not {what}: it acts in the name of {user}, so only {user} may do that"
        self._note_refusal(self.caller(project), Forbidden(text))
        raise OciError(403, "NotAllowed", f"{text}.")

    def _what(self) -> str:
        """What is refused, for the logs. Continues "may not"."""
        return f"call {operation_name(self.operation)}" if self.operation else "start a job run"

    def _note(self, caller: Caller, decision: Decision) -> None:
        """Record what was allowed, as `ReadLog` says."""
        if decision.permission is not None:
            self._statements[decision.permission] = decision.statement
            note_read(self.store.audit, self._entry(caller), decision, self.state.backend.reads)

    def _note_refusal(self, caller: Caller, error: Forbidden) -> None:
        """Record what was refused."""
        self.store.audit.append(refused(self._entry(caller), error))

    def _entry(self, caller: Caller) -> AuditEntry:
        action = f"oci.{self.operation}" if self.operation else "oci.read"
        return entry_of(caller, self.origin, time.time(), action, project=caller.project)

    def group_of(self, log: ResourceRecord) -> str | None:
        """The OCID of the log group of a log; None if it was deleted meanwhile. It is read once for
        all logs of a group."""
        if log.parent not in self._groups:
            self._groups[log.parent] = None
            with suppress(NotFound):
                group = self.store.resources.get(LOG_GROUP, log.parent)
                self._groups[log.parent] = ocid_of(group)
        return self._groups[log.parent]

    # Lists

    def chooser(self, project: str, permission: Permission) -> Chooser | None:
        """Which resources of a project the caller sees; None if it sees none at all."""
        found = self.caller(project).chooser(permission)
        return None if found is never else found

    def seen(self, project: str, permission: Permission) -> Chooser:
        """As `chooser`. Raises Forbidden if the caller sees none at all: OCI does not answer with
        an empty list then."""
        return self.seen_by(self.caller(project), permission)

    def seen_by(self, caller: Caller, permission: Permission) -> Chooser:
        """As `seen`, of a caller, such as who has made a link."""
        try:
            decision = caller.require_some(permission, self._what())
        except Forbidden as error:
            self._note_refusal(caller, error)
            raise
        # some, by a condition: each of several statements may be about some of them
        self._note(caller, decision or Decision(True, permission=permission))
        return caller.chooser(permission)

    def below(self, project: str, permission: Permission) -> Iterator[tuple[str, Chooser]]:
        """The projects that are compartments below one, at any depth, of those in which the caller
        sees something with a permission."""
        projects = self.store.accounts.projects()
        parents = {one.name: one.parent or DEFAULT_PROJECT for one in projects}
        for one in projects:
            if is_below(one.name, project, parents):
                sees = self.chooser(one.name, permission)
                if sees is not None:
                    yield one.name, sees

    def visible(self, permission: Permission) -> Iterator[tuple[str, Chooser]]:
        """All projects in which the caller sees something with a permission."""
        if (sees := self.chooser(DEFAULT_PROJECT, permission)) is not None:
            yield DEFAULT_PROJECT, sees
        yield from self.below(DEFAULT_PROJECT, permission)

    def act(
        self,
        project: str,
        permission: Permission,
        action: str,
        object: str,
        do: Callable[[], T],
        on: Variables = NO_VARIABLES,
    ) -> T:
        """Do something that changes records, if the caller has a permission in a project, and
        record it in the audit log. action, object: as in `AuditEntry`. on: see `Caller.require`."""
        caller = self.caller(project)

        def check() -> Decision:
            decision = caller.require(permission, self._what(), on)
            self._statements[permission] = decision.statement
            return decision

        def entry() -> Any:
            return entry_of(*(caller, self.origin, time.time(), action, object), project=project)

        with audited(self.store.audit, entry, check):
            return do()

    def accounts(self, project: str) -> EmbeddedAccounts:
        """Users, keys and secrets, for the caller in a project."""
        from muster.service.accounts import EmbeddedAccounts

        return EmbeddedAccounts(self.state.backend, self.caller(project), self.origin)

    def allowed_api(self, project: str, *permissions: Permission) -> EmbeddedAPI:
        """Muster in a project, for what the caller was allowed to do there with these permissions
        by what is known of a resource: Muster's own API knows other names of it."""
        statement = next(filter(None, map(self._statements.get, permissions)), None)
        allowed = Only(*permissions, statement=statement)
        caller = replace(self.caller(project), authority=allowed)
        return self.state.api(caller, self.origin, {}, may_start=False)

    def api(
        self,
        project: str,
        *,
        created_id: str | None = None,
        oci_names: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        python: str | None = None,
        inputs: tuple[MountPlan, ...] = (),
    ) -> EmbeddedAPI:
        """Muster for the caller in a project. created_id, oci_names, inputs: see `Submission`.
        python: of the nodes; None: that of the server's settings."""
        caller = self.caller(project)
        return self.state.api(
            *(caller, self.origin, environ or {}, created_id),
            may_start=created_id is not None,
            oci_names=oci_names,
            inputs=inputs,
            python=python,
        )
