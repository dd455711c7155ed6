"""How users, policies and what else decisions depend on are read and changed: by whom is checked,
and recorded in the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from muster.caller import NO_VARIABLES, Caller, Variables, local_caller
from muster.permissions import Decision, Permission
from muster.service.audit import Origin, audited, audited_read, entry_of
from muster.service.backend import Backend

T = TypeVar("T")


class RecordedCalls:
    """What `EmbeddedAccounts` and `EmbeddedPolicies` have in common."""

    def __init__(
        self, backend: Backend, caller: Caller | None = None, origin: Origin | None = None
    ) -> None:
        """caller: default: the user of this process. origin: of the request; default: this
        machine."""
        self._backend = backend
        self._caller = caller or local_caller()
        self._origin = origin or Origin()

    def close(self) -> None:
        """See `AccountsAPI.close`."""
        self._backend.close()

    def _read(
        self, project: str, permission: Permission, what: str, on: Variables = NO_VARIABLES
    ) -> None:
        """Raises NotPermitted unless the caller has a permission in a project, to read. what:
        continues "may not"."""
        audited_read(
            self._backend.store.audit,
            lambda: entry_of(
                *(self._caller, self._origin, time.time(), "api.read", what), project=project
            ),
            lambda: self._caller.require(permission, what, on, project=project),
            self._backend.reads,
        )

    def _act(
        self,
        action: str,
        object: str,
        check: Callable[[], Decision | None],
        do: Callable[[], T],
        *,
        project: str = "",
    ) -> T:
        """Do something that changes records: it decides the next request. check: raises Forbidden
        if the caller may not."""
        entry = entry_of(self._caller, self._origin, time.time(), action, object, project=project)
        with audited(self._backend.store.audit, lambda: entry, check):
            made = do()
        self._backend.policies_changed()
        return made
