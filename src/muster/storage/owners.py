"""The Unix accounts of owners: on a server that runs as root, each owner's runs have one.

    MUSTER_HOME/owners/accounts.json   who has which; only root can read and write it
    MUSTER_HOME/owners/NUMBER          the owner's folder: what the owner's runs share
    MUSTER_HOME/owners/NUMBER/home     HOME of an account without an entry in /etc/passwd

Each owner has a number from a range that is reserved for Muster, once and for ever. It is a group
that only the owner's processes are in and, unless the administrator has named a Unix user for the
owner, the user and group ids of the account.

A run belongs to the owner whose number is the group of its folder: only root can change that.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.file_locks import flock
from muster.node.files import ensure_fifo, read_regular, replace_file
from muster.storage.home import Home, RunDir
from muster.unix_account import UnixAccount, acting_as, as_root

#: The first number, and how many there are. systemd-nspawn and others use lower numbers.
FIRST, COUNT = 2_000_000_000, 100_000_000
#: What else helps if accounts cannot reach something.
_WITHOUT = "or, on a server for one user, set separate_owners = false in server.toml"
_PYTHON_HINT = f"install Python and Muster where every user can read them, as in /opt, {_WITHOUT}"


class Owner(Struct, frozen=True):
    """One line of the table."""

    #: The user of Muster.
    name: str
    number: int
    #: The Unix user that the administrator has named; None for an account without one.
    login: str | None = None


class _Table(Struct, frozen=True):
    owners: tuple[Owner, ...] = ()


def account_of(home: Home, name: str, login: str | None = None) -> UnixAccount:
    """The account of an owner, who gets one at the first call.

    login: the Unix user that the administrator has named for the owner. Raises InvalidInput if
    there is no such user, it cannot be the owner's, or the owner has another account already.
    """
    with _locked(home):
        table = _read(home)
        found = next((owner for owner in table.owners if owner.name == name), None)
        if found is None:
            found = Owner(name, FIRST + len(table.owners), login)
            _check_new(found, table)
            _make_folders(home, found)
            _check_reachable(home, found)
            data = msgspec.json.encode(_Table((*table.owners, found)))
            replace_file(_file(home), data, 0o600)
    if found.login != login:
        text = f"{name} has run as {_shown(found.login)} before, and cannot run as {_shown(login)}"
        hint = "their files belong to the former; use that, or another name for the owner"
        raise InvalidInput(Problem(f"accounts.{name}", text, hint))
    return _account(home, found)


def account_of_run(folder: RunDir) -> UnixAccount | None:
    """The account of a run, by its folder; None if it has none. Raises InvalidInput if the account
    is one of another MUSTER_HOME, or its Unix user has been deleted."""
    if os.geteuid() != 0:
        return None
    try:
        number = os.lstat(folder.path).st_gid
    except FileNotFoundError:
        return None
    if not FIRST <= number < FIRST + COUNT:
        return None
    with as_root():
        found = next((one for one in _read(folder.home).owners if one.number == number), None)
    if found is None:
        text = f"{folder.path} belongs to group {number}, which is no owner's"
        raise InvalidInput(Problem(str(_file(folder.home)), text, "restore the file"))
    return _account(folder.home, found)


def owner_home(home: Home, account: UnixAccount | None) -> Home:
    """What the runs of an owner share, laid out as MUSTER_HOME is; that itself without accounts.

    Environments are among it: installing one runs code that the owner has chosen, and another
    owner's programs must not run what came of it.
    """
    return home if account is None else Home(_folder(home, _number_of(account)))


class Shared(NamedTuple):
    """What runs share: those of an owner, or of all without accounts."""

    #: Laid out as MUSTER_HOME is.
    home: Home
    #: To act as, since the owner can put links in it; None: it is of the user of this process.
    account: UnixAccount | None


def shared_by_runs(home: Home) -> list[Shared]:
    """What runs of this MUSTER_HOME share: without accounts, and of each owner whose Unix user
    exists."""
    found = [Shared(home, None)]
    if os.geteuid() != 0:
        return found
    with as_root():
        owners = _read(home).owners
    for owner in owners:
        with suppress(InvalidInput):
            found.append(Shared(Home(_folder(home, owner.number)), _account(home, owner)))
    return found


@as_root()
def prepare_run_folder(folder: RunDir, account: UnixAccount | None) -> None:
    """Make the folder of a run, if it is missing.

    That of an account is like /tmp for the account alone: its programs can create files, and cannot
    remove, replace or change those of Muster, which are all created here.
    """
    folder.path.mkdir(parents=True, mode=0o700, exist_ok=True)
    if account is None:
        return
    for path in (folder.lock, folder.environ, folder.event_notification, folder.supervisor_log):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for path in (folder.wakeup, folder.liveness_pipe):
        ensure_fifo(path)
    os.chown(folder.path, 0, _number_of(account))
    os.chmod(folder.path, 0o1770)


def _open_to_accounts(home: Home) -> None:
    """Let accounts pass through MUSTER_HOME to what is theirs; they can list nothing."""
    for folder in (home.root, home.runs, home.owners):
        folder.mkdir(mode=0o711, exist_ok=True)
        folder.chmod(0o711)


def _number_of(account: UnixAccount) -> int:
    return next(group for group in account.groups if FIRST <= group < FIRST + COUNT)


def _shown(login: str | None) -> str:
    return "an account of Muster's" if login is None else f"the Unix user {login}"


def _check_new(owner: Owner, table: _Table) -> None:
    """Raises InvalidInput if the owner's processes would not be kept apart from those of others."""
    path = f"accounts.{owner.name}"
    if len(table.owners) >= COUNT:
        raise InvalidInput(Problem(path, "all numbers for accounts are taken"))
    if owner.login is None:
        return
    uid = _entry_of(owner).uid
    if uid == 0:
        text = f"{owner.login} is root, who can read everybody's files"
        raise InvalidInput(Problem(path, text, "name another Unix user"))
    for other in table.owners:
        if other.login is not None and _entry_of(other).uid == uid:
            text = f"{owner.login} is the Unix user of {other.name} already"
            raise InvalidInput(Problem(path, text, "name another one: owners are kept apart"))


def _make_folders(home: Home, owner: Owner) -> None:
    _open_to_accounts(home)
    account = _account(home, owner)
    folder = _folder(home, owner.number)
    for path in (folder, folder / "home"):
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, account.uid, account.gid)


def closed_python() -> Problem | None:
    """What is wrong if accounts could not read Python and Muster, so that their runs would fail;
    None if nothing is. As root."""
    nobody = UnixAccount(FIRST - 1, FIRST - 1, (FIRST - 1,), "/", "nobody")
    with acting_as(nobody):
        closed = [path for path in _needed() if not _is_readable(path)]
    if not closed:
        return None
    text = f"programs of owners could not read {', '.join(closed)}, which nodes need"
    return Problem("", text, _PYTHON_HINT)


def _needed() -> Iterator[str]:
    """The folders that programs of nodes read."""
    own = str(Path(__file__).parents[1])
    return iter(dict.fromkeys((sys.prefix, sys.base_prefix, own)))


def _check_reachable(home: Home, owner: Owner) -> None:
    """Raises InvalidInput if the account cannot reach what its programs need."""
    found = []
    own = _folder(home, owner.number)
    with acting_as(_account(home, owner)):
        if not os.path.isdir(own):
            text = f"programs of {owner.name} could not reach their files: a folder above is closed"
            hint = f"use one that every user can pass through, as /var/lib/muster, {_WITHOUT}"
            found.append(Problem("MUSTER_HOME", f"{home.root}: {text}", hint))
        for path in _needed():
            if not _is_readable(path):
                text = f"programs of {owner.name} could not read {path}, which nodes need"
                found.append(Problem("server", text, _PYTHON_HINT))
    if found:
        raise InvalidInput(*found)


def _is_readable(folder: str) -> bool:
    try:
        os.listdir(folder)
    except PermissionError:
        return False
    return True


def _account(home: Home, owner: Owner) -> UnixAccount:
    number = owner.number
    if owner.login is not None:
        return _entry_of(owner)
    own = _folder(home, number) / "home"
    return UnixAccount(number, number, (number,), str(own), f"muster-{number - FIRST}")


def _entry_of(owner: Owner) -> UnixAccount:
    """The account of an owner with a Unix user. Raises InvalidInput."""
    import pwd  # few owners have one

    try:
        found = pwd.getpwnam(str(owner.login))
    except KeyError:
        text = f"this machine has no Unix user {owner.login}"
        hint = "create it, or name another one"
        raise InvalidInput(Problem(f"accounts.{owner.name}", text, hint)) from None
    # not its groups on the machine, which may lead to root, as that of Docker's socket does
    groups = (found.pw_gid, owner.number)
    return UnixAccount(found.pw_uid, found.pw_gid, groups, found.pw_dir, found.pw_name)


def _folder(home: Home, number: int) -> Path:
    return home.owners / str(number)


def _file(home: Home) -> Path:
    return home.owners / "accounts.json"


def _read(home: Home) -> _Table:
    try:
        return msgspec.json.decode(read_regular(_file(home)), type=_Table)
    except FileNotFoundError:
        return _Table()
    except msgspec.DecodeError as error:
        text = f"it cannot be read: {error}"
        raise InvalidInput(Problem(str(_file(home)), text, "restore it from a backup")) from None


@contextmanager
def _locked(home: Home) -> Iterator[None]:
    with as_root():
        _open_to_accounts(home)
        path = home.owners / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            flock(descriptor, fcntl.LOCK_EX, path)
            yield
        finally:
            os.close(descriptor)
