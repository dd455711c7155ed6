"""URLs with a secret, which give access without a signature (OCI: PreauthenticatedRequest).

Such a link can do what it says, in its bucket, until it expires, and only as long as the user who
has made it may do so. Only the digest of the secret is stored.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from muster.caller import Caller
from muster.describe.times import time_text_ms
from muster.errors import NotAuthenticated, NotFound
from muster.iam.principals import principal_of
from muster.iam.resources import variables_of_bucket
from muster.identity import new_id
from muster.permissions import Permission
from muster.server.answers import Answer, Stream, encoded
from muster.server.oci.errors import OciError, invalid, not_found
from muster.server.oci.moments import epoch
from muster.server.oci.object_storage.buckets import paged
from muster.server.oci.object_storage.objects import list_in, store_body
from muster.server.oci.object_storage.places import (
    Writable,
    check_name,
    find_bucket,
    namespace_of,
    writable,
)
from muster.server.oci.object_storage.transfers import send_object
from muster.server.oci.request import OciRequest
from muster.spec.formats.oci.object_model import CreateLink
from muster.store.object_records import AccessLinkRecord, BucketRecord

#: What a link may be for: whether it reads and writes, and whether it is of one object.
_READS = ("ObjectRead", "ObjectReadWrite", "AnyObjectRead", "AnyObjectReadWrite")
_WRITES = ("ObjectWrite", "ObjectReadWrite", "AnyObjectWrite", "AnyObjectReadWrite")
_OF_ONE = ("ObjectRead", "ObjectWrite", "ObjectReadWrite")
_LISTS = {"ListObjects": True, "Deny": False}
_PAGE = 1000


def create_link(request: OciRequest) -> Answer:
    """POST /n/{namespace}/b/{bucket}/p"""
    bucket = find_bucket(request)
    request.require_user(bucket.project, "create a pre-authenticated request")
    given = request.read(CreateLink)
    now, secret = time.time(), secrets.token_urlsafe(48)
    link = AccessLinkRecord(
        new_id(),
        bucket.id,
        given.name,
        _digest(secret),
        _access(given),
        given.object_name,
        _lists(given),
        request.principal.user,
        now,
        _expiry(given.time_expires, now),
    )
    request.act(
        *(bucket.project, request.permission, "oci.links.create", f"{bucket.name}: {given.name}"),
        lambda: request.store.buckets.insert_link(link),
        variables_of_bucket(bucket),
    )
    target = quote(link.object_name or "", safe="/") if link.access in _OF_ONE else ""
    path = f"/p/{secret}/n/{namespace_of(request)}/b/{quote(bucket.name)}/o/{target}"
    scheme = "http" if request.state.settings.tls_cert is None else "https"
    full = f"{scheme}://{request.header('host')}{path}"
    return Answer(encoded({**_shown(link), "accessUri": path, "fullPath": full}))


def _access(given: CreateLink) -> str:
    if given.access_type not in {*_READS, *_WRITES}:
        raise invalid(f"accessType has to be one of {', '.join(sorted({*_READS, *_WRITES}))}")
    if given.access_type in _OF_ONE:
        if given.object_name is None:
            raise invalid(f"objectName is required with the access type {given.access_type}")
        check_name(given.object_name)
    if "\0" in given.name + (given.object_name or ""):
        raise invalid("names have no NUL")
    return given.access_type


def _lists(given: CreateLink) -> bool:
    action = given.bucket_listing_action or "Deny"
    if action not in _LISTS:
        raise invalid(f"bucketListingAction has to be one of {', '.join(_LISTS)}")
    if _LISTS[action] and given.access_type not in ("AnyObjectRead", "AnyObjectReadWrite"):
        raise invalid("bucketListingAction needs AnyObjectRead or AnyObjectReadWrite")
    return _LISTS[action]


def _expiry(text: str, now: float) -> float:
    """Epoch seconds. Raises OciError."""
    try:
        seconds = epoch(datetime.fromisoformat(text))
    except ValueError:
        raise invalid("timeExpires has to be a time such as 2026-01-31T12:00:00Z") from None
    if seconds <= now:
        raise invalid("timeExpires has to be in the future")
    return seconds


def list_links(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}/p"""
    bucket = find_bucket(request)
    limit = request.number("limit", _PAGE, 1, _PAGE)
    assert limit is not None
    page = request.given("page")
    found = request.store.buckets.links(bucket.id, limit=limit + 1, after=page)
    prefix = request.given("objectNamePrefix") or ""
    shown = [_shown(link) for link in found[:limit] if (link.object_name or "").startswith(prefix)]
    return paged(shown, None if len(found) <= limit else found[limit - 1].id)


def get_link(request: OciRequest) -> Answer:
    """GET /n/{namespace}/b/{bucket}/p/{link_id}"""
    bucket = find_bucket(request)
    try:
        return Answer(encoded(_shown(request.store.buckets.link(bucket.id, request.path["link"]))))
    except NotFound:
        raise _no_such_link() from None


def delete_link(request: OciRequest) -> Answer:
    """DELETE /n/{namespace}/b/{bucket}/p/{link_id}"""
    bucket, link_id = find_bucket(request), request.path["link"]
    deleted = request.act(
        *(bucket.project, request.permission, "oci.links.delete", f"{bucket.name}: {link_id}"),
        lambda: request.store.buckets.delete_link(bucket.id, link_id),
        variables_of_bucket(bucket),
    )
    if not deleted:
        raise _no_such_link()
    return Answer(status=204)


def _no_such_link() -> OciError:
    text = "The pre-authenticated request was not found"
    return OciError(404, "PreauthenticatedRequestNotFound", text)


def _shown(link: AccessLinkRecord) -> Mapping[str, Any]:
    return {
        "id": link.id,
        "name": link.name,
        "objectName": link.object_name,
        "bucketListingAction": "ListObjects" if link.lists else "Deny",
        "accessType": link.access,
        "timeExpires": time_text_ms(link.expires_at),
        "timeCreated": time_text_ms(link.created_at),
    }


async def get_by_link(request: OciRequest) -> Answer | Stream:
    """GET and HEAD /p/{secret}/n/{namespace}/b/{bucket}/o/{object...}"""
    bucket = await request.state.in_thread(_readable, request)
    return await send_object(request, bucket, request.path["object"])


def _readable(request: OciRequest) -> BucketRecord:
    """The bucket whose object may be read. Raises OciError."""
    opened = _opened(request, _READS)
    on = variables_of_bucket(opened.bucket, request.path["object"])
    request.require_of(opened.owner, Permission.OBJECT_READ, on)
    return opened.bucket


async def put_by_link(request: OciRequest) -> Answer:
    """PUT /p/{secret}/n/{namespace}/b/{bucket}/o/{object...}"""

    def found() -> Writable:
        opened = _opened(request, _WRITES)
        try:
            return writable(request, opened.bucket, request.path["object"], opened.owner)
        except OciError:
            raise not_found() from None

    place = await request.state.in_thread(found)
    return await store_body(request, place, request.path["object"])


async def list_by_link(request: OciRequest) -> Answer:
    """GET /p/{secret}/n/{namespace}/b/{bucket}/o"""

    def listed() -> Answer:
        opened = _opened(request, _READS)
        prefix, own = request.given("prefix") or "", opened.link.object_name or ""
        allowed = opened.link.lists and prefix.startswith(own)
        if not allowed or not opened.owner.allows(Permission.OBJECT_INSPECT):
            raise not_found()
        return list_in(request, opened.bucket, prefix, opened.owner)

    return await request.state.in_thread(listed)


class _Opened(Struct, frozen=True):
    """What a link gives access to."""

    bucket: BucketRecord
    link: AccessLinkRecord
    #: Who has created the link: it does nothing that this user may not do now.
    owner: Caller


def _opened(request: OciRequest, kinds: tuple[str, ...]) -> _Opened:
    """What the secret in the path gives access to, if that is of one of these kinds, to the object
    in the path, too. Raises OciError: the same one whatever is wrong."""
    namespace_of(request)
    store = request.store
    try:
        link = store.buckets.link_by_digest(_digest(request.path["secret"]))
        bucket = store.buckets.by_id(link.bucket)
        owner = principal_of(
            store.accounts, request.state.backend.policies, link.created_by, f"link {link.id}"
        )
    except (NotFound, NotAuthenticated):
        raise not_found() from None
    allowed = (
        link.access in kinds
        and link.expires_at > time.time()
        and bucket.name == request.path["bucket"]
        and _is_of(link, request.path.get("object"))
    )
    if not allowed:
        raise not_found()
    request.call.signer = link.created_by
    return _Opened(bucket, link, owner.caller(bucket.project))


def _is_of(link: AccessLinkRecord, name: str | None) -> bool:
    """Whether a link is of an object; of all that may be listed, for None."""
    if link.access in _OF_ONE:
        return name == link.object_name
    return name is None or name.startswith(link.object_name or "")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
