"""Who acts in the OCI API: a client by its request, or a schedule in the name of its creator."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from muster.caller import Caller, Right
from muster.errors import NotFound, Problem
from muster.iam.principals import Principal
from muster.identity import DEFAULT_PROJECT
from muster.server.oci.errors import not_found
from muster.service.audit import Origin, audited, entry_of

if TYPE_CHECKING:
    from muster.server.state import ServerState
    from muster.service.embedded import EmbeddedAPI
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
        self._principal: Principal | None = None

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

    def project_with(self, compartment: str, right: Right) -> str:
        """The project that is a compartment, if the caller has a right there. Raises as
        `project_of` and `require`."""
        project = self.project_of(compartment)
        self.require(project, right)
        return project

    def below(self, project: str) -> list[str]:
        """The projects that are compartments below one, of those that the caller may see: all
        others are below the default one."""
        if project != DEFAULT_PROJECT:
            return []
        names = [one.name for one in self.store.accounts.projects()]
        return [name for name in names if name != project and self.principal.sees(name)]

    def visible(self) -> list[str]:
        """All projects that the caller may see."""
        own = [DEFAULT_PROJECT] if self.principal.sees(DEFAULT_PROJECT) else []
        return [*own, *self.below(DEFAULT_PROJECT)]

    def caller(self, project: str) -> Caller:
        """The caller in a project."""
        return self.principal.caller(project)

    def require(self, project: str, right: Right) -> Caller:
        """The caller in a project. Raises OciError unless it has a right there: the same as for
        what does not exist."""
        caller = self.caller(project)
        if right not in caller.rights:
            raise not_found()
        return caller

    def act(
        self,
        project: str,
        right: Right,
        action: str,
        object: str,
        do: Callable[[], T],
    ) -> T:
        """Do something that changes records, if the caller has a right in a project, and record it
        in the audit log. action, object: as in `AuditEntry`."""
        caller = self.caller(project)

        def check() -> None:
            caller.require(right, f"do {action}")

        def entry() -> Any:
            return entry_of(*(caller, self.origin, time.time(), action, object), project=project)

        with audited(self.store.audit, entry, check):
            return do()

    def api_elsewhere(self, project: str, other: str) -> EmbeddedAPI:
        """Muster in another project, with the rights that the caller has in this one."""
        caller = replace(self.caller(project), project=other)
        return self.state.api(caller, self.origin, {}, may_start=False)

    def api(
        self,
        project: str,
        *,
        created_id: str | None = None,
        oci_names: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        python: str | None = None,
    ) -> EmbeddedAPI:
        """Muster for the caller in a project. created_id, oci_names: see `Submission`. python: of
        the nodes; None: that of the server's settings."""
        caller = self.caller(project)
        return self.state.api(
            *(caller, self.origin, environ or {}, created_id),
            may_start=created_id is not None,
            oci_names=oci_names,
            python=python,
        )
