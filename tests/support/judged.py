"""Callers whose permissions a test sets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest

from muster.caller import Caller, Chooser, Variables
from muster.iam.principals import Principal
from muster.permissions import Decision, Permission

#: Whether a caller has a permission for a resource with these variables.
Judge = Callable[[Permission, Mapping[str, str]], bool]


class Judged:
    """An authority by what a judge says, in every project."""

    operation = ""

    def __init__(self, judge: Judge, *, by_variables: bool = False) -> None:
        """by_variables: the judge says it of each item of a list, and not of the whole."""
        self._judge, self._by_variables = judge, by_variables

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        """See `Authority.allows`."""
        return self._judge(permission, on)

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        """See `Authority.decide`."""
        return Decision(self._judge(permission, on))

    def chooser(self, permission: Permission, project: str) -> Chooser | None:
        """See `Authority.chooser`."""
        if not self._by_variables and not self._judge(permission, {}):
            return None
        return lambda on: self._judge(permission, on)

    def reaches(self, project: str) -> bool:
        """See `Authority.reaches`."""
        return True


def only(permissions: Collection[Permission], wanted: Mapping[str, str] = {}) -> Judge:
    """Gives some permissions, and only for resources that have these variables."""

    def judge(permission: Permission, on: Mapping[str, str]) -> bool:
        return permission in permissions and wanted.items() <= on.items()

    return judge


def judge_signers(patch: pytest.MonkeyPatch, judge: Judge, *, by_variables: bool = False) -> None:
    """Have whoever signs a request to the OCI API have what a judge says. by_variables: see
    `Judged`."""

    def caller(self: Principal, project: str) -> Caller:
        return Caller(self.user, project, Judged(judge, by_variables=by_variables), self.credential)

    patch.setattr(Principal, "caller", caller)
