"""Answer the operations of `AccountsAPI` and of `PoliciesAPI` (`api.account_operations`,
`api.policy_operations`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muster.api.account_operations import ACCOUNT_OPERATIONS
from muster.api.accounts import AccountsAPI
from muster.api.operations import Operation
from muster.api.policies import PoliciesAPI
from muster.api.policy_operations import POLICY_OPERATIONS
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.server.parameters import Parameters
from muster.service.accounts import EmbeddedAccounts
from muster.service.policies import EmbeddedPolicies


class AccountHandler:
    """Answers one operation: calls the method with its parameters, for the caller."""

    def __init__(
        self,
        name: str,
        operation: Operation,
        interface: type[AccountsAPI] | type[PoliciesAPI],
        implementation: type[EmbeddedAccounts] | type[EmbeddedPolicies],
    ) -> None:
        self.name = name
        self.operation = operation
        self.parameters = Parameters(operation, getattr(interface, name))
        self._implementation = implementation

    async def __call__(self, call: Call) -> Answer:
        body = b"" if self.parameters.body is None else await call.body()
        given = self.parameters.read(call.path, call.query, body)
        api = self._implementation(call.state.backend, call.caller, call.origin)
        return Answer(await call.state.in_thread(self._answer, api, given))

    def _answer(self, api: EmbeddedAccounts | EmbeddedPolicies, given: dict[str, Any]) -> bytes:
        return encoded(getattr(api, self.name)(**given))


def account_handlers() -> Iterator[AccountHandler]:
    """The handler of each operation."""
    for name, one in ACCOUNT_OPERATIONS.items():
        yield AccountHandler(name, one, AccountsAPI, EmbeddedAccounts)
    for name, one in POLICY_OPERATIONS.items():
        yield AccountHandler(name, one, PoliciesAPI, EmbeddedPolicies)
