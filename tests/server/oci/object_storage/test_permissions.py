"""Who may create, replace and see which objects: permissions that are given for some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from muster.permissions import Permission
from muster.server.oci.object_storage.places import Writable
from muster.store.object_records import BucketRecord, Condition, ConditionFailed
from support.judged import judge_signers, only
from support.oci_storage import NS, Storage
from support.teams import ask

oci = pytest.importorskip("oci")
models = oci.object_storage.models
CREATE, OVERWRITE = Permission.OBJECT_CREATE, Permission.OBJECT_OVERWRITE
READ, DELETE = Permission.OBJECT_READ, Permission.OBJECT_DELETE
#: Writes an object with a name into a bucket.
Write = Callable[[Any, str, str], Any]


def put(client: Any, bucket: str, name: str) -> None:
    client.put_object(NS, bucket, name, b"new")


def upload(client: Any, bucket: str, name: str) -> None:
    details = models.CreateMultipartUploadDetails(object=name)
    made = client.create_multipart_upload(NS, bucket, details).data.upload_id
    etag = client.upload_part(NS, bucket, name, made, 1, b"new").headers["etag"]
    part = models.CommitMultipartUploadPartDetails(part_num=1, etag=etag)
    done = models.CommitMultipartUploadDetails(parts_to_commit=[part])
    client.commit_multipart_upload(NS, bucket, name, made, done)


def copy(client: Any, bucket: str, name: str) -> None:
    details = models.CopyObjectDetails(
        source_object_name="source",
        destination_region="muster",
        destination_namespace=NS,
        destination_bucket=bucket,
        destination_object_name=name,
    )
    client.copy_object(NS, bucket, details)


def rename(client: Any, bucket: str, name: str) -> None:
    details = models.RenameObjectDetails(source_name="source", new_name=name)
    client.rename_object(NS, bucket, details)


@pytest.mark.parametrize("write", [put, upload, copy, rename])
@pytest.mark.parametrize(
    ("given", "name", "status"),
    [
        (CREATE, "missing", 200),
        (CREATE, "known", 404),
        (OVERWRITE, "missing", 404),
        (OVERWRITE, "known", 200),
    ],
)
def test_an_object_is_created_or_replaced(
    *,
    client: Any,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    write: Write,
    given: Permission,
    name: str,
    status: int,
) -> None:
    for one in ("known", "source"):
        client.put_object(NS, bucket, one, b"old")
    with monkeypatch.context() as patch:
        judge_signers(patch, only({given, READ, DELETE}))
        try:
            write(client, bucket, name)
        except oci.exceptions.ServiceError as error:
            assert (error.status, error.code) == (status, "BucketNotFound")
        else:
            assert status == 200
    names = {one.name for one in client.list_objects(NS, bucket).data.objects}
    assert (name in names) == (name == "known" or status == 200)
    if name == "known":
        content = client.get_object(NS, bucket, name).data.content
        assert (content == b"old") == (status == 404 or write in (copy, rename))


@pytest.mark.parametrize(
    ("creates", "replaces", "given", "etag", "fails"),
    [
        (True, True, Condition(), "a", False),
        (True, False, Condition(), None, False),
        (True, False, Condition(), "a", True),
        (True, False, Condition(if_match="a"), "a", True),
        (False, True, Condition(), "a", False),
        (False, True, Condition(), None, True),
        (False, True, Condition(if_none_match="b"), "a", False),
        (False, True, Condition(if_match="b"), "a", True),
    ],
)
def test_an_object_that_appears_or_disappears_meanwhile(
    *, creates: bool, replaces: bool, given: Condition, etag: str | None, fails: bool
) -> None:
    bucket = BucketRecord("abc", "data", "vision", "anouk", 0.0, 0.0, {})
    narrowed = Writable(bucket, creates, replaces).narrowed(given)
    if fails:
        with pytest.raises(ConditionFailed):
            narrowed.check(etag)
    else:
        narrowed.check(etag)


def of_folder(*permissions: Permission) -> Callable[[Permission, Mapping[str, str]], bool]:
    """Gives permissions for the objects of one folder."""

    def judge(permission: Permission, on: Mapping[str, str]) -> bool:
        return permission in permissions and on.get("target.object.name", "").startswith("own/")

    return judge


def test_a_folder_of_a_bucket(
    client: Any, bucket: str, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("own/a", "other/a", "own/b", "x")
    for name in names:
        client.put_object(NS, bucket, name, b"content")
    everything = of_folder(*Permission)
    judge_signers(monkeypatch, everything, by_variables=True)
    listed = client.list_objects(NS, bucket).data
    assert [one.name for one in listed.objects] == ["own/a", "own/b"]
    assert client.list_objects(NS, bucket, delimiter="/").data.prefixes == ["own/"]
    first = client.list_objects(NS, bucket, limit=1).data
    assert ([one.name for one in first.objects], first.next_start_with) == (["own/a"], "own/b")
    assert refused(client.list_objects, NS, bucket, prefix="other/") == (404, "BucketNotFound")
    for name in names:
        if name.startswith("own/"):
            assert client.get_object(NS, bucket, name).data.content == b"content"
            continue
        for method in (client.get_object, client.delete_object):
            assert refused(method, NS, bucket, name) == (404, "BucketNotFound")
        assert refused(put, client, bucket, name) == (404, "BucketNotFound")
        assert refused(upload, client, bucket, name) == (404, "BucketNotFound")
    wanted = [models.BatchDeleteObjectIdentifier(object_name=name) for name in names]
    details = models.BatchDeleteObjectsDetails(objects=wanted)
    done = client.batch_delete_objects(NS, bucket, details).data
    assert [one.object_name for one in done.deleted] == ["own/a", "own/b"]
    assert {(one.object_name, one.status_code) for one in done.failed} == {
        ("other/a", 404),
        ("x", 404),
    }


def test_a_link_does_what_its_creator_may_do_now(
    storage: Storage, client: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own/a", "x"):
        client.put_object(NS, bucket, name, b"content")
    details = models.CreatePreauthenticatedRequestDetails(
        name="all",
        access_type="AnyObjectReadWrite",
        bucket_listing_action="ListObjects",
        time_expires="2100-01-01T00:00:00Z",
    )
    link = client.create_preauthenticated_request(NS, bucket, details).data.access_uri

    def statuses() -> list[int]:
        port = storage.teams.port
        asked = [("GET", "own/a"), ("GET", "x"), ("PUT", "own/a"), ("PUT", "x"), ("PUT", "own/new")]
        bodies = {"PUT": b"new", "GET": None}
        return [ask(port, verb, link + name, body=bodies[verb]).status for verb, name in asked]

    judge_signers(monkeypatch, of_folder(READ, CREATE), by_variables=True)
    assert statuses() == [200, 404, 404, 404, 200]
    judge_signers(monkeypatch, of_folder(OVERWRITE), by_variables=True)
    assert statuses() == [404, 404, 200, 404, 200]
