"""Objects, and uploads of objects in parts.

Whoever changes the object of a name has locked the name in its bucket until the transaction ends,
and the bucket against being deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from muster.errors import Conflict, NotFound
from muster.store.object_records import (
    NO_CONDITION,
    ChangeKind,
    Condition,
    ObjectChange,
    ObjectRange,
    ObjectRecord,
    PieceRecord,
    UploadRecord,
)
from muster.store.records import read_record
from muster.store.sql.buckets import lock_bucket, read_json
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, seconds

#: Called with a change of an object, within its transaction.
Note = Callable[[Connection, ObjectChange], None]

_COLUMNS = ObjectRecord.__struct_fields__
_QUERY = f"SELECT {', '.join(_COLUMNS)} FROM objects"
_PIECE_COLUMNS = PieceRecord.__struct_fields__
_PIECE_QUERY = f"SELECT {', '.join(_PIECE_COLUMNS)} FROM object_pieces"
_UPLOAD_COLUMNS = UploadRecord.__struct_fields__
_UPLOAD_QUERY = f"SELECT {', '.join(_UPLOAD_COLUMNS)} FROM object_uploads"
_HINT = "upload it again"
#: Files that one query looks for.
_AT_ONCE = 500


class SqlObjects:
    """See `store.protocols.objects.Objects`."""

    def __init__(self, db: Database, note: Note) -> None:
        """note: records each change elsewhere, in its transaction."""
        self._db, self._note = db, note

    def put(
        self,
        record: ObjectRecord,
        pieces: Sequence[PieceRecord],
        condition: Condition = NO_CONDITION,
    ) -> list[str]:
        """See `Objects.put`."""

        def step(connection: Connection) -> list[str]:
            _insert_pieces(connection, pieces)
            return self._place(connection, record, condition)

        return self._db.write(step, durable=True, done=_placed(record))

    def complete(
        self,
        upload: UploadRecord,
        record: ObjectRecord,
        pieces: Sequence[PieceRecord],
        condition: Condition = NO_CONDITION,
    ) -> list[str]:
        """See `Objects.complete`."""
        chosen = {piece.file for piece in pieces}

        def step(connection: Connection) -> list[str]:
            _delete_upload(connection, upload.id)
            sql = "SELECT file FROM object_pieces WHERE content = ?"
            files = [row[0] for row in connection.execute(sql, (upload.id,)).fetchall()]
            if not chosen.issubset(files):
                raise Conflict("a part was uploaded again meanwhile")
            unused = [file for file in files if file not in chosen]
            connection.executemany(
                "DELETE FROM object_pieces WHERE file = ?", [(file,) for file in unused]
            )
            return unused + self._place(connection, record, condition)

        return self._db.write(step, durable=True, done=_placed(record))

    def _place(
        self, connection: Connection, record: ObjectRecord, condition: Condition
    ) -> list[str]:
        """Within a transaction: give a name its object. Returns the files of the one before."""
        bucket = lock_bucket(connection, record.bucket)
        before = _lock_object(connection, record.bucket, record.name)
        condition.check(None if before is None else before.etag)
        files = [] if before is None else _remove(connection, before)
        _insert(connection, "objects", _values(record))
        kind = ChangeKind.CREATED if before is None else ChangeKind.REPLACED
        self._note(connection, ObjectChange(kind, bucket, record, record.modified_at))
        return files

    def get(self, bucket_id: str, name: str) -> ObjectRecord:
        """See `Objects.get`."""
        rows = self._db.read(f"{_QUERY} WHERE bucket = ? AND name = ?", (bucket_id, name))
        if not rows:
            raise NotFound(f"no object named {name!r}")
        return _object(rows[0])

    def pieces(self, content: str) -> list[PieceRecord]:
        """See `Objects.pieces`."""
        rows = self._db.read(f"{_PIECE_QUERY} WHERE content = ? ORDER BY number", (content,))
        return [_piece(row) for row in rows]

    def listing(self, chosen: ObjectRange) -> list[ObjectRecord]:
        """See `Objects.listing`."""
        sql = f"{_QUERY} WHERE bucket = ? AND name >= ?"
        values = [chosen.bucket, chosen.start]
        if chosen.end is not None:
            sql += " AND name < ?"
            values.append(chosen.end)
        sql += f" ORDER BY name LIMIT {int(chosen.limit)}"
        return [_object(row) for row in self._db.read(sql, values)]

    def delete(
        self, bucket_id: str, name: str, now: float, condition: Condition = NO_CONDITION
    ) -> list[str]:
        """See `Objects.delete`."""

        def step(connection: Connection) -> list[str]:
            bucket = lock_bucket(connection, bucket_id)
            before = _lock_object(connection, bucket_id, name)
            if before is None:
                raise NotFound(f"no object named {name!r}")
            condition.check(before.etag)
            self._note(connection, ObjectChange(ChangeKind.DELETED, bucket, before, now))
            return _remove(connection, before)

        return self._db.write(step, durable=True)

    def rename(
        self,
        record: ObjectRecord,
        new_name: str,
        modified_at: float,
        *,
        source: Condition = NO_CONDITION,
        target: Condition = NO_CONDITION,
    ) -> tuple[ObjectRecord, list[str]]:
        """See `Objects.rename`."""
        after = replace(record, name=new_name, modified_at=modified_at)

        def step(connection: Connection) -> list[str]:
            bucket = lock_bucket(connection, record.bucket)
            for name in sorted({record.name, new_name}):
                _lock_object(connection, record.bucket, name)
            before = _lock_object(connection, record.bucket, record.name)
            if before is None or before.etag != record.etag:
                raise NotFound(f"no object named {record.name!r}")
            source.check(before.etag)
            sql = "DELETE FROM objects WHERE bucket = ? AND name = ?"
            connection.execute(sql, (record.bucket, record.name))
            change = ObjectChange(ChangeKind.DELETED, bucket, before, modified_at)
            self._note(connection, change)
            return self._place(connection, after, target)

        return after, self._db.write(step, durable=True, done=_placed(after))

    def used_files(self, files: Sequence[str]) -> set[str]:
        """See `Objects.used_files`."""
        used: set[str] = set()
        for start in range(0, len(files), _AT_ONCE):
            some = files[start : start + _AT_ONCE]
            marks = ", ".join("?" * len(some))
            rows = self._db.read(f"SELECT file FROM object_pieces WHERE file IN ({marks})", some)
            used.update(row[0] for row in rows)
        return used

    def begin_upload(self, upload: UploadRecord, condition: Condition = NO_CONDITION) -> None:
        """See `Objects.begin_upload`."""

        def step(connection: Connection) -> None:
            lock_bucket(connection, upload.bucket)
            before = _lock_object(connection, upload.bucket, upload.name)
            condition.check(None if before is None else before.etag)
            _insert(connection, "object_uploads", _values(upload))

        def done(connection: Connection) -> bool:
            found = connection.execute("SELECT 1 FROM object_uploads WHERE id = ?", (upload.id,))
            return found.fetchone() is not None

        self._db.write(step, durable=True, done=done)

    def upload(self, bucket_id: str, name: str, upload_id: str) -> UploadRecord:
        """See `Objects.upload`."""
        sql = f"{_UPLOAD_QUERY} WHERE id = ? AND bucket = ? AND name = ?"
        rows = self._db.read(sql, (upload_id, bucket_id, name))
        if not rows:
            raise NotFound(f"no upload {upload_id!r} of {name!r}")
        return _upload(rows[0])

    def uploads(
        self, bucket_id: str, *, limit: int | None = None, after: str | None = None
    ) -> list[UploadRecord]:
        """See `Objects.uploads`."""
        sql, values = f"{_UPLOAD_QUERY} WHERE bucket = ?", [bucket_id]
        if after is not None:
            sql, values = f"{sql} AND id > ?", [bucket_id, after]
        sql += " ORDER BY id"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        return [_upload(row) for row in self._db.read(sql, values)]

    def put_part(self, part: PieceRecord) -> list[str]:
        """See `Objects.put_part`."""

        def step(connection: Connection) -> list[str]:
            # not before the upload is complete or aborted, or else after the part is recorded
            lock = connection.dialect.lock
            sql = f"SELECT 1 FROM object_uploads WHERE id = ?{lock}"
            if connection.execute(sql, (part.content,)).fetchone() is None:
                raise NotFound(f"no upload {part.content!r}")
            sql = "DELETE FROM object_pieces WHERE content = ? AND number = ? RETURNING file"
            before = connection.execute(sql, (part.content, part.number)).fetchall()
            _insert_pieces(connection, [part])
            return [row[0] for row in before]

        def done(connection: Connection) -> bool:
            found = connection.execute("SELECT 1 FROM object_pieces WHERE file = ?", (part.file,))
            return found.fetchone() is not None

        return self._db.write(step, durable=True, done=done)

    def abort_upload(self, upload: UploadRecord) -> list[str]:
        """See `Objects.abort_upload`."""

        def step(connection: Connection) -> list[str]:
            _delete_upload(connection, upload.id)
            sql = "DELETE FROM object_pieces WHERE content = ? RETURNING file"
            return [row[0] for row in connection.execute(sql, (upload.id,)).fetchall()]

        return self._db.write(step, durable=True)


def _insert_pieces(connection: Connection, pieces: Sequence[PieceRecord]) -> None:
    """Within a transaction: add pieces of an object or an upload."""
    for piece in pieces:
        _insert(connection, "object_pieces", asdict(piece))


def _insert(connection: Connection, table: str, values: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(values))
    sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
    connection.execute(sql, [*values.values()])


def _lock_object(connection: Connection, bucket_id: str, name: str) -> ObjectRecord | None:
    """Within a transaction: the object with this name, if there is one. No other transaction gives
    the name another object, or its first one, until this one ends."""
    if lock := connection.dialect.lock_text:
        connection.execute(lock, (f"object {bucket_id} {name}",))
    sql = f"{_QUERY} WHERE bucket = ? AND name = ?"
    row = connection.execute(sql, (bucket_id, name)).fetchone()
    return None if row is None else _object(row)


def _remove(connection: Connection, record: ObjectRecord) -> list[str]:
    """Within a transaction: delete an object. Returns its files."""
    sql = "DELETE FROM objects WHERE bucket = ? AND name = ?"
    connection.execute(sql, (record.bucket, record.name))
    sql = "DELETE FROM object_pieces WHERE content = ? RETURNING file"
    return [row[0] for row in connection.execute(sql, (record.content,)).fetchall()]


def _delete_upload(connection: Connection, upload_id: str) -> None:
    """Within a transaction. Raises NotFound."""
    sql = "DELETE FROM object_uploads WHERE id = ? RETURNING 1"
    if not connection.execute(sql, (upload_id,)).fetchall():
        raise NotFound(f"no upload {upload_id!r}")


def _placed(record: ObjectRecord) -> Callable[[Connection], bool]:
    """Tells whether a name was given this object."""

    def done(connection: Connection) -> bool:
        sql = "SELECT 1 FROM objects WHERE bucket = ? AND name = ? AND etag = ?"
        given = (record.bucket, record.name, record.etag)
        return connection.execute(sql, given).fetchone() is not None

    return done


def _values(record: ObjectRecord | UploadRecord) -> dict[str, Any]:
    times = ("created_at", "modified_at")
    values = asdict(record)
    values |= {name: micros(values[name]) for name in times if name in values}
    return values | {name: json.dumps(values[name]) for name in ("headers", "metadata")}


def _object(row: Row) -> ObjectRecord:
    values = dict(row)
    what = f"the record of object {values['name']}"
    for name in ("created_at", "modified_at"):
        values[name] = seconds(values[name])
    for name in ("headers", "metadata"):
        values[name] = read_json(values[name], what, _HINT)
    return read_record(ObjectRecord, values, what, _HINT)


def _piece(row: Row) -> PieceRecord:
    return read_record(PieceRecord, dict(row), f"the record of file {row['file']}", _HINT)


def _upload(row: Row) -> UploadRecord:
    values = dict(row)
    what = f"the record of upload {values['id']}"
    values["created_at"] = seconds(values["created_at"])
    for name in ("headers", "metadata"):
        values[name] = read_json(values[name], what, _HINT)
    return read_record(UploadRecord, values, what, _HINT)
