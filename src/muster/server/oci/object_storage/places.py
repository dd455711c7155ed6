"""Which bucket and which object a request is about, if the caller may see them."""

from __future__ import annotations

import re

from muster.caller import Right
from muster.errors import NotFound
from muster.server.oci.errors import OciError
from muster.server.oci.object_storage.errors import bucket_not_found, object_not_found
from muster.server.oci.request import OciRequest
from muster.store.object_records import BucketRecord, ObjectRecord

#: Bytes of an object's name (OCI).
_LONGEST_NAME = 1024
_BUCKET_NAME = re.compile(r"[A-Za-z0-9._-]{1,256}")


def namespace_of(request: OciRequest) -> str:
    """The one namespace of the server. Raises OciError if the path has another one."""
    namespace = request.state.settings.file.oci.namespace
    if request.path.get("namespace", namespace) != namespace:
        text = f"The namespace does not exist, or you are not authorized: use '{namespace}'"
        raise OciError(404, "NamespaceNotFound", text)
    return namespace


def find_bucket(request: OciRequest, right: Right) -> BucketRecord:
    """The bucket in the path, if the caller has a right in its project. Raises OciError."""
    namespace_of(request)
    return bucket_named(request, request.path["bucket"], right)


def bucket_named(request: OciRequest, name: str, right: Right) -> BucketRecord:
    """The bucket with this name. Otherwise as `find_bucket`."""
    try:
        bucket = request.store.buckets.get(name)
    except NotFound:
        bucket = None
    if bucket is None or right not in request.caller(bucket.project).rights:
        raise bucket_not_found(name, namespace_of(request))
    return bucket


def find_object(request: OciRequest, bucket: BucketRecord, name: str) -> ObjectRecord:
    """The object with this name. Raises OciError, also if the query names a version that is not
    the present one: there are no others."""
    try:
        record = request.store.objects.get(bucket.id, check_name(name))
    except NotFound:
        raise object_not_found(name, bucket.name) from None
    if request.given("versionId") not in (None, record.etag):
        raise object_not_found(name, bucket.name)
    return record


def check_name(name: str) -> str:
    """The name, if an object may have it. Raises OciError."""
    size = len(name.encode(errors="replace"))
    if not 0 < size <= _LONGEST_NAME or any(one in name for one in "\0\r\n"):
        text = (
            f"The name of an object has from 1 to {_LONGEST_NAME} bytes in UTF-8, and no NUL, "
            "line feed or carriage return"
        )
        raise OciError(400, "InvalidObjectName", text)
    return name


def check_bucket_name(name: str) -> str:
    """The name, if a bucket may have it. Raises OciError."""
    if not _BUCKET_NAME.fullmatch(name):
        text = (
            f"The bucket name '{name[:300]}' is not valid: it has from 1 to 256 letters, digits, "
            "hyphens, underscores and periods"
        )
        raise OciError(400, "InvalidBucketName", text)
    return name
