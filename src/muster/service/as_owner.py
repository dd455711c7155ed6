"""Do what concerns one run with the rights of its owner's Unix account, if it has one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import Any

from muster.storage.home import RunDir
from muster.storage.owners import account_of_run
from muster.unix_account import UnixAccount, acting_as


def as_owner(folder: RunDir, call: Callable[[], Any]) -> Any:
    """Call a function, and return what it returns; with a generator, each of its steps is done as
    the owner. folder: of the run."""
    account = account_of_run(folder)
    if account is None:
        return call()
    with acting_as(account):
        result = call()
    if isinstance(result, Generator):
        return _steps(result, account)
    if isinstance(result, AsyncGenerator):
        return _async_steps(result, account)
    return result


def _steps(given: Generator[Any], account: UnixAccount) -> Generator[Any]:
    with closing(given):
        while True:
            with acting_as(account):
                try:
                    item = next(given)
                except StopIteration:
                    return
            yield item


async def _async_steps(given: AsyncGenerator[Any], account: UnixAccount) -> AsyncGenerator[Any]:
    async with aclosing(given):
        while True:
            try:
                item = await _AsOwner(given.__anext__(), account)
            except StopAsyncIteration:
                return
            yield item


class _AsOwner:
    """Awaits something as the owner, and leaves other tasks of the thread as they are."""

    def __init__(self, given: Any, account: UnixAccount) -> None:
        self._given, self._account = given, account

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._given.__await__()
        sent: Any = None
        failure: BaseException | None = None
        while True:
            with acting_as(self._account):
                try:
                    waits_for = steps.send(sent) if failure is None else steps.throw(failure)
                except StopIteration as done:
                    return done.value
            sent, failure = None, None
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001  the awaited one handles it
                failure = error
