"""Objects in buckets, and uploads of objects in parts. Their bytes are in files
(`storage.objects`): a file is there before its piece is recorded, and what a method returns as
a list of texts are files that no record names any more.

Each change is recorded as an event (`Outbox`) in the same transaction.

Of several changes of one name at once, each sees what the one before has made of it: of those
on the condition that there is no object yet, one succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.store.object_records import (
        Condition,
        ObjectRange,
        ObjectRecord,
        PieceRecord,
        UploadRecord,
    )


class Objects(Protocol):
    """See the module."""

    def put(
        self,
        record: ObjectRecord,
        pieces: Sequence[PieceRecord],
        condition: Condition = ...,
    ) -> list[str]:
        """Give a name an object, in place of the one that it has. Returns the files of that one.
        Raises ConditionFailed, or NotFound if there is no such bucket."""
        ...

    def complete(
        self,
        upload: UploadRecord,
        record: ObjectRecord,
        pieces: Sequence[PieceRecord],
        condition: Condition = ...,
    ) -> list[str]:
        """End an upload: give its name the object of these parts, whose `content` is the id of the
        upload. Returns the files of other parts, and of the object before. Raises ConditionFailed,
        Conflict if one of the parts was replaced meanwhile, NotFound if there is no such upload."""
        ...

    def get(self, bucket_id: str, name: str) -> ObjectRecord:
        """The object with this name. Raises NotFound, CorruptRecord."""
        ...

    def pieces(self, content: str) -> list[PieceRecord]:
        """The pieces of an object, or the parts of an upload, by their numbers."""
        ...

    def listing(self, chosen: ObjectRange) -> list[ObjectRecord]:
        """Objects by name."""
        ...

    def delete(
        self, bucket_id: str, name: str, now: float, condition: Condition = ...
    ) -> list[str]:
        """Delete an object. Returns its files. now: epoch seconds. Raises ConditionFailed,
        NotFound."""
        ...

    def rename(
        self,
        record: ObjectRecord,
        new_name: str,
        modified_at: float,
        *,
        source: Condition = ...,
        target: Condition = ...,
    ) -> tuple[ObjectRecord, list[str]]:
        """Give an object another name of its bucket, in place of the object that this name has.
        Returns the object as it is then, and the files of the replaced one. source, target: what
        is to be under the old and the new name. Raises ConditionFailed, or NotFound if the object
        was replaced or deleted."""
        ...

    def used_files(self, files: Sequence[str]) -> set[str]:
        """Those of these files that a record names."""
        ...

    def begin_upload(self, upload: UploadRecord, condition: Condition = ...) -> None:
        """Add an upload without parts. condition: of the object that has the name now. Raises
        ConditionFailed, or NotFound if there is no such bucket."""
        ...

    def upload(self, bucket_id: str, name: str, upload_id: str) -> UploadRecord:
        """The upload of an object with this id. Raises NotFound, CorruptRecord."""
        ...

    def uploads(
        self, bucket_id: str, *, limit: int | None = None, after: str | None = None
    ) -> list[UploadRecord]:
        """The uploads of a bucket, by id. limit: only the first ones. after: only those after this
        id."""
        ...

    def put_part(self, part: PieceRecord) -> list[str]:
        """Add a part to an upload, in place of the one with its number. Returns the file of that
        one. Raises NotFound if the upload was completed or aborted."""
        ...

    def abort_upload(self, upload: UploadRecord) -> list[str]:
        """Delete an upload and its parts. Returns their files. Raises NotFound."""
        ...
