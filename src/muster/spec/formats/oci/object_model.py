"""The models of object storage, as they are on the wire (OCI: Object Storage Service API)."""

from __future__ import annotations

from msgspec import Struct, field

from muster.spec.formats.oci.model import DefinedTags, Tags, Wire


class BucketDetails(Wire, frozen=True, kw_only=True):
    """What a bucket has besides its name."""

    compartment_id: str | None = None
    metadata: dict[str, str] | None = None
    public_access_type: str | None = None
    storage_tier: str | None = None
    object_events_enabled: bool | None = None
    freeform_tags: Tags | None = None
    defined_tags: DefinedTags | None = None
    kms_key_id: str | None = None
    versioning: str | None = None
    auto_tiering: str | None = None


class CreateBucket(BucketDetails, frozen=True, kw_only=True):
    """OCI: CreateBucketDetails."""

    name: str
    compartment_id: str


class UpdateBucket(BucketDetails, frozen=True, kw_only=True):
    """OCI: UpdateBucketDetails. What is not given stays."""

    namespace: str | None = None
    name: str | None = None


class RenameObject(Struct, frozen=True, kw_only=True, rename="camel"):
    """OCI: RenameObjectDetails."""

    source_name: str
    new_name: str
    source_if_match: str | None = field(default=None, name="srcObjIfMatchETag")
    new_if_match: str | None = field(default=None, name="newObjIfMatchETag")
    new_if_none_match: str | None = field(default=None, name="newObjIfNoneMatchETag")


class CopyObject(Struct, frozen=True, kw_only=True, rename="camel"):
    """OCI: CopyObjectDetails."""

    source_object_name: str
    destination_region: str
    destination_namespace: str
    destination_bucket: str
    destination_object_name: str
    source_version_id: str | None = None
    destination_object_metadata: dict[str, str] | None = None
    source_if_match: str | None = field(default=None, name="sourceObjectIfMatchETag")
    if_match: str | None = field(default=None, name="destinationObjectIfMatchETag")
    if_none_match: str | None = field(default=None, name="destinationObjectIfNoneMatchETag")


class DeletedObject(Wire, frozen=True, kw_only=True):
    """OCI: BatchDeleteObjectIdentifier."""

    object_name: str
    if_match: str | None = None


class DeleteObjects(Wire, frozen=True, kw_only=True):
    """OCI: BatchDeleteObjectsDetails."""

    objects: list[DeletedObject]
    is_skip_deleted_result: bool | None = None


class CreateUpload(Wire, frozen=True, kw_only=True):
    """OCI: CreateMultipartUploadDetails."""

    object: str
    content_type: str | None = None
    content_language: str | None = None
    content_encoding: str | None = None
    content_disposition: str | None = None
    cache_control: str | None = None
    storage_tier: str | None = None
    metadata: dict[str, str] | None = None


class PartToCommit(Wire, frozen=True, kw_only=True):
    """OCI: CommitMultipartUploadPartDetails."""

    part_num: int
    etag: str


class CommitUpload(Wire, frozen=True, kw_only=True):
    """OCI: CommitMultipartUploadDetails."""

    parts_to_commit: list[PartToCommit]
    parts_to_exclude: list[int] | None = None


class CreateLink(Wire, frozen=True, kw_only=True):
    """OCI: CreatePreauthenticatedRequestDetails."""

    name: str
    access_type: str
    time_expires: str
    object_name: str | None = None
    bucket_listing_action: str | None = None
