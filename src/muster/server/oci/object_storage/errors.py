"""Errors of object storage, with the codes of the service (OCI: Object Storage Service API)."""

from __future__ import annotations

from muster.server.oci.errors import OciError
from muster.store.object_records import ConditionFailed


def bucket_not_found(name: str, namespace: str) -> OciError:
    """The one answer for a bucket that does not exist and one that is not the caller's (OCI)."""
    return OciError(
        404,
        "BucketNotFound",
        f"Either the bucket named '{name}' does not exist in the namespace '{namespace}' or you "
        "are not authorized to access it",
    )


def object_not_found(name: str, bucket: str) -> OciError:
    """There is no such object."""
    text = f"The object '{name}' was not found in the bucket '{bucket}'"
    return OciError(404, "ObjectNotFound", text)


def upload_not_found(upload_id: str) -> OciError:
    """There is no such multipart upload: it was completed or aborted, or never began."""
    return OciError(404, "NoSuchUpload", f"The multipart upload '{upload_id[:200]}' was not found")


def condition_failed(error: ConditionFailed) -> OciError:
    """An object is not as the request says."""
    code = "IfMatchFailed" if error.header == "if-match" else "IfNoneMatchFailed"
    text = f"The {error.header} condition of the request is not met by the current etag"
    return OciError(412, code, text)


def invalid_part(number: int, why: str) -> OciError:
    """A part of an upload cannot be committed."""
    return OciError(400, "InvalidUploadPart", f"The upload part {number} {why}")
