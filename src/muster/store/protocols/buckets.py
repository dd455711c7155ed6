"""Buckets of object storage, and the links that give access to them. Names of buckets are
unique in all projects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.object_records import AccessLinkRecord, BucketRecord, BucketUse


class Buckets(Protocol):
    """See the module."""

    def insert(self, bucket: BucketRecord) -> bool:
        """Add a bucket. False if there is one with this name, of whatever project."""
        ...

    def get(self, name: str) -> BucketRecord:
        """The bucket with this name, of whatever project. Raises NotFound, CorruptRecord."""
        ...

    def by_id(self, bucket_id: str) -> BucketRecord:
        """The bucket with this id. Raises NotFound, CorruptRecord."""
        ...

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[BucketRecord]:
        """The buckets of a project, by name. limit: only the first ones. after: only those after
        this name."""
        ...

    def use(self, bucket_id: str) -> BucketUse:
        """What the objects of a bucket take."""
        ...

    def update(self, before: BucketRecord, after: BucketRecord) -> BucketRecord:
        """Change the name, the project or the settings. Raises Conflict if it was changed since
        `before` was read, or the name is taken; NotFound."""
        ...

    def delete(self, bucket_id: str) -> bool:
        """Delete a bucket. False if there is none. Raises Conflict if it has objects, uploads or
        links."""
        ...

    def insert_link(self, link: AccessLinkRecord) -> None:
        """Add a link. Raises NotFound if there is no such bucket."""
        ...

    def link(self, bucket_id: str, link_id: str) -> AccessLinkRecord:
        """The link of a bucket with this id. Raises NotFound, CorruptRecord."""
        ...

    def link_by_digest(self, digest: str) -> AccessLinkRecord:
        """The link whose secret has this digest. Raises NotFound, CorruptRecord."""
        ...

    def links(
        self, bucket_id: str, *, limit: int | None = None, after: str | None = None
    ) -> list[AccessLinkRecord]:
        """The links of a bucket, by id. limit: only the first ones. after: only those after this
        id."""
        ...

    def delete_link(self, bucket_id: str, link_id: str) -> bool:
        """Delete a link. False if there is none."""
        ...
