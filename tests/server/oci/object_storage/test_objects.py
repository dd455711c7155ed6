"""Objects through the SDK of OCI."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from support.faults import until
from support.oci_storage import NS, SOUND, Storage

oci = pytest.importorskip("oci")
models = oci.object_storage.models
Refused = Callable[..., tuple[int, str | None]]


def test_an_object_comes_back_as_it_was_put(client: Any, bucket: str) -> None:
    body = b"word" * 1000
    put = client.put_object(
        NS,
        bucket,
        "a folder/näme %2F?#.txt",
        body,
        content_type="text/plain",
        content_language="en",
        content_encoding="identity",
        content_disposition='attachment; filename="a.txt"',
        cache_control="max-age=5",
        opc_meta={"Epoch": "7"},
        opc_client_request_id="mine",
    )
    digest = base64.b64encode(hashlib.md5(body).digest()).decode()
    assert put.headers["opc-content-md5"] == digest
    assert put.headers["opc-client-request-id"] == "mine"
    got = client.get_object(NS, bucket, "a folder/näme %2F?#.txt")
    assert got.data.content == body
    head = client.head_object(NS, bucket, "a folder/näme %2F?#.txt")
    for answer in (got, head):
        shown = answer.headers
        assert shown["content-length"] == "4000"
        assert shown["content-md5"] == digest
        assert shown["etag"] == put.headers["etag"]
        assert shown["content-type"] == "text/plain"
        assert shown["content-language"] == "en"
        assert shown["content-encoding"] == "identity"
        assert shown["content-disposition"] == 'attachment; filename="a.txt"'
        assert shown["cache-control"] == "max-age=5"
        assert shown["opc-meta-epoch"] == "7"
        assert shown["last-modified"].endswith("GMT")
        assert shown["accept-ranges"] == "bytes"
        assert shown["storage-tier"] == "Standard"


def test_an_empty_object(client: Any, bucket: str) -> None:
    client.put_object(NS, bucket, "empty", b"")
    got = client.get_object(NS, bucket, "empty")
    assert (got.data.content, got.headers["content-length"]) == (b"", "0")
    assert client.head_object(NS, bucket, "empty").headers["content-length"] == "0"


@pytest.mark.parametrize(
    ("given", "expected", "content_range"),
    [
        ("bytes=0-0", b"0", "bytes 0-0/10"),
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=5-100", b"56789", "bytes 5-9/10"),
        ("bytes=-100", b"0123456789", "bytes 0-9/10"),
        ("bytes=0-9", b"0123456789", "bytes 0-9/10"),
    ],
)
def test_ranges(client: Any, bucket: str, given: str, expected: bytes, content_range: str) -> None:
    client.put_object(NS, bucket, "digits", b"0123456789")
    got = client.get_object(NS, bucket, "digits", range=given)
    assert (got.status, got.data.content) == (206, expected)
    assert got.headers["content-range"] == content_range


def test_a_range_that_is_not_there(client: Any, bucket: str, refused: Refused) -> None:
    client.put_object(NS, bucket, "digits", b"0123456789")
    assert refused(client.get_object, NS, bucket, "digits", range="bytes=10-") == (
        416,
        "InvalidRange",
    )


def test_the_query_replaces_headers(client: Any, bucket: str, refused: Refused) -> None:
    client.put_object(NS, bucket, "a", b"1", content_type="text/plain")
    named = {"http_response_content_type": "text/x", "http_response_expires": "0"}
    got = client.get_object(NS, bucket, "a", **named)
    assert (got.headers["content-type"], got.headers["expires"]) == ("text/x", "0")
    assert got.data.content == b"1"
    evil = {"http_response_content_type": "text/x\r\nset-cookie: a=b"}
    assert refused(client.get_object, NS, bucket, "a", **evil) == (400, "InvalidParameter")


def test_conditions(client: Any, bucket: str, refused: Refused) -> None:
    put, get = client.put_object, client.get_object
    assert refused(put, NS, bucket, "a", b"1", if_match="*") == (412, "IfMatchFailed")
    first = put(NS, bucket, "a", b"1", if_none_match="*").headers["etag"]
    assert refused(put, NS, bucket, "a", b"2", if_none_match="*") == (412, "IfNoneMatchFailed")
    second = put(NS, bucket, "a", b"2", if_match=first).headers["etag"]
    assert second != first
    assert refused(put, NS, bucket, "a", b"3", if_match=first) == (412, "IfMatchFailed")
    assert refused(get, NS, bucket, "a", if_match=first) == (412, "IfMatchFailed")
    assert get(NS, bucket, "a", if_match=second).data.content == b"2"
    assert get(NS, bucket, "a", if_none_match=first).data.content == b"2"
    assert refused(get, NS, bucket, "a", if_none_match=second)[0] == 304
    head = client.head_object
    assert refused(head, NS, bucket, "a", if_match=first)[0] == 412
    delete = client.delete_object
    assert refused(delete, NS, bucket, "a", if_match=first) == (412, "IfMatchFailed")
    delete(NS, bucket, "a", if_match=second)
    assert refused(get, NS, bucket, "a") == (404, "ObjectNotFound")
    assert refused(delete, NS, bucket, "a") == (404, "ObjectNotFound")


def test_of_conditional_puts_at_once_one_wins(storage: Storage, bucket: str) -> None:
    client, before = storage.clients["sam"], storage.files()

    def put(number: int) -> int:
        try:
            client.put_object(NS, bucket, "a", str(number).encode(), if_none_match="*")
        except oci.exceptions.ServiceError as error:
            assert (error.status, error.code) == (412, "IfNoneMatchFailed")
            return -1
        return number

    with ThreadPoolExecutor(8) as pool:
        (winner,) = [number for number in pool.map(put, range(16)) if number >= 0]
    assert client.get_object(NS, bucket, "a").data.content == str(winner).encode()
    assert len(storage.files() - before) == 1


def test_a_body_that_was_damaged_is_refused(
    storage: Storage, client: Any, bucket: str, refused: Refused
) -> None:
    before = storage.files()
    other = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    named = {"content_md5": other}
    assert refused(client.put_object, NS, bucket, "a", b"1", **named) == (
        400,
        "UnmatchedContentMD5",
    )
    named = {"content_md5": "no digest"}
    assert refused(client.put_object, NS, bucket, "a", b"1", **named) == (400, "InvalidContentMD5")
    assert refused(client.get_object, NS, bucket, "a") == (404, "ObjectNotFound")
    assert storage.files() == before


def test_a_body_that_was_cut_off_is_no_object(
    storage: Storage, client: Any, bucket: str, refused: Refused
) -> None:
    before = storage.files()
    link = models.CreatePreauthenticatedRequestDetails(
        name="l", access_type="AnyObjectWrite", time_expires=datetime(2100, 1, 1, tzinfo=UTC)
    )
    path = client.create_preauthenticated_request(NS, bucket, link).data.access_uri
    for body in (b"half", b"h" * (3 << 20)):
        with closing(http.client.HTTPConnection("127.0.0.1", storage.teams.port)) as connection:
            connection.putrequest("PUT", f"{path}cut")
            connection.putheader("content-length", str(8 << 20))
            connection.endheaders()
            connection.send(body)
    # the server has noticed it when it has answered another one
    client.put_object(NS, bucket, "whole", b"1")
    assert refused(client.get_object, NS, bucket, "cut") == (404, "ObjectNotFound")
    until(lambda: len(storage.files() - before) == 1, "what was received is removed")


def test_a_full_disk_is_said_and_leaves_nothing(
    storage: Storage, bucket: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, before = storage.clients["sam"], storage.files()
    client.put_object(NS, bucket, "a", b"old")
    there = storage.files()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for broken in ("writev", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(f"muster.storage.objects.os.{broken}", full)
            for body in (b"1", b"1" * (3 << 20)):
                given = refused(client.put_object, NS, bucket, "a", body)
                assert given == (503, "ServiceUnavailable")
    assert client.get_object(NS, bucket, "a").data.content == b"old"
    assert storage.files() == there > before


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "x" * 1025])
def test_names_that_no_object_has(client: Any, bucket: str, name: str, refused: Refused) -> None:
    assert refused(client.put_object, NS, bucket, name, b"1") == (400, "InvalidObjectName")


def test_a_replaced_object_leaves_no_file(storage: Storage, client: Any, bucket: str) -> None:
    before = storage.files()
    for number in range(3):
        client.put_object(NS, bucket, "a", str(number).encode())
    assert len(storage.files() - before) == 1
    client.delete_object(NS, bucket, "a")
    assert storage.files() == before


def test_an_object_that_is_replaced_while_it_is_read(
    storage: Storage, client: Any, bucket: str
) -> None:
    body = b"a" * (64 << 20)
    client.put_object(NS, bucket, "a", body)
    got = client.get_object(NS, bucket, "a")
    chunks = got.data.raw.stream(1 << 20)
    first = next(chunks)
    client.put_object(NS, bucket, "a", b"b")
    assert first + b"".join(chunks) == body
    assert client.get_object(NS, bucket, "a").data.content == b"b"


def test_an_object_that_is_replaced_all_the_time_is_read_whole(
    storage: Storage, client: Any, bucket: str
) -> None:
    def put(number: int) -> None:
        client.put_object(NS, bucket, "a", bytes([number]) * (number * 10_007))

    def read(_: int) -> None:
        body = client.get_object(NS, bucket, "a").data.content
        assert body == bytes([body[0]]) * (body[0] * 10_007)

    put(1)
    with ThreadPoolExecutor(4) as pool:
        writing = pool.submit(lambda: [put(number % 50 + 1) for number in range(100)])
        for reading in [pool.submit(read, number) for number in range(150)]:
            reading.result()
        writing.result()


def listed(client: Any, bucket: str, **query: Any) -> tuple[list[str], list[str] | None, Any]:
    found = client.list_objects(NS, bucket, **query).data
    return [one.name for one in found.objects], found.prefixes, found.next_start_with


def test_lists(client: Any, bucket: str, refused: Refused) -> None:
    for name in ("a", "b/1", "b/2", "b/c/3", "d", "é"):
        client.put_object(NS, bucket, name, b"1")
    assert listed(client, bucket) == (["a", "b/1", "b/2", "b/c/3", "d", "é"], None, None)
    assert listed(client, bucket, delimiter="/") == (["a", "d", "é"], ["b/"], None)
    assert listed(client, bucket, delimiter="/", prefix="b/") == (["b/1", "b/2"], ["b/c/"], None)
    assert listed(client, bucket, prefix="b/", limit=2) == (["b/1", "b/2"], None, "b/c/3")
    assert listed(client, bucket, delimiter="/", limit=2) == (["a"], ["b/"], "d")
    assert listed(client, bucket, start="b/2", end="é") == (["b/2", "b/c/3", "d"], None, None)
    assert listed(client, bucket, start_after="b/2") == (["b/c/3", "d", "é"], None, None)
    assert listed(client, bucket, prefix="none") == ([], None, None)
    (one,) = client.list_objects(NS, bucket, prefix="d", fields="size,etag,md5").data.objects
    assert (one.size, one.md5, one.time_created) == (1, "xMpCOKC5I4INzFCab3WEmw==", None)
    (one,) = client.list_objects(NS, bucket, prefix="d").data.objects
    assert (one.name, one.size) == ("d", None)
    pages = oci.pagination.list_call_get_all_results
    found = pages(client.list_objects, NS, bucket, limit=1).data.objects
    assert [one.name for one in found] == ["a", "b/1", "b/2", "b/c/3", "d", "é"]
    for query in ({"limit": 0}, {"limit": 1001}, {"delimiter": "x"}, {"prefix": "a\0"}):
        assert refused(client.list_objects, NS, bucket, **query) == (400, "InvalidParameter")


def test_many_objects_are_deleted_at_once(client: Any, bucket: str) -> None:
    for name in ("a", "b"):
        client.put_object(NS, bucket, name, b"1")
    names = [
        models.BatchDeleteObjectIdentifier(object_name="a"),
        models.BatchDeleteObjectIdentifier(object_name="b", if_match="other"),
        models.BatchDeleteObjectIdentifier(object_name="c"),
    ]
    details = models.BatchDeleteObjectsDetails(objects=names)
    found = client.batch_delete_objects(NS, bucket, details).data
    assert [one.object_name for one in found.deleted] == ["a"]
    assert [(one.object_name, one.status_code) for one in found.failed] == [("b", 412), ("c", 404)]
    assert listed(client, bucket)[0] == ["b"]


def test_there_is_one_version(client: Any, bucket: str, refused: Refused) -> None:
    old = client.put_object(NS, bucket, "a", b"1").headers["version-id"]
    new = client.put_object(NS, bucket, "a", b"2").headers["version-id"]
    missing = (404, "ObjectNotFound")
    assert refused(client.get_object, NS, bucket, "a", version_id=old) == missing
    assert refused(client.delete_object, NS, bucket, "a", version_id=old) == missing
    assert client.get_object(NS, bucket, "a", version_id=new).data.content == b"2"
    client.delete_object(NS, bucket, "a", version_id=new)


#: What each request about objects of a project gives a viewer, and whoever is no member.
WRITES: dict[str, Callable[[Any, str], Any]] = {
    "put": lambda client, bucket: client.put_object(NS, bucket, "new", b"1"),
    "delete": lambda client, bucket: client.delete_object(NS, bucket, "a"),
    "rename": lambda client, bucket: client.rename_object(
        NS, bucket, models.RenameObjectDetails(source_name="a", new_name="b")
    ),
    "upload": lambda client, bucket: client.create_multipart_upload(
        NS, bucket, models.CreateMultipartUploadDetails(object="u")
    ),
    "uploads": lambda client, bucket: client.list_multipart_uploads(NS, bucket),
    "link": lambda client, bucket: client.create_preauthenticated_request(
        NS,
        bucket,
        models.CreatePreauthenticatedRequestDetails(
            name="l", access_type="AnyObjectRead", time_expires=datetime(2100, 1, 1, tzinfo=UTC)
        ),
    ),
    "links": lambda client, bucket: client.list_preauthenticated_requests(NS, bucket),
    "batch": lambda client, bucket: client.batch_delete_objects(
        NS,
        bucket,
        models.BatchDeleteObjectsDetails(
            objects=[models.BatchDeleteObjectIdentifier(object_name="a")]
        ),
    ),
}
READS: dict[str, Callable[[Any, str], Any]] = {
    "get": lambda client, bucket: client.get_object(NS, bucket, "a"),
    "head": lambda client, bucket: client.head_object(NS, bucket, "a"),
    "list": lambda client, bucket: client.list_objects(NS, bucket),
    "bucket": lambda client, bucket: client.get_bucket(NS, bucket),
    "head bucket": lambda client, bucket: client.head_bucket(NS, bucket),
}


@pytest.mark.parametrize("what", [*WRITES, *READS])
@pytest.mark.parametrize("user", ["oscar", "nora"])
def test_nothing_is_told_to_who_is_no_member(
    storage: Storage, bucket: str, what: str, user: str, refused: Refused
) -> None:
    storage.clients["anouk"].put_object(NS, bucket, "a", b"1")
    call = (WRITES | READS)[what]
    status, code = refused(call, storage.clients[user], bucket)
    assert (status, code) == refused(call, storage.clients[user], "no-such-bucket")
    assert (status, code) in ((404, "BucketNotFound"), (404, None))
    assert storage.clients["anouk"].get_object(NS, bucket, "a").data.content == b"1"


@pytest.mark.parametrize("what", WRITES)
def test_viewers_do_not_write(storage: Storage, bucket: str, what: str, refused: Refused) -> None:
    storage.clients["sam"].put_object(NS, bucket, "a", b"1")
    assert refused(WRITES[what], storage.clients["vera"], bucket) == (404, "BucketNotFound")
    for read in READS.values():
        assert read(storage.clients["vera"], bucket).status == 200


def test_nothing_is_copied_between_projects_without_rights(
    storage: Storage, bucket: str, refused: Refused
) -> None:
    storage.clients["anouk"].put_object(NS, bucket, "a", b"1")
    details = models.CreateBucketDetails(name=f"{bucket}-sound", compartment_id=SOUND)
    storage.clients["oscar"].create_bucket(NS, details)
    for user, source, target in (
        ("oscar", bucket, f"{bucket}-sound"),
        ("anouk", bucket, f"{bucket}-sound"),
    ):
        copy = models.CopyObjectDetails(
            source_object_name="a",
            destination_region="us-ashburn-1",
            destination_namespace=NS,
            destination_bucket=target,
            destination_object_name="b",
        )
        given = refused(storage.clients[user].copy_object, NS, source, copy)
        assert given == (404, "BucketNotFound")
