"""Error messages for SQLite errors, with what to do about them."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from muster.errors import StoreBusy, StoreError, StoreFull, without_inodes
from muster.store.sqlite.schema import MIGRATIONS

#: The index of a WAL grows by this (bytes).
_BLOCK = 32 << 10


def error_class(path: Path, error: sqlite3.Error) -> type[StoreError]:
    """The class for an error. StoreBusy and StoreFull are temporary: another process is writing, or
    the disk is full. Any other StoreError is permanent."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy
    full = code == sqlite3.SQLITE_FULL or (code in _FULL_AT_TIMES and _is_full(path))
    return StoreFull if full else StoreError


def cannot_write(error: sqlite3.Error) -> bool:
    """Whether the reason of an error may be that the disk is read-only or full."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (*_FULL_AT_TIMES, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)


#: Other codes that SQLite reports on a full disk: IOERR if a quota is exceeded or the index of the
#: WAL, a memory map, cannot grow; CANTOPEN if there are no inodes for the files it needs.
_FULL_AT_TIMES = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


_LOCK_ERRORS = (
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
    sqlite3.SQLITE_IOERR_UNLOCK,
    sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK,
)


def explain(path: Path, error: sqlite3.Error) -> str | None:
    """What is wrong with the file, and what to do. None if the error is an internal one.

    Errors are classified by SQLite's primary result codes (https://sqlite.org/rescode.html).
    """
    # missing if Python raised the error itself: wrong use of the module
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    match code:
        case sqlite3.SQLITE_CORRUPT:
            return corrupt(path, str(error))
        case sqlite3.SQLITE_NOTADB:
            return corrupt(path, str(error), readable=False)
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case _ if code in _FULL_AT_TIMES and _is_full(path):
            return _full(path)
        case sqlite3.SQLITE_IOERR if getattr(error, "sqlite_errorcode", 0) in _LOCK_ERRORS:
            return (
                f"cannot lock {path}: its file system has no locks, or its server does not answer; "
                "set MUSTER_HOME to a folder on a local disk of this host"
            )
        case sqlite3.SQLITE_IOERR:
            return f"cannot read or write {path}: {error}"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return (
                f"cannot open or write {path}: {_read_only(path) or error}; "
                "check that the file and its folder are yours to write, or set MUSTER_HOME to "
                "another folder"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return f"{path} is locked by another process ({error}); `fuser {path}` names it"
        case sqlite3.SQLITE_NOMEM | sqlite3.SQLITE_NOLFS | sqlite3.SQLITE_TOOBIG:
            return f"cannot use {path}: {error}"
        case _:
            return None


def _read_only(path: Path) -> str:
    """That the file or its folder is read-only, for which SQLite has other words; else empty."""
    for place, what in ((path.parent, "its folder"), (path, "it")):
        if os.access(path, os.R_OK) and not os.access(place, os.W_OK):
            return f"{what} is read-only"
    return ""


def corrupt(path: Path, why: str, *, readable: bool = True) -> str:
    """The message for a damaged file. readable: whether SQLite finds tables in it.

    `.dump` rather than `.recover`, which is missing from some builds of sqlite3 (Debian 12) and
    then leaves an empty file. A dump of a damaged file ends in ROLLBACK and has no user_version.
    The WAL is moved with its database: otherwise SQLite would apply it to the next one.
    """
    from shlex import quote

    rescued = f"{path.name}.rescued"
    file, folder = quote(str(path)), quote(f"{path.parent / 'broken'}")
    into = quote(str(path.with_name(rescued)))
    end = f"PRAGMA user_version={len(MIGRATIONS)}; COMMIT;"
    dump = f"sqlite3 {file} .dump | grep -v -e ^ROLLBACK -e ^COMMIT; echo '{end}'"
    advice = (
        f"the database {path} is corrupt ({why}); nothing was changed. "
        f"To start with an empty one, move it away: `mkdir {folder} && mv {file}* {folder}`"
    )
    if not readable:
        return f"{advice}. If you have a backup, put it in its place"
    return (
        f"{advice}. To keep what can be read, run before moving it: "
        f"`{{ {dump}; }} | sqlite3 {into}`, "
        f"and after moving it: `mv {folder}/{quote(rescued)} {file}`"
    )


#: A file size limit below this (bytes) is taken for the reason that the store cannot be written.
_SMALL = 64 << 20


def _full(path: Path) -> str:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= limit < _SMALL:
        text = f"cannot write {path}: files may not exceed {limit:,} bytes"
        return f"{text}; allow more (`ulimit -f unlimited`) and try again"
    if without_inodes(path.parent):
        return f"the disk has no inodes left: cannot write {path}; delete some files and try again"
    return f"the disk is full: cannot write {path}; free some space and try again"


def _is_full(path: Path) -> bool:
    """Whether the disk is full, found by writing: no figure shows what is free within a quota."""
    probe = path.with_name(f".probe-{os.getpid()}")
    try:
        with open(probe, "xb", buffering=0) as file:
            return file.write(bytes(_BLOCK)) < _BLOCK
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        with suppress(OSError):  # it may not exist
            probe.unlink()
