"""Open the store of a MUSTER_HOME: its SQLite file, or the PostgreSQL database that it names."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from muster.errors import StoreError
from muster.identity import new_id
from muster.storage.home import Home
from muster.store.sqlite.store import SqliteStore
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.store.base import Store


@as_root()
def open_store(home: Home, *, create: bool = True, timeout: float = 0.0) -> Store:
    """Open the store, and migrate it if needed. create: whether the SQLite file is created if it is
    missing. timeout: seconds to wait for a database server that does not answer. Raises
    StoreError, InvalidInput for a URL that is none."""
    url = _database_url(home)
    if url is None:
        return SqliteStore.open(home.database, create=create)
    try:
        from muster.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        raise StoreError(
            f"{home.database_url} names a PostgreSQL database, and {error.name} is not installed; "
            "install it with `pip install 'muster-jobs[server]'`"
        ) from None
    store = PostgresStore.open(url, timeout=timeout)
    store.check_home(_home_id(home), home.database_id)
    return store


def import_store(home: Home) -> None:
    """Import what `open_store` needs, before this process forks others that call it."""
    if home.database_url.exists():
        with suppress(ImportError):
            import muster.store.postgres.store  # noqa: F401


def _home_id(home: Home) -> str:
    """The id of this MUSTER_HOME, which is made at the first call."""
    file = home.database_id
    try:
        if not file.exists():
            made = file.with_name(f".{file.name}-{new_id()}")
            made.write_text(f"{new_id()}\n")
            with suppress(FileExistsError):  # of another process, and complete
                os.link(made, file)
            made.unlink()
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read or write {file}: {error}") from None


def _database_url(home: Home) -> str | None:
    try:
        return home.database_url.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {home.database_url}: {error}") from None
