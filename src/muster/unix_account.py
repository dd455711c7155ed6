"""The Unix account that the programs of a run belong to, on a server that runs as root.

A thread of a root process acts as an account (`acting_as`): whatever files it opens, creates or
removes, the kernel checks the account's rights, so that no link that a program has planted leads
anywhere that the program could not go itself. Only what says `as_root` has root's rights meanwhile.
A process that runs somebody's programs becomes the account for good (`become`).

Without an account, which is how Muster runs everywhere else, all of this does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import lru_cache
from threading import local
from types import TracebackType
from typing import Any, NoReturn

from msgspec import Struct

#: Numbers of the system calls that change this thread alone, or that the C library has not.
_SYSTEM_CALLS = {
    "x86_64": {"setgroups": 116, "capset": 126, "keyctl": 250},
    "aarch64": {"setgroups": 159, "capset": 91, "keyctl": 219},
}
_PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 23, 24, 38
_KEYCTL_JOIN_SESSION_KEYRING = 1
_CAPABILITY_VERSION = 0x20080522
_UMASK = 0o077
_CURRENT = 0xFFFFFFFF  # in place of an id: return the present one


class UnixAccount(Struct, frozen=True):
    """Whom processes belong to. It need not have an entry in /etc/passwd."""

    uid: int
    gid: int
    #: The supplementary groups. Among them is a group that the owner's processes alone have.
    groups: tuple[int, ...]
    #: HOME, which exists.
    home: str
    #: USER and LOGNAME.
    name: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that say who the user is."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


#: The accounts that threads of this process have acted as, by uid.
_known: dict[int, UnixAccount] = {}


class _Acting(local):
    """Whom this thread acts as. A new thread acts as the one that started it, and a forked child as
    the one that forked it."""

    def __init__(self) -> None:
        self.account = _known.get(_libc().setfsuid(_CURRENT)) if _known else None


_acting = _Acting()


def current() -> UnixAccount | None:
    """The account that this thread acts as."""
    return _acting.account


def act_as(account: UnixAccount | None) -> None:
    """Act as an account from now on; None: as root again. Raises OSError if this process may not.

    Only the rights to files change: the thread can still create namespaces and end processes. A
    program that it executes would run as root, unless it gets `process_options`.
    """
    if account == _acting.account:
        return
    own_groups = _own_groups()  # before any change
    _set_groups(own_groups if account is None else account.groups)
    if account is None:
        _set_ids(0, 0)
    else:
        _known[account.uid] = account
        _set_ids(account.uid, account.gid)
    _acting.account = account


@contextmanager
def acting_as(account: UnixAccount | None) -> Iterator[None]:
    """Act as an account; None: as before. Raises as `act_as`."""
    if account is None or account == _acting.account:
        yield
        return
    before = _acting.account
    act_as(account)
    try:
        yield
    finally:
        act_as(before)


class as_root(ContextDecorator):  # noqa: N801  as those of contextlib
    """Have root's rights to files for a while, in a thread that acts as an account: for files that
    only Muster can write, and that programs cannot put anything in the place of."""

    def __init__(self) -> None:
        self._account: UnixAccount | None = None

    def _recreate_cm(self) -> as_root:
        return as_root()  # each call of a decorated function has its own

    def __enter__(self) -> None:
        self._account = _acting.account
        act_as(None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        act_as(self._account)


def process_options() -> dict[str, Any]:
    """The options of `subprocess` for a program that this thread executes: it runs as the account
    that the thread acts as."""
    account = _acting.account
    if account is None:
        return {}
    return {
        "user": account.uid,
        "group": account.gid,
        "extra_groups": account.groups,
        "umask": _UMASK,
    }


def become(account: UnixAccount) -> None:
    """Become the account, for good: without capabilities, and without a way to get any, such as a
    setuid program. Raises OSError.

    Other processes of the account cannot look into this one: its memory is still that of the root
    process which forked it.
    """
    _acting.account = None
    _known.clear()
    _join_new_session_keyring()
    _set_ids(0, 0)
    _drop_bounding_set()
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    _drop_inheritable_capabilities()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    os.umask(_UMASK)


def run_as(account: UnixAccount, work: Callable[[], None]) -> NoReturn:
    """Become the account, do some work, and exit: in a forked child. Its exit code is 0 if the work
    raised nothing."""
    code = 1
    try:
        become(account)
        work()
        code = 0
    finally:
        os._exit(code)


@lru_cache(maxsize=1)
def _own_groups() -> tuple[int, ...]:
    """The supplementary groups of the process."""
    return tuple(os.getgroups())


# --- system calls


@lru_cache(maxsize=1)
def _libc() -> Any:
    import ctypes  # most processes never act as an account

    return ctypes.CDLL(None, use_errno=True)


def _error(what: str) -> OSError:
    import ctypes

    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), what)


def _system_call(name: str, *args: Any) -> None:
    import ctypes

    number = _SYSTEM_CALLS.get(os.uname().machine, {}).get(name)
    if number is None:
        raise OSError(38, "accounts need Linux on x86-64 or ARM64", name)
    if _libc().syscall(ctypes.c_long(number), *args) < 0:
        raise _error(name)


def _set_ids(uid: int, gid: int) -> None:
    libc = _libc()
    libc.setfsgid(gid)
    libc.setfsuid(uid)
    # they say nothing about errors: ask what holds now
    if (libc.setfsuid(_CURRENT), libc.setfsgid(_CURRENT)) != (uid, gid):
        raise OSError(1, f"this process cannot act as user {uid}", "setfsuid")


def _set_groups(groups: tuple[int, ...]) -> None:
    """Set those of this thread; the C library would set those of all threads."""
    import ctypes

    _system_call("setgroups", len(groups), (ctypes.c_uint * len(groups))(*groups))


def _prctl(option: int, value: int) -> None:
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        raise _error("prctl")


def _drop_bounding_set() -> None:
    libc = _libc()
    number = 0
    while libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        _prctl(_PR_CAPBSET_DROP, number)
        number += 1


def _drop_inheritable_capabilities() -> None:
    import ctypes

    header = (ctypes.c_uint * 2)(_CAPABILITY_VERSION, 0)
    _system_call("capset", header, (ctypes.c_uint * 6)())


def _join_new_session_keyring() -> None:
    """Leave the session keyring of the server, whose keys its processes may read."""
    try:
        _system_call("keyctl", _KEYCTL_JOIN_SESSION_KEYRING, None)
    except OSError as error:
        if error.errno not in (1, 38):  # refused to all processes, as in containers, or not built
            raise
