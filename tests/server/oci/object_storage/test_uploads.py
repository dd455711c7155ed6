"""Uploads in parts, through the SDK of OCI."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.oci_storage import NS, Storage

oci = pytest.importorskip("oci")
models = oci.object_storage.models
Refused = Callable[..., tuple[int, str | None]]


def begin(client: Any, bucket: str, name: str = "big", **more: Any) -> str:
    details = models.CreateMultipartUploadDetails(object=name, **more)
    return str(client.create_multipart_upload(NS, bucket, details).data.upload_id)


def commit(
    client: Any, bucket: str, upload: str, etags: dict[int, str], *exclude: int, **named: Any
) -> Any:
    parts = [
        models.CommitMultipartUploadPartDetails(part_num=number, etag=etag)
        for number, etag in etags.items()
    ]
    details = models.CommitMultipartUploadDetails(
        parts_to_commit=parts, parts_to_exclude=[*exclude]
    )
    return client.commit_multipart_upload(NS, bucket, "big", upload, details, **named)


def send(client: Any, bucket: str, upload: str, bodies: dict[int, bytes]) -> dict[int, str]:
    return {
        number: client.upload_part(NS, bucket, "big", upload, number, body).headers["etag"]
        for number, body in bodies.items()
    }


def test_an_object_of_parts(storage: Storage, client: Any, bucket: str) -> None:
    before = storage.files()
    upload = begin(client, bucket, content_type="text/plain", metadata={"opc-meta-a": "b"})
    etags = send(client, bucket, upload, {3: b"333", 1: b"1", 2: b"22"})
    assert client.list_objects(NS, bucket).data.objects == []
    parts = client.list_multipart_upload_parts(NS, bucket, "big", upload).data
    assert [(one.part_number, one.size, one.etag) for one in parts] == [
        (number, number, etags[number]) for number in (1, 2, 3)
    ]
    pages = oci.pagination.list_call_get_all_results
    listed = pages(client.list_multipart_upload_parts, NS, bucket, "big", upload, limit=1).data
    assert [one.part_number for one in listed] == [1, 2, 3]
    (one,) = client.list_multipart_uploads(NS, bucket).data
    assert (one.object, one.upload_id, one.bucket) == ("big", upload, bucket)
    del etags[2]
    done = commit(client, bucket, upload, etags, 2)
    digests = b"".join(hashlib.md5(body).digest() for body in (b"1", b"333"))
    whole = base64.b64encode(hashlib.md5(digests).digest()).decode()
    assert done.headers["opc-multipart-md5"] == f"{whole}-2"
    got = client.get_object(NS, bucket, "big")
    assert got.data.content == b"1333"
    assert got.headers["opc-multipart-md5"] == f"{whole}-2"
    assert "content-md5" not in got.headers
    assert (got.headers["content-type"], got.headers["opc-meta-a"]) == ("text/plain", "b")
    assert client.get_object(NS, bucket, "big", range="bytes=0-1").data.content == b"13"
    assert client.get_object(NS, bucket, "big", range="bytes=-2").data.content == b"33"
    assert client.list_multipart_uploads(NS, bucket).data == []
    assert len(storage.files() - before) == 2


def test_the_upload_manager(client: Any, bucket: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(7 << 20) + b"end")
    manager = oci.object_storage.UploadManager(client, allow_parallel_uploads=True)
    named = {"part_size": 2 << 20, "metadata": {"a": "b"}, "content_type": "text/x"}
    done = manager.upload_file(NS, bucket, "a/file", str(file), **named)
    assert done.headers["opc-multipart-md5"].endswith("-4")
    got = client.get_object(NS, bucket, "a/file")
    assert got.data.content == file.read_bytes()
    assert (got.headers["opc-meta-a"], got.headers["content-type"]) == ("b", "text/x")
    with open(file, "rb") as stream:
        manager.upload_stream(NS, bucket, "a/stream", stream, part_size=2 << 20)
    assert client.get_object(NS, bucket, "a/stream").data.content == file.read_bytes()
    manager.upload_file(NS, bucket, "a/whole", str(file))
    assert client.head_object(NS, bucket, "a/whole").headers["content-md5"]


def test_parts_that_cannot_be_committed(client: Any, bucket: str, refused: Refused) -> None:
    upload = begin(client, bucket)
    etags = send(client, bucket, upload, {1: b"1", 2: b"2"})
    invalid = (400, "InvalidUploadPart")
    assert refused(commit, client, bucket, upload, {1: etags[1]}) == invalid
    assert refused(commit, client, bucket, upload, {**etags, 3: "x"}) == invalid
    assert refused(commit, client, bucket, upload, {**etags, 2: "x"}) == invalid
    assert refused(commit, client, bucket, upload, etags, 2) == invalid
    assert refused(commit, client, bucket, upload, {}, 1, 2) == (400, "InvalidParameter")
    again = send(client, bucket, upload, {2: b"two"})
    assert refused(commit, client, bucket, upload, etags) == invalid
    commit(client, bucket, upload, etags | again)
    assert client.get_object(NS, bucket, "big").data.content == b"1two"


@pytest.mark.parametrize("number", [0, 10_001])
def test_numbers_that_no_part_has(client: Any, bucket: str, number: int, refused: Refused) -> None:
    upload = begin(client, bucket)
    assert refused(client.upload_part, NS, bucket, "big", upload, number, b"1") == (
        400,
        "InvalidParameter",
    )


def test_an_upload_that_has_ended(storage: Storage, bucket: str, refused: Refused) -> None:
    client, before = storage.clients["sam"], storage.files()
    upload = begin(client, bucket)
    send(client, bucket, upload, {1: b"1"})
    client.abort_multipart_upload(NS, bucket, "big", upload)
    gone = (404, "NoSuchUpload")
    assert refused(client.upload_part, NS, bucket, "big", upload, 1, b"1") == gone
    assert refused(client.abort_multipart_upload, NS, bucket, "big", upload) == gone
    assert refused(client.list_multipart_upload_parts, NS, bucket, "big", upload) == gone
    assert refused(commit, client, bucket, upload, {1: "x"}) == gone
    assert storage.files() == before


def test_conditions_of_uploads(client: Any, bucket: str, refused: Refused) -> None:
    create, failed = client.create_multipart_upload, (412, "IfNoneMatchFailed")
    details = models.CreateMultipartUploadDetails(object="big")
    upload = begin(client, bucket)
    etags = send(client, bucket, upload, {1: b"1"})
    client.put_object(NS, bucket, "big", b"first")
    assert refused(create, NS, bucket, details, if_none_match="*") == failed
    assert refused(commit, client, bucket, upload, etags, if_none_match="*") == failed
    assert client.get_object(NS, bucket, "big").data.content == b"first"
    commit(client, bucket, upload, etags)
    assert client.get_object(NS, bucket, "big").data.content == b"1"
