"""The namespace and its buckets, through the SDK of OCI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muster.spec.ocids import TENANCY, user_ocid
from muster.store.account_records import AuditFilter
from support.oci_storage import NS, SOUND, VISION, Storage

oci = pytest.importorskip("oci")
models = oci.object_storage.models
Refused = Callable[..., tuple[int, str | None]]


def details(name: str, compartment: str = VISION, **more: Any) -> Any:
    return models.CreateBucketDetails(name=name, compartment_id=compartment, **more)


def test_the_namespace(client: Any, refused: Refused) -> None:
    assert client.get_namespace().data == NS
    assert client.get_namespace_metadata(NS).data.default_s3_compartment_id == TENANCY
    assert refused(client.get_namespace_metadata, "other") == (404, "NamespaceNotFound")
    assert refused(client.get_bucket, "other", "b") == (404, "NamespaceNotFound")


def test_a_bucket_is_shown_as_it_was_created(storage: Storage, client: Any) -> None:
    tags = {"freeform_tags": {"a": "b"}, "defined_tags": {"n": {"k": "v"}}}
    given = details("shown", metadata={"team": "ml"}, object_events_enabled=True, **tags)
    made = client.create_bucket(NS, given)
    got = client.get_bucket(NS, "shown", fields=["approximateCount", "approximateSize"])
    for answer in (made, got):
        found = answer.data
        assert (found.name, found.namespace, found.compartment_id) == ("shown", NS, VISION)
        assert (found.metadata, found.object_events_enabled) == ({"team": "ml"}, True)
        assert (found.freeform_tags, found.defined_tags) == ({"a": "b"}, {"n": {"k": "v"}})
        assert found.created_by == user_ocid("anouk")
        assert found.id.startswith("ocid1.bucket.")
        assert (found.storage_tier, found.versioning) == ("Standard", "Disabled")
        assert found.public_access_type == "NoPublicAccess"
        assert answer.headers["etag"] == found.etag
    client.put_object(NS, "shown", "a", b"123")
    found = client.get_bucket(NS, "shown", fields=["approximateCount", "approximateSize"]).data
    assert (found.approximate_count, found.approximate_size) == (1, 3)
    assert client.head_bucket(NS, "shown").headers["etag"] == found.etag


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"public_access_type": "ObjectRead"}, "publicAccessType"),
        ({"storage_tier": "Archive"}, "storageTier"),
        ({"versioning": "Enabled"}, "versioning"),
        ({"auto_tiering": "InfrequentAccess"}, "autoTiering"),
        ({"kms_key_id": "ocid1.key.oc1..x"}, "kmsKeyId"),
    ],
)
def test_what_a_bucket_cannot_have_is_refused(client: Any, more: dict[str, str], word: str) -> None:
    with pytest.raises(oci.exceptions.ServiceError, match=word) as caught:
        client.create_bucket(NS, details("refused", **more))
    assert (caught.value.status, caught.value.code) == (400, "InvalidParameter")


@pytest.mark.parametrize("name", ["", "a/b", "ä", "x" * 257])
def test_names_that_no_bucket_has(client: Any, name: str, refused: Refused) -> None:
    assert refused(client.create_bucket, NS, details(name)) == (400, "InvalidBucketName")


def test_a_name_is_taken_in_all_projects(
    storage: Storage, client: Any, bucket: str, refused: Refused
) -> None:
    taken = (409, "BucketAlreadyExists")
    assert refused(client.create_bucket, NS, details(bucket)) == taken
    assert refused(storage.clients["oscar"].create_bucket, NS, details(bucket, SOUND)) == taken
    renamed = models.UpdateBucketDetails(name=bucket)
    assert refused(client.update_bucket, NS, storage.bucket(), renamed) == taken


def test_a_bucket_is_updated(client: Any, bucket: str, refused: Refused) -> None:
    before = client.get_bucket(NS, bucket).data.etag
    change = models.UpdateBucketDetails(name=f"{bucket}-new", metadata={"a": "b"})
    assert refused(client.update_bucket, NS, bucket, change, if_match="other") == (
        412,
        "IfMatchFailed",
    )
    after = client.update_bucket(NS, bucket, change, if_match=before).data
    assert (after.name, after.metadata) == (f"{bucket}-new", {"a": "b"})
    assert after.etag != before
    assert refused(client.get_bucket, NS, bucket) == (404, "BucketNotFound")
    assert refused(client.delete_bucket, NS, f"{bucket}-new", if_match=before)[0] == 412
    client.delete_bucket(NS, f"{bucket}-new", if_match=after.etag)


def test_only_an_empty_bucket_is_deleted(client: Any, bucket: str, refused: Refused) -> None:
    client.put_object(NS, bucket, "a", b"1")
    assert refused(client.delete_bucket, NS, bucket) == (409, "BucketNotEmpty")
    client.delete_object(NS, bucket, "a")
    client.delete_bucket(NS, bucket)
    assert refused(client.delete_bucket, NS, bucket) == (404, "BucketNotFound")


def test_lists_have_pages_and_are_of_one_project(storage: Storage) -> None:
    client = storage.clients["oscar"]
    before = {one.name for one in client.list_buckets(NS, SOUND).data}
    for name in ("page-b", "page-a"):
        client.create_bucket(NS, details(name, SOUND, freeform_tags={"a": "b"}))
    storage.bucket()
    pages = oci.pagination.list_call_get_all_results
    found = pages(client.list_buckets, NS, SOUND, limit=1, fields=["tags"]).data
    assert [one.name for one in found if one.name not in before] == ["page-a", "page-b"]
    assert {one.compartment_id for one in found} == {SOUND}
    assert {"a": "b"} in [one.freeform_tags for one in found]


def test_maintainers_create_and_delete_buckets(storage: Storage, refused: Refused) -> None:
    mara, missing = storage.clients["mara"], (404, "NotAuthorizedOrNotFound")
    mara.create_bucket(NS, details("of-mara"))
    for user in ("sam", "vera", "oscar", "nora"):
        client = storage.clients[user]
        assert refused(client.create_bucket, NS, details("of-others")) == missing
        assert refused(client.delete_bucket, NS, "of-mara") == (404, "BucketNotFound")
        change = models.UpdateBucketDetails(metadata={"a": "b"})
        assert refused(client.update_bucket, NS, "of-mara", change) == (404, "BucketNotFound")
    for user in ("oscar", "nora"):
        assert refused(storage.clients[user].list_buckets, NS, VISION) == missing
    move = models.UpdateBucketDetails(compartment_id=SOUND)
    assert refused(mara.update_bucket, NS, "of-mara", move) == missing
    mara.delete_bucket(NS, "of-mara")
    log = storage.teams.backend.store.audit.listing(AuditFilter())
    noted = [entry.action for entry in log if entry.object == "of-mara" and entry.user == "mara"]
    assert noted == ["oci.buckets.delete", "oci.buckets.create"]
