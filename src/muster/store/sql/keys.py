"""Public keys of users."""

from __future__ import annotations

from muster.errors import AlreadyExists, NotFound, Problem
from muster.store.account_records import PublicKeyRecord
from muster.store.records import read_record
from muster.store.sql.accounts import user_in
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, seconds

_COLUMNS = PublicKeyRecord.__struct_fields__
_QUERY = "SELECT {} FROM public_keys".format(
    ", ".join('user_name AS "user"' if name == "user" else name for name in _COLUMNS)
)


class SqlKeys:
    """See `store.protocols.keys.Keys`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def insert(self, key: PublicKeyRecord) -> None:
        """See `Keys.insert`."""
        sql = (
            "INSERT INTO public_keys (fingerprint, user_name, name, pem, created_by, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
        )

        def step(connection: Connection) -> None:
            user = user_in(connection, key.user).name
            values = (
                *(key.fingerprint, user, key.name, key.pem, key.created_by),
                micros(key.created_at),
            )
            if connection.execute(sql, values).fetchone() is None:
                text = f"the key with the fingerprint {key.fingerprint} is here already"
                raise AlreadyExists(Problem("", text, "delete it first, or use another key"))

        def done(connection: Connection) -> bool:
            found = "SELECT 1 FROM public_keys WHERE fingerprint = ? AND created_at = ?"
            given = (key.fingerprint, micros(key.created_at))
            return connection.execute(found, given).fetchone() is not None

        self._db.write(step, durable=True, done=done)

    def delete(self, fingerprint: str) -> bool:
        """See `Keys.delete`."""
        sql = "DELETE FROM public_keys WHERE fingerprint = ? RETURNING 1"

        def step(connection: Connection) -> bool:
            return bool(connection.execute(sql, (fingerprint,)).fetchall())

        return self._db.write(step, durable=True)

    def get(self, fingerprint: str) -> PublicKeyRecord:
        """See `Keys.get`."""
        rows = self._db.read(f"{_QUERY} WHERE fingerprint = ?", (fingerprint,))
        if not rows:
            text = f"no key with the fingerprint {fingerprint!r}"
            raise NotFound(Problem("", text, "`muster users keys list` lists them"))
        return _key(rows[0])

    def listing(self, user: str) -> list[PublicKeyRecord]:
        """See `Keys.listing`."""
        sql = f"{_QUERY} WHERE lower(user_name) = lower(?) ORDER BY created_at, fingerprint"
        return [_key(row) for row in self._db.read(sql, (user,))]


def _key(row: Row) -> PublicKeyRecord:
    values = {**dict(row), "created_at": seconds(row["created_at"])}
    what = f"the record of key {row['fingerprint']}"
    return read_record(PublicKeyRecord, values, what, "delete it, and add it again")
