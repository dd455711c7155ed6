"""The namespace and its buckets (OCI: NamespaceMetadata, Bucket)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from muster.describe.times import time_text_ms
from muster.errors import Conflict
from muster.iam.resources import variables_of_bucket, variables_of_new_bucket
from muster.identity import DEFAULT_PROJECT, new_id
from muster.permissions import Permission
from muster.server.answers import Answer, encoded, matches
from muster.server.oci.errors import OciError, invalid
from muster.server.oci.object_storage.places import (
    check_bucket_name,
    find_bucket,
    namespace_of,
)
from muster.server.oci.request import OciRequest
from muster.spec.formats.oci.model import plain
from muster.spec.formats.oci.object_model import BucketDetails, CreateBucket, UpdateBucket
from muster.spec.ocids import ocid, user_ocid
from muster.store.object_records import BucketRecord

#: Buckets of a page: by default, and at most (OCI).
_PAGE, _LARGEST_PAGE = 25, 1000
#: The settings that are kept, by their names on the wire, and what they are by default.
_KEPT: Mapping[str, Any] = {
    "metadata": {},
    "freeformTags": {},
    "definedTags": {},
    "objectEventsEnabled": False,
}
#: What a bucket cannot have here: the field, and the one value that it has.
_FIXED = {
    "publicAccessType": "NoPublicAccess",
    "storageTier": "Standard",
    "versioning": "Disabled",
    "autoTiering": "Disabled",
}


def get_namespace(request: OciRequest) -> Answer:
    """GET /n"""
    return Answer(encoded(namespace_of(request)))


def get_namespace_metadata(request: OciRequest) -> Answer:
    """GET /n/{namespace}"""
    compartment = request.compartments.ocid(DEFAULT_PROJECT)
    return Answer(
        encoded(
            {
                "namespace": namespace_of(request),
                "defaultS3CompartmentId": compartment,
                "defaultSwiftCompartmentId": compartment,
            }
        )
    )


def create_bucket(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b"""
    namespace_of(request)
    given = request.read(CreateBucket)
    name, now = check_bucket_name(given.name), time.time()
    on = variables_of_new_bucket(name)
    project = request.project_with(given.compartment_id, request.permission, on)
    settings = {**_KEPT, **_settings(given)}
    bucket = BucketRecord(new_id(), name, project, request.principal.user, now, now, settings)
    buckets = request.store.buckets

    def insert() -> None:
        if not buckets.insert(bucket):
            raise _name_taken(name)

    request.act(project, request.permission, "oci.buckets.create", name, insert, on)
    return _answer(request, buckets.by_id(bucket.id))


def list_buckets(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b"""
    namespace_of(request)
    project = request.project_of(request.required("compartmentId"))
    sees = request.seen(project, request.permission)
    limit = request.number("limit", _PAGE, 1, _LARGEST_PAGE)
    assert limit is not None
    listed = _every(request, project, limit + 1)
    found = [*islice((one for one in listed if sees(variables_of_bucket(one))), limit + 1)]
    shown = [_summary(request, bucket) for bucket in found[:limit]]
    return paged(shown, None if len(found) <= limit else found[limit - 1].name)


def _every(request: OciRequest, project: str, page: int) -> Iterator[BucketRecord]:
    """The buckets of a project after those of the page before, of which a page is in memory at a
    time."""
    after = request.given("page")
    while True:
        found = request.store.buckets.listing(project, limit=page, after=after)
        yield from found
        if len(found) < page:
            return
        after = found[-1].name


def get_bucket(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}"""
    return _answer(request, find_bucket(request))


def head_bucket(request: OciRequest) -> Answer:
    """HEAD /n/{namespace}/b/{bucket}"""
    bucket = find_bucket(request)
    return Answer(headers={"etag": _etag(bucket)})


def update_bucket(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b/{bucket}"""
    before, given = find_bucket(request), request.read(UpdateBucket)
    _check_match(request, before)
    project = before.project
    if given.compartment_id is not None:
        creates, on = Permission.BUCKET_CREATE, variables_of_bucket(before)
        project = request.project_with(given.compartment_id, creates, on)
    after = replace(
        before,
        name=check_bucket_name(given.name or before.name),
        project=project,
        updated_at=time.time(),
        settings={**before.settings, **_settings(given)},
    )

    def update() -> BucketRecord:
        try:
            return request.store.buckets.update(before, after)
        except Conflict:
            if after.name != before.name:
                raise _name_taken(after.name) from None
            raise

    made = request.act(
        *(before.project, request.permission, "oci.buckets.update", before.name, update),
        variables_of_bucket(before),
    )
    return _answer(request, made)


def delete_bucket(request: OciRequest) -> Answer:
    """DELETE /n/{namespace}/b/{bucket}"""
    bucket = find_bucket(request)
    _check_match(request, bucket)

    def delete() -> None:
        try:
            request.store.buckets.delete(bucket.id)
        except Conflict as error:
            text = f"The bucket named '{bucket.name}' is not empty: {error}"
            raise OciError(409, "BucketNotEmpty", text) from None

    request.act(
        *(bucket.project, request.permission, "oci.buckets.delete", bucket.name, delete),
        variables_of_bucket(bucket),
    )
    return Answer(status=204)


def list_nothing(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}/replicationPolicies and .../replicationSources: no bucket has
    any, and clients that empty one look."""
    find_bucket(request)
    return Answer(b"[]")


def list_retention_rules(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}/retentionRules: no bucket has any."""
    find_bucket(request)
    return Answer(encoded({"items": []}))


def paged(shown: Sequence[Any], next_page: str | None) -> Answer:
    """A page of a list. next_page: None for the last one, which may not have the header."""
    headers = {} if next_page is None else {"opc-next-page": next_page}
    return Answer(encoded(shown), headers=headers)


def _settings(given: BucketDetails) -> dict[str, Any]:
    """What a request sets. Raises OciError for what a bucket cannot have here."""
    fields = plain(given)
    for name, only in _FIXED.items():
        if fields.get(name) not in (None, only):
            raise invalid(f"{name} has to be {only} on this server, not {fields[name]}")
    if given.kms_key_id:
        raise invalid("kmsKeyId is not possible on this server, which has no keys of buckets")
    return {name: fields[name] for name in _KEPT if fields.get(name) is not None}


def _name_taken(name: str) -> OciError:
    text = (
        f"Either the bucket '{name}' already exists in the namespace or you are not authorized to "
        "create it"
    )
    return OciError(409, "BucketAlreadyExists", text)


def _etag(bucket: BucketRecord) -> str:
    return f"{bucket.id}-{bucket.version}"


def _check_match(request: OciRequest, bucket: BucketRecord) -> None:
    given = request.header("if-match")
    if given and not matches(given.replace('"', ""), _etag(bucket)):
        raise OciError(412, "IfMatchFailed", "The bucket has changed since it was read")


def _summary(request: OciRequest, bucket: BucketRecord) -> dict[str, Any]:
    shown = {
        "namespace": namespace_of(request),
        "name": bucket.name,
        "compartmentId": request.compartments.ocid(bucket.project),
        "createdBy": user_ocid(bucket.created_by),
        "timeCreated": time_text_ms(bucket.created_at),
        "etag": _etag(bucket),
    }
    if "tags" in (request.given("fields") or "").split(","):
        shown |= {name: bucket.settings[name] for name in ("freeformTags", "definedTags")}
    return shown


def _answer(request: OciRequest, bucket: BucketRecord) -> Answer:
    shown = _summary(request, bucket) | {
        **{name: bucket.settings.get(name, default) for name, default in _KEPT.items()},
        **_FIXED,
        "id": ocid("bucket", bucket.id),
        "kmsKeyId": None,
        "objectLifecyclePolicyEtag": None,
        "isReadOnly": False,
        "replicationEnabled": False,
        "approximateCount": None,
        "approximateSize": None,
    }
    fields = (request.given("fields") or "").split(",")
    if "approximateCount" in fields or "approximateSize" in fields:
        use = request.store.buckets.use(bucket.id)
        shown |= {"approximateCount": use.count, "approximateSize": use.size}
    return Answer(encoded(shown), headers={"etag": _etag(bucket)})
