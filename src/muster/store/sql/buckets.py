"""Buckets, and the links that give access to them."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import asdict, replace

from muster.errors import Conflict, NotFound
from muster.store.object_records import AccessLinkRecord, BucketRecord, BucketUse
from muster.store.records import CorruptRecord, decoded, read_record
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, seconds

_COLUMNS = BucketRecord.__struct_fields__
_QUERY = f"SELECT {', '.join(_COLUMNS)} FROM buckets"
_LINK_COLUMNS = AccessLinkRecord.__struct_fields__
_LINK_QUERY = f"SELECT {', '.join(_LINK_COLUMNS)} FROM access_links"
#: What a bucket may not have when it is deleted, and what it is called.
_IN_BUCKET = {
    "objects": "objects",
    "object_uploads": "multipart uploads in progress",
    "access_links": "pre-authenticated requests",
}


class SqlBuckets:
    """See `store.protocols.buckets.Buckets`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def insert(self, bucket: BucketRecord) -> bool:
        """See `Buckets.insert`."""
        sql = (
            f"INSERT INTO buckets ({', '.join(_COLUMNS)}) "
            f"VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT DO NOTHING RETURNING 1"
        )
        values = [*_values(bucket).values()]

        def step(connection: Connection) -> bool:
            return connection.execute(sql, values).fetchone() is not None

        def done(connection: Connection) -> bool:
            found = connection.execute("SELECT 1 FROM buckets WHERE id = ?", (bucket.id,))
            return found.fetchone() is not None

        return self._db.write(step, durable=True, done=done)

    def get(self, name: str) -> BucketRecord:
        """See `Buckets.get`."""
        return self._one("name", name)

    def by_id(self, bucket_id: str) -> BucketRecord:
        """See `Buckets.by_id`."""
        return self._one("id", bucket_id)

    def _one(self, column: str, value: str) -> BucketRecord:
        rows = self._db.read(f"{_QUERY} WHERE {column} = ?", (value,))
        if not rows:
            raise NotFound(f"no bucket with the {column} {value!r}")
        return _bucket(rows[0])

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[BucketRecord]:
        """See `Buckets.listing`."""
        sql, values = f"{_QUERY} WHERE project = ?", [project]
        if after is not None:
            sql, values = f"{sql} AND name > ?", [project, after]
        sql += " ORDER BY name"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        return [_bucket(row) for row in self._db.read(sql, values)]

    def use(self, bucket_id: str) -> BucketUse:
        """See `Buckets.use`."""
        sql = "SELECT count(*), coalesce(sum(size), 0) FROM objects WHERE bucket = ?"
        (row,) = self._db.read(sql, (bucket_id,))
        return BucketUse(row[0], int(row[1]))

    def update(self, before: BucketRecord, after: BucketRecord) -> BucketRecord:
        """See `Buckets.update`."""
        changed = ("name", "project", "updated_at", "settings", "version")
        given = _values(replace(after, version=before.version + 1))
        sql = (
            f"UPDATE buckets SET {', '.join(f'{name} = ?' for name in changed)} "
            "WHERE id = ? AND version = ? RETURNING 1"
        )
        taken = "SELECT 1 FROM buckets WHERE name = ? AND id != ?"

        def step(connection: Connection) -> bool:
            if lock := connection.dialect.lock_text:
                connection.execute(lock, (f"bucket {after.name}",))
            if connection.execute(taken, (after.name, before.id)).fetchone() is not None:
                raise Conflict(f"there is a bucket named {after.name!r} already")
            values = [*(given[name] for name in changed), before.id, before.version]
            return connection.execute(sql, values).fetchone() is not None

        if not self._db.write(step, durable=True):
            self.by_id(before.id)  # raises NotFound
            raise Conflict(f"bucket {before.name} was changed by another request meanwhile")
        return self.by_id(before.id)

    def delete(self, bucket_id: str) -> bool:
        """See `Buckets.delete`."""

        def step(connection: Connection) -> bool:
            alone = connection.dialect.lock_alone
            sql = f"SELECT name FROM buckets WHERE id = ?{alone}"
            found = connection.execute(sql, (bucket_id,)).fetchone()
            if found is None:
                return False
            for table, what in _IN_BUCKET.items():
                sql = f"SELECT 1 FROM {table} WHERE bucket = ? LIMIT 1"
                if connection.execute(sql, (bucket_id,)).fetchone() is not None:
                    raise Conflict(f"bucket {found[0]} has {what}; delete them first")
            connection.execute("DELETE FROM buckets WHERE id = ?", (bucket_id,))
            return True

        return self._db.write(step, durable=True)

    def insert_link(self, link: AccessLinkRecord) -> None:
        """See `Buckets.insert_link`."""
        sql = (
            f"INSERT INTO access_links ({', '.join(_LINK_COLUMNS)}) "
            f"VALUES ({', '.join('?' * len(_LINK_COLUMNS))}) ON CONFLICT DO NOTHING"
        )
        values = asdict(link) | {
            "lists": int(link.lists),
            "created_at": micros(link.created_at),
            "expires_at": micros(link.expires_at),
        }

        def step(connection: Connection) -> None:
            lock_bucket(connection, link.bucket)
            connection.execute(sql, [*values.values()])

        self._db.write(step, durable=True)

    def link(self, bucket_id: str, link_id: str) -> AccessLinkRecord:
        """See `Buckets.link`."""
        sql = f"{_LINK_QUERY} WHERE bucket = ? AND id = ?"
        return self._link(sql, (bucket_id, link_id))

    def link_by_digest(self, digest: str) -> AccessLinkRecord:
        """See `Buckets.link_by_digest`."""
        return self._link(f"{_LINK_QUERY} WHERE digest = ?", (digest,))

    def _link(self, sql: str, values: tuple[str, ...]) -> AccessLinkRecord:
        rows = self._db.read(sql, values)
        if not rows:
            raise NotFound("no such link")
        return _link(rows[0])

    def links(
        self, bucket_id: str, *, limit: int | None = None, after: str | None = None
    ) -> list[AccessLinkRecord]:
        """See `Buckets.links`."""
        sql, values = f"{_LINK_QUERY} WHERE bucket = ?", [bucket_id]
        if after is not None:
            sql, values = f"{sql} AND id > ?", [bucket_id, after]
        sql += " ORDER BY id"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        return [_link(row) for row in self._db.read(sql, values)]

    def delete_link(self, bucket_id: str, link_id: str) -> bool:
        """See `Buckets.delete_link`."""
        sql = "DELETE FROM access_links WHERE bucket = ? AND id = ? RETURNING 1"

        def step(connection: Connection) -> bool:
            return bool(connection.execute(sql, (bucket_id, link_id)).fetchall())

        return self._db.write(step, durable=True)


def lock_bucket(connection: Connection, bucket_id: str) -> BucketRecord:
    """Within a transaction: the bucket, which is not deleted before it ends. Raises NotFound."""
    sql = f"{_QUERY} WHERE id = ?{connection.dialect.lock_to_refer}"
    row = connection.execute(sql, (bucket_id,)).fetchone()
    if row is None:
        raise NotFound(f"no bucket with the id {bucket_id!r}")
    return _bucket(row)


def _values(bucket: BucketRecord) -> dict[str, Any]:
    return asdict(bucket) | {
        "created_at": micros(bucket.created_at),
        "updated_at": micros(bucket.updated_at),
        "settings": json.dumps(bucket.settings),
    }


def _bucket(row: Row) -> BucketRecord:
    values, hint = dict(row), "delete it, and create it again"
    what = f"the record of bucket {values['name']}"
    for name in ("created_at", "updated_at"):
        values[name] = seconds(values[name])
    values["settings"] = read_json(values["settings"], what, hint)
    return read_record(BucketRecord, values, what, hint)


def _link(row: Row) -> AccessLinkRecord:
    values = {**dict(row), "lists": bool(row["lists"])}
    for name in ("created_at", "expires_at"):
        values[name] = seconds(values[name])
    what = f"the record of the pre-authenticated request {values['id']}"
    return read_record(AccessLinkRecord, values, what, "delete it, and create it again")


def read_json(text: str, what: str, hint: str) -> Any:
    """The value of a column of JSON. what, hint: as for `read_record`. Raises CorruptRecord."""
    try:
        return decoded(text)
    except ValueError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {hint}") from None
