"""Objects (OCI: Object)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from muster.caller import Caller, always
from muster.describe.times import time_text_ms
from muster.errors import NotFound
from muster.iam.resources import variables_of_bucket
from muster.identity import new_id
from muster.permissions import Permission
from muster.server.answers import Answer, Stream, encoded
from muster.server.oci.errors import OciError, invalid
from muster.server.oci.object_storage.errors import (
    bucket_not_found,
    condition_failed,
    object_not_found,
)
from muster.server.oci.object_storage.headers import (
    condition_of,
    in_base64,
    kept_headers,
    metadata_headers,
    object_headers,
)
from muster.server.oci.object_storage.places import (
    Writable,
    any_bucket,
    check_name,
    find_bucket,
    find_object,
    find_writable,
    namespace_of,
    seen_in,
)
from muster.server.oci.object_storage.transfers import receive, record_files, send_object
from muster.server.oci.request import OciRequest
from muster.spec.formats.oci.object_model import DeleteObjects
from muster.storage.objects import NewFile, discard
from muster.store.object_listing import ListQuery, list_page, seen_only
from muster.store.object_records import (
    BucketRecord,
    Condition,
    ConditionFailed,
    ObjectRecord,
    PieceRecord,
)

_LARGEST_PAGE = 1000
#: Objects that one request may delete (OCI).
_MOST_DELETED = 1000


async def put_object(request: OciRequest) -> Answer:
    """PUT /n/{namespace}/b/{bucket}/o/{object...}"""
    given = (request, request.path["bucket"], request.path["object"])
    place = await request.state.in_thread(find_writable, *given)
    return await store_body(request, place, request.path["object"])


async def store_body(request: OciRequest, place: Writable, name: str) -> Answer:
    """Store the body of a request as an object. Raises OciError."""
    check_name(name)
    bucket, condition = place.bucket, place.narrowed(condition_of(request.header))
    headers = kept_headers(request.header)
    metadata = metadata_headers(request.call.raw_headers)
    in_thread = request.state.in_thread
    await in_thread(check_condition, request, bucket, name, condition)
    file = await receive(request)
    record = _new_record(bucket, name, file, headers, metadata)
    await in_thread(_put, request, record, file, condition)
    written = {
        "etag": record.etag,
        "opc-content-md5": record.md5,
        "last-modified": object_headers(record)["last-modified"],
        "version-id": record.etag,
    }
    return Answer(headers=written)


def check_condition(
    request: OciRequest, bucket: BucketRecord, name: str, condition: Condition
) -> None:
    """Raises OciError if a condition does not hold now, before a body is read for nothing."""
    if not condition.if_match and not condition.if_none_match:
        return
    try:
        etag = request.store.objects.get(bucket.id, name).etag
    except NotFound:
        etag = None
    try:
        condition.check(etag)
    except ConditionFailed as error:
        raise condition_failed(error) from None


def _new_record(
    bucket: BucketRecord,
    name: str,
    file: NewFile,
    headers: Mapping[str, str],
    metadata: Mapping[str, str],
) -> ObjectRecord:
    now = time.time()
    return ObjectRecord(
        *(bucket.id, name, str(uuid4()), new_id(), file.size, in_base64(file.md5()), now, now),
        headers=headers,
        metadata=metadata,
    )


def _put(request: OciRequest, record: ObjectRecord, file: NewFile, condition: Condition) -> None:
    piece = PieceRecord(record.content, 1, file.name, record.size, record.etag, record.md5)
    objects = request.store.objects
    replaced = record_files(request, [file.name], lambda: objects.put(record, [piece], condition))
    discard(request.state.backend.home, replaced)


async def get_object(request: OciRequest) -> Answer | Stream:
    """GET and HEAD /n/{namespace}/b/{bucket}/o/{object...}"""
    bucket = await request.state.in_thread(find_bucket, request, request.path["object"])
    return await send_object(request, bucket, request.path["object"])


def delete_object(request: OciRequest) -> Answer:
    """DELETE /n/{namespace}/b/{bucket}/o/{object...}"""
    bucket = find_bucket(request, request.path["object"])
    name = check_name(request.path["object"])
    condition = Condition(request.header("if-match"))
    if request.given("versionId") is not None:
        condition = Condition(find_object(request, bucket, name).etag)
    delete_one(request, bucket, name, condition)
    return Answer(status=204, headers={"last-modified": _now()})


def _now() -> str:
    from email.utils import formatdate

    return formatdate(usegmt=True)


def delete_one(request: OciRequest, bucket: BucketRecord, name: str, condition: Condition) -> None:
    """Delete an object. Raises OciError."""
    try:
        files = request.store.objects.delete(bucket.id, name, time.time(), condition)
    except NotFound:
        raise object_not_found(name, bucket.name) from None
    except ConditionFailed as error:
        raise condition_failed(error) from None
    discard(request.state.backend.home, files)


def delete_objects(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b/{bucket}/actions/batchDeleteObjects"""
    bucket, given = any_bucket(request, request.path["bucket"]), request.read(DeleteObjects)
    may_delete = seen_in(request, bucket, request.permission)
    if len(given.objects) > _MOST_DELETED:
        raise invalid(f"at most {_MOST_DELETED} objects can be deleted at once")
    deleted: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for one in given.objects:
        try:
            if not may_delete(variables_of_bucket(bucket, one.object_name)):
                raise object_not_found(one.object_name, bucket.name)
            delete_one(request, bucket, one.object_name, Condition(one.if_match or ""))
        except OciError as error:
            failed.append(
                {
                    "objectName": one.object_name,
                    "statusCode": error.status,
                    "errorCode": error.code,
                    "errorMessage": str(error),
                }
            )
        else:
            when = time_text_ms(time.time())
            deleted.append({"objectName": one.object_name, "timeLastModified": when})
    shown = {"deleted": None if given.is_skip_deleted_result else deleted, "failed": failed}
    return Answer(encoded(shown))


def list_objects(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}/o"""
    bucket = any_bucket(request, request.path["bucket"])
    return list_in(request, bucket, request.given("prefix") or "")


def list_in(
    request: OciRequest, bucket: BucketRecord, prefix: str, caller: Caller | None = None
) -> Answer:
    """List objects of a bucket as the query says, of those that a caller sees: who asks, by
    default. Raises OciError."""
    sees = seen_in(request, bucket, Permission.OBJECT_INSPECT, caller)
    delimiter = request.given("delimiter") or ""
    if delimiter not in ("", "/"):
        raise invalid("delimiter has to be /")
    start, after = request.given("start") or "", request.given("startAfter")
    if after is not None:
        start = max(start, f"{after}\1")  # the name after it: names have no NUL
    for name in (prefix, start, request.given("end") or "", after or ""):
        if "\0" in name:
            raise invalid("names have no NUL")
    limit = request.number("limit", _LARGEST_PAGE, 1, _LARGEST_PAGE)
    assert limit is not None
    query = ListQuery(bucket.id, prefix, start, request.given("end"), delimiter, limit)

    def is_seen(record: ObjectRecord) -> bool:
        return sees(variables_of_bucket(bucket, record.name))

    listing = request.store.objects.listing
    page = list_page(listing if sees is always else seen_only(listing, is_seen), query)
    if not page.objects and not page.prefixes and not sees(variables_of_bucket(bucket)):
        # nothing of the bucket: it may not be known either
        raise bucket_not_found(bucket.name, namespace_of(request))
    fields = {"name", *(request.given("fields") or "").split(",")}
    shown: dict[str, Any] = {
        "objects": [
            {name: value for name, value in _shown(record).items() if name in fields}
            for record in page.objects
        ]
    }
    if delimiter:
        shown["prefixes"] = page.prefixes
    if page.next_start is not None:
        shown["nextStartWith"] = page.next_start
    return Answer(encoded(shown))


def _shown(record: ObjectRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "size": record.size,
        "md5": record.md5,
        "etag": record.etag,
        "timeCreated": time_text_ms(record.created_at),
        "timeModified": time_text_ms(record.modified_at),
        "storageTier": "Standard",
        "archivalState": None,
    }
