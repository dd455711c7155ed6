"""What SQLite says, in words a person can act on."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from muster.store.schema import MIGRATIONS


def passing(path: Path, error: sqlite3.Error) -> bool:
    """Whether what is wrong may be right again later."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_IOERR:
        return _is_full(path)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


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
        case sqlite3.SQLITE_IOERR:
            # the index of the WAL is a memory map: growing it on a full disk is called I/O error
            return _full(path) if _is_full(path) else f"cannot read or write {path}: {error}"
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


def _full(path: Path) -> str:
    return f"the disk is full: cannot write {path}; free some space and try again"


def _is_full(path: Path) -> bool:
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False
