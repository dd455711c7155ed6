"""The headers of objects: what is kept, and what is sent."""

from __future__ import annotations

import base64
import hashlib

import pytest

from muster.server.oci.errors import OciError
from muster.server.oci.object_storage.headers import (
    check_md5,
    condition_of,
    digest_of_parts,
    in_base64,
    kept_headers,
    metadata_headers,
    metadata_of,
    object_headers,
)
from muster.store.object_records import Condition, ObjectRecord

DIGEST = hashlib.md5(b"body").digest()


def test_known_headers_are_kept() -> None:
    given = {"content-type": "text/x", "cache-control": "no-store", "x-other": "1", "etag": "e"}
    kept = {"content-type": "text/x", "cache-control": "no-store"}
    assert kept_headers(lambda name: given.get(name, "")) == kept
    assert kept_headers(lambda _: "") == {"content-type": "application/octet-stream"}


def test_metadata_of_headers() -> None:
    raw = [(b"opc-meta-a", b"1"), (b"opc-metab", b"2"), (b"opc-meta-c", b"caf\xe9")]
    assert metadata_headers(raw) == {"a": "1", "c": "café"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"opc-meta-A": "1"}, {"a": "1"}),
        ({"a": "tab\tis text"}, {"a": "tab\tis text"}),
        ({"a b": "1"}, None),
        ({"": "1"}, None),
        ({"a:": "1"}, None),
        ({"a": "1\r\nset-cookie: x"}, None),
        ({"a": "1\n"}, None),
        ({"a": "\x00"}, None),
        ({"a": "\U0001f600"}, None),
        ({"a": "x" * 3999}, {"a": "x" * 3999}),
        ({"a": "x" * 4000}, None),
    ],
)
def test_metadata_that_headers_can_have(
    given: dict[str, str], expected: dict[str, str] | None
) -> None:
    if expected is not None:
        assert metadata_of(given.items()) == expected
        return
    with pytest.raises(OciError) as caught:
        metadata_of(given.items())
    assert (caught.value.status, caught.value.code) == (400, "InvalidParameter")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", ""),
        (base64.b64encode(DIGEST).decode(), ""),
        (base64.b64encode(b"x" * 16).decode(), "UnmatchedContentMD5"),
        (base64.b64encode(DIGEST[:-1]).decode(), "InvalidContentMD5"),
        (DIGEST.hex(), "InvalidContentMD5"),
        ("!", "InvalidContentMD5"),
        ("é", "InvalidContentMD5"),
    ],
)
def test_the_digest_of_a_body(header: str, code: str) -> None:
    if not code:
        check_md5(header, DIGEST)
        return
    with pytest.raises(OciError) as caught:
        check_md5(header, DIGEST)
    assert (caught.value.status, caught.value.code) == (400, code)


def test_the_digest_of_parts() -> None:
    parts = [hashlib.md5(body).digest() for body in (b"1", b"22")]
    whole = in_base64(hashlib.md5(b"".join(parts)).digest())
    assert digest_of_parts(map(in_base64, parts)) == f"{whole}-2"


def test_an_object_is_sent_with_its_headers() -> None:
    record = ObjectRecord(
        *("b", "n", "e", "c", 3, "md5", 0.0, 1700000000.9), {"content-type": "x"}, {"k": "v"}
    )
    assert object_headers(record) == {
        "content-type": "x",
        "opc-meta-k": "v",
        "content-md5": "md5",
        "etag": "e",
        "last-modified": "Tue, 14 Nov 2023 22:13:20 GMT",
        "version-id": "e",
        "storage-tier": "Standard",
        "accept-ranges": "bytes",
    }


def test_conditions_of_a_request() -> None:
    given = {"if-match": "a", "if-none-match": "*"}
    assert condition_of(lambda name: given.get(name, "")) == Condition("a", "*")
