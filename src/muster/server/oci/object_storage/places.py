"""Which bucket and which object a request is about, if the caller may see them."""

from __future__ import annotations

import re
from contextlib import suppress

from msgspec import Struct

from muster.caller import Caller, Chooser
from muster.errors import Forbidden, NotFound
from muster.iam.resources import variables_of_bucket
from muster.permissions import Permission
from muster.server.oci.errors import OciError
from muster.server.oci.object_storage.errors import bucket_not_found, object_not_found
from muster.server.oci.request import OciRequest
from muster.store.object_records import BucketRecord, Condition, ObjectRecord

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


def find_bucket(request: OciRequest, object_name: str | None = None) -> BucketRecord:
    """The bucket in the path, if the caller has the permission that the route needs, for the bucket
    or for an object in it. Raises OciError."""
    bucket = any_bucket(request, request.path["bucket"])
    require_in(request, bucket, request.permission, object_name)
    return bucket


def require_in(
    request: OciRequest, bucket: BucketRecord, permission: Permission, object_name: str | None
) -> None:
    """Raises OciError, the same as for no bucket, unless the caller has a permission for a bucket,
    or for an object in it."""
    try:
        request.require(bucket.project, permission, variables_of_bucket(bucket, object_name))
    except Forbidden as error:
        raise bucket_not_found(bucket.name, namespace_of(request)) from error


def any_bucket(request: OciRequest, name: str) -> BucketRecord:
    """The bucket with this name, whoever asks. Raises OciError."""
    namespace = namespace_of(request)
    try:
        return request.store.buckets.get(name)
    except NotFound:
        raise bucket_not_found(name, namespace) from None


def seen_in(
    request: OciRequest, bucket: BucketRecord, permission: Permission, caller: Caller | None = None
) -> Chooser:
    """For which objects of a bucket a caller has a permission: who asks, by default. Raises
    OciError, the same as for no bucket, if for none."""
    try:
        return request.seen_by(caller or request.caller(bucket.project), permission)
    except Forbidden as error:
        raise bucket_not_found(bucket.name, namespace_of(request)) from error


class Writable(Struct, frozen=True):
    """Where a caller may write an object."""

    bucket: BucketRecord
    #: Whether there may be none under its name before, or one.
    creates: bool
    replaces: bool

    def narrowed(self, condition: Condition) -> Condition:
        """A condition that also keeps the caller from what it may not do."""
        return Condition(
            condition.if_match or ("" if self.creates else "*"),
            condition.if_none_match if self.replaces else "*",
        )


def find_writable(request: OciRequest, bucket_name: str, name: str) -> Writable:
    """A bucket, if the caller may write an object there. Raises OciError."""
    bucket = any_bucket(request, bucket_name)
    return writable(request, bucket, name, request.caller(bucket.project))


def writable(request: OciRequest, bucket: BucketRecord, name: str, caller: Caller) -> Writable:
    """As `find_writable`. caller: who writes (OCI: OBJECT_CREATE; OBJECT_OVERWRITE for an object
    that there is)."""
    on = variables_of_bucket(bucket, name)
    creates = caller.allows(Permission.OBJECT_CREATE, on)
    replaces = caller.allows(Permission.OBJECT_OVERWRITE, on)
    needed = Permission.OBJECT_CREATE
    if creates != replaces:
        with suppress(NotFound):
            request.store.objects.get(bucket.id, check_name(name))
            needed = Permission.OBJECT_OVERWRITE
    try:
        request.require_of(caller, needed, on)
    except Forbidden as error:
        raise bucket_not_found(bucket.name, namespace_of(request)) from error
    return Writable(bucket, creates, replaces)


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
