"""What SQLite says, in words a person can act on."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from muster.errors import StoreBusy, StoreError, StoreFull, without_inodes
from muster.store.schema import MIGRATIONS

#: The index of a WAL grows by this (bytes).
_BLOCK = 32 << 10


def trouble_kind(path: Path, error: sqlite3.Error) -> type[StoreError]:
    """What kind of error it is: one that passes, when another process is done or there is space
    again, or one that stays."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy
    full = code == sqlite3.SQLITE_FULL or (code in _FULL_AT_TIMES and _is_full(path))
    return StoreFull if full else StoreError


def cannot_write(error: sqlite3.Error) -> bool:
    """Whether it may be no more than that nothing can be written."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (*_FULL_AT_TIMES, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)


#: What SQLite says of a full disk besides: the index of the WAL is a memory map, growing it is an
#: I/O error, and so is a quota; without inodes it cannot make the files it needs.
_FULL_AT_TIMES = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def explain(path: Path, error: sqlite3.Error) -> str | None:
    """What is wrong with the file and what to do. None if it is our mistake, not the file's.

    The kinds are told apart by SQLite's primary result codes (https://sqlite.org/rescode.html).
    """
    # absent where the error is Python's own: wrong use of the module
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
        case sqlite3.SQLITE_IOERR:
            return f"cannot read or write {path}: {error}"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return (
                f"cannot open or write {path}: {error}; check that the file and its folder are "
                "yours to write, or set MUSTER_HOME to another folder"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return f"{path} is kept busy by another process ({error}); `fuser {path}` names it"
        case sqlite3.SQLITE_NOMEM | sqlite3.SQLITE_NOLFS | sqlite3.SQLITE_TOOBIG:
            return f"cannot use {path}: {error}"
        case _:
            return None


def corrupt(path: Path, why: str, *, readable: bool = True) -> str:
    """Advice on a damaged file. readable: whether SQLite can make out tables in it.

    `.dump` rather than `.recover`, which is missing from some builds of sqlite3 (Debian 12) and
    then leaves an empty file. A dump of a damaged file ends in ROLLBACK and has no user_version.
    The WAL goes with its database: left behind, it would be played into the next one.
    """
    from shlex import quote

    rescued = f"{path.name}.rescued"
    file, folder = quote(str(path)), quote(f"{path.parent / 'broken'}")
    into = quote(str(path.with_name(rescued)))
    end = f"PRAGMA user_version={len(MIGRATIONS)}; COMMIT;"
    dump = f"sqlite3 {file} .dump | grep -v -e ^ROLLBACK -e ^COMMIT; echo '{end}'"
    advice = (
        f"the database {path} is corrupt ({why}); nothing was changed. "
        f"To start afresh, put it aside: `mkdir {folder} && mv {file}* {folder}`"
    )
    if not readable:
        return f"{advice}. A copy of yours, if there is one, can take its place"
    return (
        f"{advice}. To keep what can be read, before that: `{{ {dump}; }} | sqlite3 {into}`, "
        f"and after it: `mv {folder}/{quote(rescued)} {file}`"
    )


#: Bytes; a limit below that is what keeps a store from being written, rather than the disk.
_SMALL = 64 << 20


def _full(path: Path) -> str:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= limit < _SMALL:
        text = f"files may grow to {limit:,} bytes only: cannot write {path}"
        return f"{text}; allow more (`ulimit -f unlimited`) and try again"
    if without_inodes(path.parent):
        return f"the disk has no inodes left: cannot write {path}; delete some files and try again"
    return f"the disk is full: cannot write {path}; free some space and try again"


def _is_full(path: Path) -> bool:
    """By trying: what is free for its owner, within a quota, no number tells."""
    probe = path.with_name(f".probe-{os.getpid()}")
    try:
        with open(probe, "xb", buffering=0) as file:
            return file.write(bytes(_BLOCK)) < _BLOCK
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        with suppress(OSError):  # it may never have been made
            probe.unlink()
