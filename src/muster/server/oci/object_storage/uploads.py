"""Objects that are uploaded in parts (OCI: MultipartUpload)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from muster.describe.times import time_text_ms
from muster.errors import Conflict, NotFound
from muster.iam.resources import variables_of_bucket
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import conflict, invalid
from muster.server.oci.object_storage.buckets import paged
from muster.server.oci.object_storage.errors import (
    condition_failed,
    invalid_part,
    upload_not_found,
)
from muster.server.oci.object_storage.headers import (
    condition_of,
    digest_of_parts,
    in_base64,
    kept_headers,
    metadata_of,
    object_headers,
)
from muster.server.oci.object_storage.places import (
    Writable,
    any_bucket,
    check_name,
    find_bucket,
    find_writable,
    namespace_of,
    seen_in,
)
from muster.server.oci.object_storage.transfers import receive, record_files
from muster.server.oci.request import OciRequest, whole_number
from muster.spec.formats.oci.object_model import CommitUpload, CreateUpload
from muster.storage.objects import NewFile, discard, remove
from muster.store.object_records import (
    BucketRecord,
    ConditionFailed,
    ObjectRecord,
    PieceRecord,
    UploadRecord,
)

#: Numbers of parts (OCI).
_MOST_PARTS = 10_000
_PAGE = 1000


def create_upload(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b/{bucket}/u"""
    given = request.read(CreateUpload)
    place = find_writable(request, request.path["bucket"], given.object)
    bucket = place.bucket
    upload = UploadRecord(
        str(uuid4()),
        bucket.id,
        check_name(given.object),
        request.principal.user,
        time.time(),
        kept_headers(lambda name: getattr(given, name.replace("-", "_")) or ""),
        metadata_of((given.metadata or {}).items()),
    )
    try:
        request.store.objects.begin_upload(upload, place.narrowed(condition_of(request.header)))
    except ConditionFailed as error:
        raise condition_failed(error) from None
    return Answer(encoded(_shown(request, bucket, upload)))


async def upload_part(request: OciRequest) -> Answer:
    """PUT /n/{namespace}/b/{bucket}/u/{object...}"""
    number = request.number("uploadPartNum", None, 1, _MOST_PARTS)
    if number is None:
        raise invalid(f"uploadPartNum is required: a whole number from 1 to {_MOST_PARTS}")
    in_thread = request.state.in_thread
    _, upload = await in_thread(_find_writable, request)
    file = await receive(request)
    part = await in_thread(_put_part, request, upload, number, file)
    return Answer(headers={"etag": part.etag, "opc-content-md5": part.md5})


def _put_part(request: OciRequest, upload: UploadRecord, number: int, file: NewFile) -> PieceRecord:
    md5 = in_base64(file.md5())
    part = PieceRecord(upload.id, number, file.name, file.size, str(uuid4()), md5)

    def record() -> list[str]:
        try:
            return request.store.objects.put_part(part)
        except NotFound:
            raise upload_not_found(upload.id) from None

    remove(request.state.backend.home, record_files(request, [file.name], record))
    return part


def commit_upload(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b/{bucket}/u/{object...}"""
    (place, upload), given = _find_writable(request), request.read(CommitUpload)
    bucket, condition = place.bucket, place.narrowed(condition_of(request.header))
    objects = request.store.objects
    chosen = _chosen(objects.pieces(upload.id), given)
    now = time.time()
    record = ObjectRecord(
        bucket.id,
        upload.name,
        str(uuid4()),
        upload.id,
        sum(piece.size for piece in chosen),
        digest_of_parts(piece.md5 for piece in chosen),
        now,
        now,
        upload.headers,
        upload.metadata,
    )
    try:
        unused = objects.complete(upload, record, chosen, condition)
    except ConditionFailed as error:
        raise condition_failed(error) from None
    except NotFound:
        raise upload_not_found(upload.id) from None
    except Conflict as error:
        raise conflict(str(error)) from None
    discard(request.state.backend.home, unused)
    return Answer(
        headers={
            "etag": record.etag,
            "opc-multipart-md5": record.md5,
            "last-modified": object_headers(record)["last-modified"],
            "version-id": record.etag,
        }
    )


def _chosen(parts: Sequence[PieceRecord], given: CommitUpload) -> list[PieceRecord]:
    """The parts of an object, in their order. Raises OciError unless each is chosen or excluded, as
    it was uploaded."""
    there = {part.number: part for part in parts}
    wanted = {one.part_num: one.etag for one in given.parts_to_commit}
    excluded = set(given.parts_to_exclude or ())
    if not wanted:
        raise invalid("partsToCommit has to have at least one part")
    if len(wanted) < len(given.parts_to_commit):
        raise invalid("partsToCommit has a part twice")
    for number, etag in wanted.items():
        if number in excluded:
            raise invalid_part(number, "is in partsToCommit and in partsToExclude")
        if number not in there:
            raise invalid_part(number, "was not uploaded")
        if there[number].etag != etag.strip('"'):
            raise invalid_part(number, "has another etag: it was uploaded again")
    if left := sorted(there.keys() - wanted.keys() - excluded):
        raise invalid_part(left[0], "is neither in partsToCommit nor in partsToExclude")
    return [there[number] for number in sorted(wanted)]


def abort_upload(request: OciRequest) -> Answer:
    """DELETE /n/{namespace}/b/{bucket}/u/{object...}"""
    bucket = find_bucket(request, request.path["object"])
    upload = _upload_in(request, bucket)
    try:
        files = request.store.objects.abort_upload(upload)
    except NotFound:
        raise upload_not_found(upload.id) from None
    remove(request.state.backend.home, files)
    return Answer(status=204)


def list_uploads(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}/u"""
    bucket, limit = any_bucket(request, request.path["bucket"]), _limit(request)
    sees = seen_in(request, bucket, request.permission)
    page = request.given("page")
    found = request.store.objects.uploads(bucket.id, limit=limit + 1, after=page)
    shown = [
        _shown(request, bucket, upload)
        for upload in found[:limit]
        if sees(variables_of_bucket(bucket, upload.name))
    ]
    return paged(shown, None if len(found) <= limit else found[limit - 1].id)


def list_parts(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}/u/{object...}"""
    bucket, limit = find_bucket(request, request.path["object"]), _limit(request)
    upload = _upload_in(request, bucket)
    after = whole_number(request.given("page") or "0")
    if after is None:
        raise invalid("page is not an opc-next-page of this list")
    parts = [part for part in request.store.objects.pieces(upload.id) if part.number > after]
    shown = [
        {"partNumber": part.number, "size": part.size, "etag": part.etag, "md5": part.md5}
        for part in parts[:limit]
    ]
    return paged(shown, None if len(parts) <= limit else str(parts[limit - 1].number))


def _limit(request: OciRequest) -> int:
    limit = request.number("limit", _PAGE, 1, _PAGE)
    assert limit is not None
    return limit


def _find_writable(request: OciRequest) -> tuple[Writable, UploadRecord]:
    """Where an upload becomes an object, and the upload that the query names. Raises OciError."""
    place = find_writable(request, request.path["bucket"], request.path["object"])
    return place, _upload_in(request, place.bucket)


def _upload_in(request: OciRequest, bucket: BucketRecord) -> UploadRecord:
    """The upload that the query names. Raises OciError."""
    upload_id = request.required("uploadId")
    try:
        return request.store.objects.upload(bucket.id, request.path["object"], upload_id)
    except NotFound:
        raise upload_not_found(upload_id) from None


def _shown(request: OciRequest, bucket: BucketRecord, upload: UploadRecord) -> dict[str, Any]:
    return {
        "namespace": namespace_of(request),
        "bucket": bucket.name,
        "object": upload.name,
        "uploadId": upload.id,
        "timeCreated": time_text_ms(upload.created_at),
        "storageTier": "Standard",
    }
