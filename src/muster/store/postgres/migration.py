"""Migrations of the tables by Alembic, on a connection of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from psycopg.rows import tuple_row
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

_SCRIPTS = ScriptDirectory(str(Path(__file__).with_name("migrations")))


def known_revisions() -> list[str]:
    """All revisions, the newest first."""
    return [script.revision for script in _SCRIPTS.walk_revisions()]


def upgrade(raw: psycopg.Connection[Any], to: str) -> None:
    """Migrate to a revision, in one transaction. Raises psycopg.Error."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: raw, poolclass=StaticPool)
    factory, raw.row_factory, raw.autocommit = raw.row_factory, tuple_row, False
    try:
        with engine.connect() as connection:

            def steps(revision: Any, _: MigrationContext) -> Any:
                return _SCRIPTS._upgrade_revs(to, revision)

            context = MigrationContext.configure(connection, opts={"fn": steps})
            with Operations.context(context), context.begin_transaction():
                context.run_migrations()
            connection.commit()
    except DBAPIError as error:
        raise error.orig or error from None
    finally:
        raw.rollback()
        raw.row_factory, raw.autocommit = factory, True
