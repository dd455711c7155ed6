"""The bucket of Object Storage through which nodes and their supervisor reach each other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from muster.engines.oci.client import Service
from muster.engines.oci.profile import Place
from muster.engines.oci.refusals import CannotRun
from muster.node.tunnel import MAX_PART

_CLIENT = "object_storage"
#: The most that a page of a list has.
_PAGE = 1000


class Bucket:
    """Calls Object Storage. Methods block, raise CannotRun, and may be called from several
    threads."""

    def __init__(self, service: Service, place: Place) -> None:
        self._service, self.place = service, place
        #: The arguments of each call.
        self._at = place.namespace, place.bucket

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        kind = "application/octet-stream"
        self._call("put_object", name, content, content_type=kind)

    def get(self, name: str) -> bytes | None:
        """The content of an object, and no more of it than a part of a connection may have; None if
        it does not exist."""
        size = f"bytes=0-{MAX_PART}"
        try:
            return self._service.download("get_object", *self._at, name, client=_CLIENT, range=size)
        except CannotRun as error:
            if error.is_unknown:
                return None
            if error.status == 416:  # an empty object has no such range
                return b""
            raise

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        try:
            self._call("delete_object", name)
        except CannotRun as error:
            if not error.is_unknown:
                raise

    def names(self, folder: str) -> Iterator[str]:
        """The names of all objects in a folder, sorted."""
        start: dict[str, str] = {}
        while True:
            options = {"prefix": folder, "fields": "name", "limit": _PAGE, **start}
            found = self._call("list_objects", **options).data
            yield from (one.name for one in found.objects)
            if found.next_start_with is None:
                return
            start = {"start": found.next_start_with}

    def clear(self, folder: str) -> None:
        """Delete all objects of a folder."""
        for name in [*self.names(folder)]:
            self.delete(name)

    # --- URLs

    def link(self, name: str, folder: str, expires: datetime) -> str:
        """Make a pre-authenticated request. Returns the URL of the bucket's objects, which ends
        with a slash: with it, whoever has it may read and write objects of a folder."""
        details = {
            "name": name,
            "accessType": "AnyObjectReadWrite",
            "objectName": folder,
            "timeExpires": expires.isoformat(timespec="seconds"),
        }
        made = self._call("create_preauthenticated_request", details)
        path, objects, _ = str(made.data.access_uri).partition("/o/")
        return self._service.endpoint(_CLIENT).rstrip("/") + path + objects

    def end_links(self, name: str, folder: str) -> None:
        """Delete the pre-authenticated requests of a name. They are of objects of a folder."""
        found = self._service.pages(
            *("list_preauthenticated_requests", *self._at),
            client=_CLIENT,
            object_name_prefix=folder,
        )
        for one in found:
            if one.name == name:
                self._call("delete_preauthenticated_request", one.id)

    def _call(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """Call an operation on the bucket."""
        return self._service.call(operation, *self._at, *args, client=_CLIENT, **kwargs)
