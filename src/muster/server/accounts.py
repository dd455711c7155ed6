"""Answer the operations of `AccountsAPI` (`api.account_operations`)."""

from __future__ import annotations

from typing import Any

from muster.api.account_operations import ACCOUNT_OPERATIONS
from muster.api.accounts import AccountsAPI
from muster.api.operations import Operation
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.server.parameters import Parameters
from muster.service.accounts import EmbeddedAccounts


class AccountHandler:
    """Answers one operation: calls the method with its parameters, for the caller."""

    def __init__(self, name: str, operation: Operation) -> None:
        self.name = name
        self.operation = operation
        self.parameters = Parameters(operation, getattr(AccountsAPI, name))

    async def __call__(self, call: Call) -> Answer:
        body = b"" if self.parameters.body is None else await call.body()
        given = self.parameters.read(call.path, call.query, body)
        accounts = EmbeddedAccounts(call.state.backend, call.caller, call.origin)
        return Answer(await call.state.in_thread(self._answer, accounts, given))

    def _answer(self, accounts: EmbeddedAccounts, given: dict[str, Any]) -> bytes:
        return encoded(getattr(accounts, self.name)(**given))


def account_handlers() -> dict[str, AccountHandler]:
    """Method of `AccountsAPI` -> its handler."""
    return {name: AccountHandler(name, one) for name, one in ACCOUNT_OPERATIONS.items()}
