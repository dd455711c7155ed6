"""Pre-authenticated requests: made through the SDK of OCI, used without a signature."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from muster.caller import Role
from support.faults import until
from support.oci_storage import NS, Storage
from support.teams import ask

oci = pytest.importorskip("oci")
models = oci.object_storage.models
Refused = Callable[..., tuple[int, str | None]]
LATER = datetime.now(UTC) + timedelta(days=1)


def create(client: Any, bucket: str, access: str, **more: Any) -> Any:
    given = {"name": "a link", "time_expires": LATER, **more}
    details = models.CreatePreauthenticatedRequestDetails(access_type=access, **given)
    return client.create_preauthenticated_request(NS, bucket, details).data


@pytest.mark.parametrize(
    ("access", "reads", "writes"),
    [
        ("ObjectRead", True, False),
        ("ObjectWrite", False, True),
        ("ObjectReadWrite", True, True),
        ("AnyObjectRead", True, False),
        ("AnyObjectWrite", False, True),
        ("AnyObjectReadWrite", True, True),
    ],
)
@pytest.mark.parametrize("name", ["a", "a folder/ä%.txt"])
def test_a_link_does_what_it_says(
    storage: Storage, bucket: str, access: str, reads: bool, writes: bool, name: str
) -> None:
    client, port = storage.clients["sam"], storage.teams.port
    client.put_object(NS, bucket, name, b"body", content_type="text/plain")
    one = not access.startswith("Any")
    link = create(client, bucket, access, object_name=name if one else None)
    path = link.access_uri if one else link.access_uri + quote(name)
    assert link.full_path == storage.url + link.access_uri
    got = ask(port, "GET", path)
    head = ask(port, "HEAD", path)
    assert (got.status, head.status) == ((200, 200) if reads else (404, 404))
    if reads:
        assert (got.body, got.headers["content-type"]) == (b"body", "text/plain")
        assert ask(port, "GET", path, headers={"Range": "bytes=1-2"}).body == b"od"
        assert head.headers["content-length"] == "4"
        assert got.headers["content-security-policy"].startswith("default-src 'none'")
    put = ask(port, "PUT", path, body=b"new", headers={"Content-Type": "text/x"})
    assert put.status == (200 if writes else 404)
    expected = b"new" if writes else b"body"
    assert client.get_object(NS, bucket, name).data.content == expected
    assert ask(port, "DELETE", path).status in (401, 405)
    other = link.access_uri.removesuffix(quote(name)) + "other"
    assert ask(port, "PUT", other, body=b"x").status == (200 if writes and not one else 404)


@pytest.mark.parametrize("expiry", ["9999-12-31T23:59:59.999999Z", "9999-12-31"])
def test_the_latest_expiry(storage: Storage, client: Any, bucket: str, expiry: str) -> None:
    link = create(client, bucket, "AnyObjectRead", time_expires=expiry)
    assert link.time_expires.year == 9999
    (listed,) = client.list_preauthenticated_requests(NS, bucket).data
    assert listed.time_expires == link.time_expires


def test_an_expiry_after_the_last_year(client: Any, bucket: str, refused: Refused) -> None:
    expiry = "9999-12-31T23:59:59-12:00"
    assert refused(create, client, bucket, "AnyObjectRead", time_expires=expiry) == (
        400,
        "InvalidParameter",
    )
    assert client.list_preauthenticated_requests(NS, bucket).data == []


def test_a_link_for_a_prefix(storage: Storage, client: Any, bucket: str) -> None:
    for name in ("a/1", "a/2", "b/1"):
        client.put_object(NS, bucket, name, b"1")
    more = {"object_name": "a/", "bucket_listing_action": "ListObjects"}
    path = create(client, bucket, "AnyObjectRead", **more).access_uri
    port = storage.teams.port
    assert ask(port, "GET", f"{path}a/1").status == 200
    assert ask(port, "GET", f"{path}b/1").status == 404
    listed = ask(port, "GET", f"{path}?prefix=a/")
    assert [one["name"] for one in listed.json["objects"]] == ["a/1", "a/2"]
    assert ask(port, "GET", path).status == 404
    assert ask(port, "GET", f"{path}?prefix=b/").status == 404
    silent = create(client, bucket, "AnyObjectRead").access_uri
    assert ask(port, "GET", silent).status == 404


def test_links_are_listed_without_their_secret(
    storage: Storage, client: Any, bucket: str, refused: Refused
) -> None:
    made = create(client, bucket, "ObjectRead", object_name="a")
    create(client, bucket, "AnyObjectWrite")
    found = client.list_preauthenticated_requests(NS, bucket).data
    assert {one.access_type for one in found} == {"ObjectRead", "AnyObjectWrite"}
    pages = oci.pagination.list_call_get_all_results
    assert len(pages(client.list_preauthenticated_requests, NS, bucket, limit=1).data) == 2
    got = client.get_preauthenticated_request(NS, bucket, made.id).data
    assert (got.name, got.object_name, got.access_type) == ("a link", "a", "ObjectRead")
    secret = made.access_uri.split("/")[2]
    assert secret not in str(got) + str(found)
    rows = storage.teams.backend.store.buckets.links(
        storage.teams.backend.store.buckets.get(bucket).id
    )
    assert secret not in str(rows)
    client.put_object(NS, bucket, "a", b"1")
    assert ask(storage.teams.port, "GET", made.access_uri).status == 200
    until(lambda: "/p/..." in storage.teams.log.getvalue(), "the request is logged")
    assert secret not in storage.teams.log.getvalue()
    client.delete_preauthenticated_request(NS, bucket, made.id)
    assert ask(storage.teams.port, "GET", made.access_uri).status == 404
    missing = (404, "PreauthenticatedRequestNotFound")
    assert refused(client.get_preauthenticated_request, NS, bucket, made.id) == missing
    assert refused(client.delete_preauthenticated_request, NS, bucket, made.id) == missing


def test_a_link_expires(storage: Storage, client: Any, bucket: str) -> None:
    client.put_object(NS, bucket, "a", b"1")
    made, buckets = create(client, bucket, "AnyObjectRead"), storage.teams.backend.store.buckets
    of = buckets.get(bucket)
    (link,) = buckets.links(of.id)
    assert ask(storage.teams.port, "GET", f"{made.access_uri}a").status == 200
    buckets.delete_link(of.id, link.id)
    buckets.insert_link(replace(link, expires_at=link.created_at))
    late = ask(storage.teams.port, "GET", f"{made.access_uri}a")
    assert (late.status, late.json["code"]) == (404, "NotAuthorizedOrNotFound")


def test_a_link_has_the_rights_of_its_user(storage: Storage, bucket: str) -> None:
    teams, client = storage.teams, storage.clients["mara"]
    client.put_object(NS, bucket, "a", b"1")
    path = create(client, bucket, "AnyObjectReadWrite").access_uri
    try:
        teams.accounts.set_member("vision", "mara", Role.VIEWER)
        assert ask(teams.port, "GET", f"{path}a").status == 200
        assert ask(teams.port, "PUT", f"{path}a", body=b"2").status == 404
        teams.accounts.remove_member("vision", "mara")
        assert ask(teams.port, "GET", f"{path}a").status == 404
    finally:
        teams.accounts.set_member("vision", "mara", Role.MAINTAINER)


@pytest.mark.parametrize(
    ("access", "more"),
    [
        ("ObjectRead", {}),
        ("AnyObjectRead", {"time_expires": datetime(2000, 1, 1, tzinfo=UTC)}),
        ("AnyObjectWrite", {"bucket_listing_action": "ListObjects"}),
    ],
)
def test_links_that_cannot_be(
    client: Any, bucket: str, access: str, more: dict[str, Any], refused: Refused
) -> None:
    assert refused(create, client, bucket, access, **more) == (400, "InvalidParameter")


def test_other_secrets_buckets_and_namespaces(storage: Storage, client: Any, bucket: str) -> None:
    client.put_object(NS, bucket, "a", b"1")
    path = f"{create(client, bucket, 'AnyObjectRead').access_uri}a"
    other = storage.bucket()
    client.put_object(NS, other, "a", b"1")
    secret = path.split("/")[2]
    for wrong in (
        path.replace(secret, "x" * len(secret)),
        path.replace(f"/b/{bucket}/", f"/b/{other}/"),
        path.replace(f"/n/{NS}/", "/n/other/"),
    ):
        found = ask(storage.teams.port, "GET", wrong)
        assert found.status == 404
        assert json.loads(found.body)["code"] in ("NotAuthorizedOrNotFound", "NamespaceNotFound")
