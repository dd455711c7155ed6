"""Records of object storage: buckets, objects and the files with their bytes, multipart uploads,
and links that give access."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from muster.errors import Conflict
from muster.store.records import Moment


class BucketRecord(Struct, frozen=True):
    """A bucket: a set of objects, which belongs to a project."""

    id: str
    name: str
    """Unique among the buckets of all projects."""
    project: str
    created_by: str
    created_at: Moment
    updated_at: Moment
    settings: Mapping[str, Any]
    """What else the OCI API shows: metadata, tags, whether objects have events."""
    version: int = 1
    """One more with each change."""


class BucketUse(Struct, frozen=True):
    """What the objects of a bucket take."""

    count: int
    size: int
    """Bytes."""


class PieceRecord(Struct, frozen=True):
    """A file with bytes of an object, or a part of an upload. An object has its pieces in the order
    of their numbers."""

    content: str
    """Which object or upload it is of: `ObjectRecord.content`, `UploadRecord.id`."""
    number: int
    file: str
    """The name of the file (`storage.objects`). No two pieces have the same."""
    size: int
    etag: str
    md5: str
    """In base 64."""


class ObjectRecord(Struct, frozen=True):
    """An object: its name and what is known of it. Its bytes are in the files of its pieces."""

    bucket: str
    """The id of its bucket."""
    name: str
    etag: str
    """Another one for each content that the name has had."""
    content: str
    """What its pieces are found by."""
    size: int
    md5: str
    """In base 64. Of an object in parts: the digest of the digests of its parts, a hyphen, and
    the number of parts."""
    created_at: Moment
    modified_at: Moment
    headers: Mapping[str, str]
    """Headers of HTTP that it is sent with, such as `content-type`, by their names in small
    letters."""
    metadata: Mapping[str, str]
    """What its user has noted: the headers `opc-meta-*`, without this prefix."""


class UploadRecord(Struct, frozen=True):
    """An object that is uploaded in parts, and not complete yet."""

    id: str
    bucket: str
    """The id of its bucket."""
    name: str
    """Of the object."""
    created_by: str
    created_at: Moment
    headers: Mapping[str, str]
    metadata: Mapping[str, str]


class AccessLinkRecord(Struct, frozen=True):
    """A URL with a secret, which gives access without a signature (OCI: pre-authenticated
    request)."""

    id: str
    bucket: str
    """The id of its bucket."""
    name: str
    digest: str
    """The SHA-256 of the secret."""
    access: str
    """What it gives: `ObjectRead`, `AnyObjectWrite`, ..."""
    object_name: str | None
    """The object, or the start of the names of objects; None: all objects of the bucket."""
    lists: bool
    """Whether it may be used to list objects."""
    created_by: str
    """Whose rights it has."""
    created_at: Moment
    expires_at: Moment


class Condition(Struct, frozen=True):
    """What the object under a name has to be for a change to be made. "" sets no condition."""

    if_match: str = ""
    """Its etag; `*`: there has to be one."""
    if_none_match: str = ""
    """An etag that it may not have; `*`: there may not be one."""

    def check(self, etag: str | None) -> None:
        """Raises ConditionFailed. etag: of the object; None if there is none."""
        if self.if_match and not _is(self.if_match, etag):
            raise ConditionFailed("if-match", self.if_match)
        if self.if_none_match and _is(self.if_none_match, etag):
            raise ConditionFailed("if-none-match", self.if_none_match)


NO_CONDITION = Condition()


class ConditionFailed(Conflict):
    """An object is not as a request says it has to be."""

    def __init__(self, header: str, given: str) -> None:
        self.header = header
        super().__init__(f"the object is not as {header} says: {given[:200]}")


class ChangeKind(StrEnum):
    """What has become of an object."""

    CREATED = "created"
    REPLACED = "replaced"
    DELETED = "deleted"


class ObjectChange(Struct, frozen=True):
    """A change of an object, as it is recorded."""

    kind: ChangeKind
    bucket: BucketRecord
    object: ObjectRecord
    """As it is now, or was before it was deleted."""
    time: float
    """Epoch seconds."""


class ObjectRange(Struct, frozen=True):
    """Which objects of a bucket to list, by their names. Names are in the order of their UTF-8."""

    bucket: str
    start: str = ""
    """The first name that may be listed."""
    end: str | None = None
    """The first name that may not be listed any more."""
    limit: int = 1000


def _is(given: str, etag: str | None) -> bool:
    if given == "*":
        return etag is not None
    return etag in [one.strip().removeprefix("W/").strip('"') for one in given.split(",")]
