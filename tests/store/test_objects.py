"""What every database promises of buckets and objects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from muster.errors import Conflict, NotFound
from muster.identity import new_id
from muster.store.base import Store
from muster.store.object_records import (
    AccessLinkRecord,
    BucketRecord,
    BucketUse,
    ChangeKind,
    Condition,
    ConditionFailed,
    ObjectChange,
    ObjectRange,
    ObjectRecord,
    PieceRecord,
    UploadRecord,
)
from muster.store.outbox_records import ListenerKind
from muster.store.sql.database import Connection
from muster.store.sql.objects import SqlObjects
from muster.store.sql.outbox import set_listener
from support.store_records import DATABASES, PROJECT

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)


def bucket(name: str = "models", **more: Any) -> BucketRecord:
    record = BucketRecord(new_id(), name, PROJECT, "ana", 1.000001, 2.0, {"metadata": {"a": "é"}})
    return replace(record, **more)


def add_bucket(store: Store, name: str = "models", **more: Any) -> BucketRecord:
    made = bucket(name, **more)
    assert store.buckets.insert(made)
    return made


def object_in(of: BucketRecord, name: str = "a", **more: Any) -> ObjectRecord:
    record = ObjectRecord(
        *(of.id, name, new_id(), new_id(), 3, "md5", 1.5, 2.5),
        headers={"content-type": "text/plain"},
        metadata={"epoch": "7"},
    )
    return replace(record, **more)


def piece_of(record: ObjectRecord | UploadRecord, number: int = 1) -> PieceRecord:
    content = record.content if isinstance(record, ObjectRecord) else record.id
    return PieceRecord(content, number, new_id(), 3, new_id(), "md5")


def upload_in(of: BucketRecord, name: str = "a") -> UploadRecord:
    return UploadRecord(new_id(), of.id, name, "ana", 1.5, {"content-type": "x"}, {"a": "b"})


def link_to(of: BucketRecord, **more: Any) -> AccessLinkRecord:
    record = AccessLinkRecord(
        *(new_id(), of.id, "for ben", new_id(), "AnyObjectRead", None, True, "ana", 1.0, 9.0)
    )
    return replace(record, **more)


def put(store: Store, record: ObjectRecord, condition: Condition | None = None) -> str:
    """Put an object of one file. Returns the file."""
    piece = piece_of(record)
    store.objects.put(record, [piece], condition or Condition())
    return piece.file


def test_a_bucket_is_kept_as_it_is(store: Store) -> None:
    made = add_bucket(store)
    assert store.buckets.get("models") == store.buckets.by_id(made.id) == made
    assert not store.buckets.insert(bucket(project="vision"))
    for find in (store.buckets.get, store.buckets.by_id):
        with pytest.raises(NotFound):
            find("other")


def test_buckets_of_a_project_have_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        add_bucket(store, name)
    add_bucket(store, "d", project="vision")
    listing = store.buckets.listing
    assert [one.name for one in listing(PROJECT)] == ["a", "b", "c"]
    assert [one.name for one in listing(PROJECT, limit=1, after="a")] == ["b"]
    assert [one.name for one in listing("vision")] == ["d"]


def test_a_bucket_is_changed_as_it_was_read(store: Store) -> None:
    before = add_bucket(store)
    add_bucket(store, "taken")
    after = store.buckets.update(
        before, replace(before, name="new", project="vision", settings={}, updated_at=5.0)
    )
    assert after == replace(
        before, name="new", project="vision", settings={}, updated_at=5.0, version=2
    )
    with pytest.raises(Conflict, match="changed by another"):
        store.buckets.update(before, replace(before, name="newer"))
    with pytest.raises(Conflict, match="a bucket named 'taken'"):
        store.buckets.update(after, replace(after, name="taken"))
    assert store.buckets.delete(before.id)
    assert not store.buckets.delete(before.id)
    with pytest.raises(NotFound):
        store.buckets.update(after, after)


def test_only_an_empty_bucket_is_deleted(store: Store) -> None:
    of = add_bucket(store)
    record, upload, link = object_in(of), upload_in(of, "b"), link_to(of)
    put(store, record)
    store.objects.begin_upload(upload)
    store.buckets.insert_link(link)
    with pytest.raises(Conflict, match="has objects"):
        store.buckets.delete(of.id)
    store.objects.delete(of.id, "a", 9.0)
    with pytest.raises(Conflict, match="has multipart uploads"):
        store.buckets.delete(of.id)
    store.objects.abort_upload(upload)
    with pytest.raises(Conflict, match="has pre-authenticated requests"):
        store.buckets.delete(of.id)
    assert store.buckets.delete_link(of.id, link.id)
    assert store.buckets.delete(of.id)
    for change in (
        lambda: put(store, record),
        lambda: store.objects.begin_upload(upload),
        lambda: store.buckets.insert_link(link),
        lambda: store.objects.delete(of.id, "a", 9.0),
    ):
        with pytest.raises(NotFound):
            change()


def test_links(store: Store) -> None:
    of = add_bucket(store)
    made = sorted((link_to(of), link_to(of, object_name="a", lists=False)), key=lambda m: m.id)
    for one in made:
        store.buckets.insert_link(one)
    assert store.buckets.link(of.id, made[0].id) == made[0]
    assert store.buckets.link_by_digest(made[1].digest) == made[1]
    assert store.buckets.links(of.id) == made
    assert store.buckets.links(of.id, limit=1, after=made[0].id) == made[1:]
    with pytest.raises(NotFound):
        store.buckets.link("other", made[0].id)
    assert not store.buckets.delete_link("other", made[0].id)
    assert store.buckets.delete_link(of.id, made[0].id)
    with pytest.raises(NotFound):
        store.buckets.link_by_digest(made[0].digest)


def test_an_object_is_kept_as_it_is(store: Store) -> None:
    of = add_bucket(store)
    record = object_in(of, "a/é\U0001f600")
    piece = piece_of(record)
    assert store.objects.put(record, [piece]) == []
    assert store.objects.get(of.id, record.name) == record
    assert store.objects.pieces(record.content) == [piece]
    assert store.objects.used_files([piece.file, "other"]) == {piece.file}
    assert store.buckets.use(of.id) == BucketUse(1, 3)
    assert store.objects.delete(of.id, record.name, 9.0) == [piece.file]
    assert store.objects.used_files([piece.file]) == set()
    assert store.buckets.use(of.id) == BucketUse(0, 0)
    with pytest.raises(NotFound):
        store.objects.get(of.id, record.name)
    with pytest.raises(NotFound):
        store.objects.delete(of.id, record.name, 9.0)


def test_an_object_replaces_the_one_before(store: Store) -> None:
    of = add_bucket(store)
    file = put(store, object_in(of))
    after = object_in(of)
    assert store.objects.put(after, [piece_of(after)]) == [file]
    assert store.objects.get(of.id, "a") == after


@pytest.mark.parametrize(
    ("condition", "there", "holds"),
    [
        (Condition(), False, True),
        (Condition("*"), False, False),
        (Condition("*"), True, True),
        (Condition("etag"), True, True),
        (Condition('"etag"'), True, True),
        (Condition("other, etag"), True, True),
        (Condition("other"), True, False),
        (Condition("etag"), False, False),
        (Condition("", "*"), True, False),
        (Condition("", "*"), False, True),
        (Condition("", "etag"), True, False),
        (Condition("", "other"), True, True),
        (Condition("", "etag"), False, True),
        (Condition("etag", "*"), True, False),
    ],
)
def test_conditions(store: Store, condition: Condition, there: bool, holds: bool) -> None:
    of = add_bucket(store)
    before = object_in(of, etag="etag")
    if there:
        put(store, before)
    after, upload = object_in(of), upload_in(of)
    if holds:
        store.objects.begin_upload(upload, condition)
        put(store, after, condition)
        assert store.objects.get(of.id, "a") == after
        return
    with pytest.raises(ConditionFailed):
        store.objects.begin_upload(upload, condition)
    with pytest.raises(ConditionFailed):
        put(store, after, condition)
    if there:
        with pytest.raises(ConditionFailed):
            store.objects.delete(of.id, "a", 9.0, condition)
        assert store.objects.get(of.id, "a") == before
    assert store.objects.pieces(after.content) == []
    assert store.objects.uploads(of.id) == []


def test_of_changes_at_once_each_sees_the_one_before(store: Store) -> None:
    of = add_bucket(store)

    def create(_: int) -> bool:
        try:
            put(store, object_in(of), Condition("", "*"))
        except ConditionFailed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(create, range(16))) == [False] * 15 + [True]
        first = store.objects.get(of.id, "a").etag

        def replace_first(_: int) -> bool:
            try:
                put(store, object_in(of), Condition(first))
            except ConditionFailed:
                return False
            return True

        assert sorted(pool.map(replace_first, range(16))) == [False] * 15 + [True]


def test_a_bucket_is_not_deleted_while_objects_come(store: Store) -> None:
    for _ in range(10):
        of = add_bucket(store)

        def create(name: str, of: BucketRecord = of) -> bool:
            try:
                put(store, object_in(of, name))
            except NotFound:
                return False
            return True

        def delete(of: BucketRecord = of) -> bool:
            try:
                return store.buckets.delete(of.id)
            except Conflict:
                return False

        with ThreadPoolExecutor(5) as pool:
            deleting = pool.submit(delete)
            made = [*pool.map(create, "abcd")]
        found = store.objects.listing(ObjectRange(of.id))
        assert len(found) == sum(made)
        if deleting.result():
            assert not any(made)
        for one in found:
            store.objects.delete(of.id, one.name, 9.0)
        store.buckets.delete(of.id)


def test_objects_are_listed_in_the_order_of_their_bytes(store: Store) -> None:
    of, other = add_bucket(store), add_bucket(store, "other")
    names = ["B", "a", "a/b", "a0", "z", "é", "\ufffd", "\U0001f600"]
    for name in reversed(names):
        put(store, object_in(of, name))
    put(store, object_in(other, "c"))

    def listed(*chosen: Any) -> list[str]:
        return [one.name for one in store.objects.listing(ObjectRange(of.id, *chosen))]

    assert listed() == names
    assert listed("a/", "z") == ["a/b", "a0"]
    assert listed("a", None, 2) == ["a", "a/b"]


def test_an_object_gets_another_name(store: Store) -> None:
    of = add_bucket(store)
    record = object_in(of)
    file, replaced = put(store, record), put(store, object_in(of, "b"))
    with pytest.raises(ConditionFailed):
        store.objects.rename(record, "b", 9.0, target=Condition("", "*"))
    with pytest.raises(ConditionFailed):
        store.objects.rename(record, "b", 9.0, source=Condition("other"))
    assert store.objects.get(of.id, "a") == record
    renamed, files = store.objects.rename(record, "b", 9.0)
    assert files == [replaced]
    assert renamed == replace(record, name="b", modified_at=9.0)
    assert store.objects.get(of.id, "b") == renamed
    assert store.objects.used_files([file]) == {file}
    with pytest.raises(NotFound):
        store.objects.rename(record, "c", 9.0)


def test_an_upload_becomes_an_object_of_its_parts(store: Store) -> None:
    of = add_bucket(store)
    before, upload = put(store, object_in(of)), upload_in(of)
    store.objects.begin_upload(upload)
    assert store.objects.upload(of.id, "a", upload.id) == upload
    parts = [piece_of(upload, number) for number in (3, 1, 2)]
    for part in parts:
        assert store.objects.put_part(part) == []
    again = piece_of(upload, 3)
    assert store.objects.put_part(again) == [parts[0].file]
    chosen = [parts[1], again]
    assert store.objects.pieces(upload.id) == [parts[1], parts[2], again]
    record = object_in(of, content=upload.id)
    with pytest.raises(Conflict, match="uploaded again"):
        store.objects.complete(upload, record, parts)
    with pytest.raises(ConditionFailed):
        store.objects.complete(upload, record, chosen, Condition("", "*"))
    unused = store.objects.complete(upload, record, chosen)
    assert sorted(unused) == sorted([before, parts[2].file])
    assert store.objects.get(of.id, "a") == record
    assert store.objects.pieces(upload.id) == chosen
    for change in (
        lambda: store.objects.put_part(piece_of(upload, 4)),
        lambda: store.objects.complete(upload, record, chosen),
        lambda: store.objects.abort_upload(upload),
        lambda: store.objects.upload(of.id, "a", upload.id),
    ):
        with pytest.raises(NotFound):
            change()


def test_an_upload_is_aborted(store: Store) -> None:
    of = add_bucket(store)
    uploads = sorted((upload_in(of), upload_in(of, "b")), key=lambda one: one.id)
    for upload in uploads:
        store.objects.begin_upload(upload)
    assert store.objects.uploads(of.id) == uploads
    assert store.objects.uploads(of.id, limit=1, after=uploads[0].id) == uploads[1:]
    part = piece_of(uploads[0])
    store.objects.put_part(part)
    assert store.objects.abort_upload(uploads[0]) == [part.file]
    assert store.objects.uploads(of.id) == uploads[1:]
    assert store.objects.used_files([part.file]) == set()
    with pytest.raises(NotFound):
        store.objects.upload(of.id, "other", uploads[1].id)


def test_changes_are_noted_in_their_transaction(store: Store) -> None:
    noted: list[ObjectChange] = []

    def note(_connection: Connection, change: ObjectChange) -> None:
        noted.append(change)

    of = add_bucket(store)
    objects = SqlObjects(store.database, note)  # type: ignore[attr-defined]
    first, second, upload = object_in(of), object_in(of), upload_in(of, "u")
    objects.put(first, [piece_of(first)])
    objects.put(second, [piece_of(second)])
    renamed, _ = objects.rename(second, "b", 3.0)
    objects.delete(of.id, "b", 9.0)
    objects.begin_upload(upload)
    objects.put_part(part := piece_of(upload))
    objects.complete(upload, whole := object_in(of, "u", content=upload.id), [part])
    assert noted == [
        ObjectChange(ChangeKind.CREATED, of, first, 2.5),
        ObjectChange(ChangeKind.REPLACED, of, second, 2.5),
        ObjectChange(ChangeKind.DELETED, of, second, 3.0),
        ObjectChange(ChangeKind.CREATED, of, renamed, 3.0),
        ObjectChange(ChangeKind.DELETED, of, renamed, 9.0),
        ObjectChange(ChangeKind.CREATED, of, whole, 2.5),
    ]

    def fail(_connection: Connection, _change: ObjectChange) -> None:
        raise Conflict("not noted")

    lost = object_in(of, "lost")
    with pytest.raises(Conflict, match="not noted"):
        SqlObjects(store.database, fail).put(lost, [piece_of(lost)])  # type: ignore[attr-defined]
    with pytest.raises(NotFound):
        store.objects.get(of.id, "lost")
    assert store.objects.pieces(lost.content) == []


def test_changes_are_events_for_who_listens(store: Store) -> None:
    of, quiet = add_bucket(store), add_bucket(store, "quiet", project="vision")
    with store.database.transaction() as connection:  # type: ignore[attr-defined]
        kinds = ("object.created", "object.deleted")
        set_listener(connection, "l", ListenerKind.TRIGGER, PROJECT, kinds)
    for bucket_of in (of, quiet):
        for _ in range(2):
            put(store, object_in(bucket_of, "a/b"))
        store.objects.delete(bucket_of.id, "a/b", 9.0)
    found = [one.entry for one in store.outbox.pending(ListenerKind.TRIGGER, limit=9)]
    assert [(one.type, one.subject, one.project, one.time) for one in found] == [
        ("object.created", "objects/models/a/b", PROJECT, 2.5),
        ("object.deleted", "objects/models/a/b", PROJECT, 9.0),
    ]
    assert found[0].data["bucket"] == "models"
    assert (found[0].data["name"], found[0].data["size"]) == ("a/b", 3)
    assert found[0].data["content_type"] == "text/plain"
