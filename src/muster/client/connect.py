"""Where a client's Muster is: in this process, or behind a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from muster.client.contexts import current_address
from muster.storage.home import Home, default_home

if TYPE_CHECKING:
    from muster.api.accounts import AccountsAPI
    from muster.api.interface import MusterAPI
    from muster.api.policies import PoliciesAPI
    from muster.control.launcher import Launcher
    from muster.submission import Submission


def connect(
    home: str | Path | None,
    launcher: Launcher | None,
    submission: Submission | None = None,
) -> MusterAPI:
    """Muster with this MUSTER_HOME. home: None for the server of the current context or, without
    one, that of the environment. launcher: starts its supervisors; None to start one when it is
    needed. submission: what runs start from; None for what this process has at each request."""
    address = None if home else current_address()
    if address is not None:
        from muster.client.http.api import HttpAPI

        return HttpAPI(address)
    from muster.service.embedded import EmbeddedAPI

    root = Home(Path(home).absolute()) if home else None
    return EmbeddedAPI(root, launcher, submission=submission)


def connect_accounts(project: str | None = None) -> AccountsAPI:
    """The accounts of the server of the current context or, without one, of this machine. project:
    None for the default one."""
    address = current_address()
    if address is not None:
        from msgspec.structs import replace

        from muster.client.http.accounts import HttpAccounts

        return HttpAccounts(address if project is None else replace(address, project=project))
    from muster.caller import Caller
    from muster.identity import DEFAULT_PROJECT, user_name
    from muster.service.accounts import EmbeddedAccounts
    from muster.service.backend import Backend

    caller = Caller(user_name(), project or DEFAULT_PROJECT)
    return EmbeddedAccounts(Backend(default_home()), caller)


def connect_policies(project: str | None = None) -> PoliciesAPI:
    """The policies of the server of the current context or, without one, of this machine. project:
    see `connect_accounts`."""
    address = current_address()
    if address is not None:
        from msgspec.structs import replace

        from muster.client.http.policies import HttpPolicies

        return HttpPolicies(address if project is None else replace(address, project=project))
    from muster.caller import Caller
    from muster.identity import DEFAULT_PROJECT, user_name
    from muster.service.backend import Backend
    from muster.service.policies import EmbeddedPolicies

    caller = Caller(user_name(), project or DEFAULT_PROJECT)
    return EmbeddedPolicies(Backend(default_home()), caller)


def place_of(home: str | Path | None) -> str:
    """What identifies the Muster of `connect` in this process."""
    if home:
        return str(Path(home).absolute())
    address = current_address()
    if address is None:
        return str(default_home().root)
    return f"{address.url} {address.project or ''} {address.token}"
