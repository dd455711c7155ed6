"""Rename and copy objects, and the work requests of copies (OCI: RenameObject, CopyObject).

A copy is done when its request is answered: its work request is there for clients that wait.
"""

from __future__ import annotations

import time
from uuid import uuid4

from msgspec.structs import replace

from muster.errors import NotFound
from muster.identity import new_id
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import OciError, conflict
from muster.server.oci.listings import listing
from muster.server.oci.object_storage.errors import (
    condition_failed,
    object_not_found,
)
from muster.server.oci.object_storage.headers import metadata_of, object_headers
from muster.server.oci.object_storage.places import (
    Writable,
    check_name,
    find_bucket,
    find_object,
    find_writable,
    namespace_of,
    require_in,
)
from muster.server.oci.object_storage.transfers import record_files
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import find
from muster.server.oci.work_requests import shown_work_request
from muster.spec.formats.oci.object_model import CopyObject, RenameObject
from muster.spec.ocids import ocid
from muster.storage.objects import copy_file, discard, remove
from muster.store.object_records import (
    BucketRecord,
    Condition,
    ConditionFailed,
    ObjectRecord,
    PieceRecord,
)
from muster.store.resource_records import ResourceRecord

KIND = "objectstorageworkrequest"
_STATES = ("ACCEPTED", "IN_PROGRESS", "FAILED", "COMPLETED", "CANCELING", "CANCELED")
#: Times that an object is copied which is replaced meanwhile.
_TRIES = 10


def rename_object(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b/{bucket}/actions/renameObject"""
    given = request.read(RenameObject)
    bucket = find_bucket(request, given.source_name)
    require_in(request, bucket, Permission.OBJECT_READ, given.source_name)
    place = find_writable(request, bucket.name, given.new_name)
    record = find_object(request, bucket, given.source_name)
    new_name = check_name(given.new_name)
    if new_name == record.name:
        raise conflict("The new name is the one that the object has")
    try:
        renamed, files = request.store.objects.rename(
            record,
            new_name,
            time.time(),
            source=Condition(given.source_if_match or ""),
            target=place.narrowed(
                Condition(given.new_if_match or "", given.new_if_none_match or "")
            ),
        )
    except ConditionFailed as error:
        raise condition_failed(error) from None
    except NotFound:
        raise object_not_found(given.source_name, bucket.name) from None
    discard(request.state.backend.home, files)
    return Answer(
        headers={
            "etag": renamed.etag,
            "last-modified": object_headers(renamed)["last-modified"],
            "version-id": renamed.etag,
        }
    )


def copy_object(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b/{bucket}/actions/copyObject"""
    given = request.read(CopyObject)
    source = find_bucket(request, given.source_object_name)
    if given.destination_namespace != namespace_of(request):
        text = f"The namespace '{given.destination_namespace[:100]}' was not found"
        raise OciError(404, "NamespaceNotFound", text)
    name = check_name(given.destination_object_name)
    target = find_writable(request, given.destination_bucket, name)
    for _ in range(_TRIES):
        record = find_object(request, source, given.source_object_name)
        if given.source_version_id not in (None, record.etag):
            raise object_not_found(record.name, source.name)
        try:
            Condition(given.source_if_match or "").check(record.etag)
        except ConditionFailed as error:
            raise condition_failed(error) from None
        try:
            pieces = _copied(request, record)
        except FileNotFoundError:
            continue  # it was replaced meanwhile
        _put_copy(request, given, target, record, pieces)
        return _accepted(request, source, record, target.bucket, name)
    raise FileNotFoundError(f"a file of object {record.name!r} in bucket {source.name} is missing")


def _copied(request: OciRequest, record: ObjectRecord) -> list[PieceRecord]:
    """Copies of the files of an object. Raises FileNotFoundError, OSError."""
    home, content = request.state.backend.home, new_id()
    made: list[PieceRecord] = []
    try:
        for piece in request.store.objects.pieces(record.content):
            file = copy_file(home, piece.file)
            made.append(replace(piece, content=content, file=file))
        if sum(piece.size for piece in made) != record.size:
            raise FileNotFoundError("the object was replaced")
    except OSError:
        remove(home, [piece.file for piece in made])
        raise
    return made


def _put_copy(
    request: OciRequest,
    given: CopyObject,
    target: Writable,
    record: ObjectRecord,
    pieces: list[PieceRecord],
) -> None:
    metadata, now = record.metadata, time.time()
    if given.destination_object_metadata is not None:
        metadata = metadata_of(given.destination_object_metadata.items())
    made = replace(
        record,
        bucket=target.bucket.id,
        name=given.destination_object_name,
        etag=str(uuid4()),
        content=pieces[0].content,
        created_at=now,
        modified_at=now,
        metadata=metadata,
    )
    condition = target.narrowed(Condition(given.if_match or "", given.if_none_match or ""))
    objects = request.store.objects
    files = [piece.file for piece in pieces]
    replaced = record_files(request, files, lambda: objects.put(made, pieces, condition))
    discard(request.state.backend.home, replaced)


def _accepted(
    request: OciRequest, source: BucketRecord, record: ObjectRecord, target: BucketRecord, name: str
) -> Answer:
    now, namespace = time.time(), namespace_of(request)
    resources = [
        {
            "actionType": action,
            "entityType": "object",
            "identifier": object_name,
            "entityUri": f"/n/{namespace}/b/{bucket.name}/o/{object_name}",
            "metadata": {"NAMESPACE": namespace, "BUCKET": bucket.name, "OBJECT": object_name},
        }
        for action, bucket, object_name in (
            ("READ", source, record.name),
            ("WRITTEN", target, name),
        )
    ]
    made = ResourceRecord(
        *(KIND, new_id(), source.project, "COPY_OBJECT", "COMPLETED"),
        *(request.principal.user, now, now),
        data={"resources": resources},
    )
    request.store.resources.insert(made)
    return Answer(status=202, headers={"opc-work-request-id": ocid(KIND, made.id)})


def get_work_request(request: OciRequest) -> Answer:
    """GET /workRequests/{work_request}"""
    return Answer(encoded(shown_work_request(request, _find(request))))


def list_work_requests(request: OciRequest) -> Answer:
    """GET /workRequests"""
    return listing(
        request, KIND, lambda record: shown_work_request(request, record), states=_STATES
    )


def list_work_request_notes(request: OciRequest) -> Answer:
    """GET /workRequests/{work_request}/errors and .../logs"""
    _find(request)
    return Answer(b"[]")


def cancel_work_request(request: OciRequest) -> Answer:
    """DELETE /workRequests/{work_request}"""
    _find(request)
    raise conflict("The work request has ended.")


def _find(request: OciRequest) -> ResourceRecord:
    return find(request, KIND, request.path["work_request"], request.permission)
