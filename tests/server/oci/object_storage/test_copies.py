"""Renames and copies, through the SDK of OCI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.oci_storage import NS, VISION, Storage

oci = pytest.importorskip("oci")
models = oci.object_storage.models
Refused = Callable[..., tuple[int, str | None]]


def rename(client: Any, bucket: str, source: str, new: str, **more: str) -> Any:
    details = models.RenameObjectDetails(source_name=source, new_name=new, **more)
    return client.rename_object(NS, bucket, details)


def copy(client: Any, bucket: str, source: str, to: str, new: str, **more: Any) -> Any:
    details = models.CopyObjectDetails(
        source_object_name=source,
        destination_region="us-ashburn-1",
        destination_namespace=NS,
        destination_bucket=to,
        destination_object_name=new,
        **more,
    )
    return client.copy_object(NS, bucket, details)


def test_a_rename(storage: Storage, client: Any, bucket: str, refused: Refused) -> None:
    etag = client.put_object(NS, bucket, "a", b"1").headers["etag"]
    client.put_object(NS, bucket, "b", b"2")
    before = storage.files()
    failed = (412, "IfNoneMatchFailed")
    assert refused(rename, client, bucket, "a", "b", new_obj_if_none_match_e_tag="*") == failed
    failed = (412, "IfMatchFailed")
    assert refused(rename, client, bucket, "a", "b", src_obj_if_match_e_tag="x") == failed
    assert refused(rename, client, bucket, "x", "b") == (404, "ObjectNotFound")
    assert refused(rename, client, bucket, "a", "a") == (409, "Conflict")
    assert rename(client, bucket, "a", "b").headers["etag"] == etag
    assert client.get_object(NS, bucket, "b").data.content == b"1"
    assert refused(client.get_object, NS, bucket, "a") == (404, "ObjectNotFound")
    assert len(before - storage.files()) == 1


def test_a_copy_and_its_work_request(
    storage: Storage, client: Any, bucket: str, refused: Refused
) -> None:
    other = storage.bucket()
    put = client.put_object(NS, bucket, "a", b"1", content_type="text/x", opc_meta={"k": "v"})
    assert refused(copy, client, bucket, "x", other, "b") == (404, "ObjectNotFound")
    failed = (412, "IfMatchFailed")
    assert (
        refused(copy, client, bucket, "a", other, "b", source_object_if_match_e_tag="x") == failed
    )
    done = copy(client, bucket, "a", other, "b")
    assert done.status == 202
    wait = oci.wait_until(
        client,
        client.get_work_request(done.headers["opc-work-request-id"]),
        "status",
        "COMPLETED",
    )
    assert (wait.data.operation_type, wait.data.percent_complete) == ("COPY_OBJECT", 100.0)
    assert wait.data.compartment_id == VISION
    assert [one.identifier for one in wait.data.resources] == ["a", "b"]
    assert client.list_work_request_errors(wait.data.id).data == []
    assert wait.data.id in [one.id for one in client.list_work_requests(VISION).data]
    missing = (404, "NotAuthorizedOrNotFound")
    assert refused(storage.clients["oscar"].get_work_request, wait.data.id) == missing
    client.delete_object(NS, bucket, "a")
    got = client.get_object(NS, other, "b")
    assert got.data.content == b"1"
    assert (got.headers["content-type"], got.headers["opc-meta-k"]) == ("text/x", "v")
    assert got.headers["etag"] != put.headers["etag"]
    failed = (412, "IfNoneMatchFailed")
    named = {"destination_object_if_none_match_e_tag": "*"}
    client.put_object(NS, bucket, "a", b"2")
    before = storage.files()
    assert refused(copy, client, bucket, "a", other, "b", **named) == failed
    assert storage.files() == before
    copy(client, bucket, "a", other, "b", destination_object_metadata={"n": "m"})
    got = client.get_object(NS, other, "b")
    assert (got.data.content, got.headers["opc-meta-n"]) == (b"2", "m")
    assert "opc-meta-k" not in got.headers
