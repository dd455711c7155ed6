"""The headers of objects: what is kept of a request, and what is sent. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import NoReturn

from muster.server.oci.errors import OciError, invalid
from muster.store.object_records import Condition, ObjectRecord

#: Reads a header by its name in small letters; "" if it is missing.
ReadHeader = Callable[[str], str]

#: Headers that are kept with an object, and sent with it.
KEPT = (
    "content-type",
    "content-language",
    "content-encoding",
    "content-disposition",
    "cache-control",
)
#: Parameters of a query that replace them, or one more, in one answer.
REPLACING = {
    "httpResponseContentType": "content-type",
    "httpResponseContentLanguage": "content-language",
    "httpResponseContentEncoding": "content-encoding",
    "httpResponseContentDisposition": "content-disposition",
    "httpResponseCacheControl": "cache-control",
    "httpResponseExpires": "expires",
}
_META = "opc-meta-"
#: Bytes of all names and values of metadata (OCI: 4,000).
_MOST_METADATA = 4000
_META_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


def kept_headers(header: ReadHeader) -> dict[str, str]:
    """What is kept with an object of the headers of a request. Raises OciError."""
    found = {name: value for name in KEPT if (value := header(name))}
    return {"content-type": "application/octet-stream"} | {
        name: check_value(name, value) for name, value in found.items()
    }


def metadata_of(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The metadata among headers, or names and values with or without their prefix. Raises
    OciError."""
    found: dict[str, str] = {}
    for name, value in given:
        short = name.lower().removeprefix(_META)
        if not _META_NAME.fullmatch(short):
            raise invalid(f"metadata has the name {name[:100]!r}, which no header can have")
        found[short] = check_value(name, value)
    size = sum(len(name) + len(value) for name, value in found.items())
    if size > _MOST_METADATA:
        raise invalid(f"metadata has {size} bytes; at most {_MOST_METADATA} are possible")
    return found


def metadata_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The metadata in the headers of a request. Raises OciError."""
    decoded = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return metadata_of((name, value) for name, value in decoded if name.startswith(_META))


def check_value(name: str, value: str) -> str:
    """The value, if a header can have it. Raises OciError."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        _no_header(name)
    if any((ord(one) < 32 and one != "\t") or ord(one) == 127 for one in value):
        _no_header(name)
    return value


def _no_header(name: str) -> NoReturn:
    raise invalid(f"{name[:100]} has characters that no header can have")


def object_headers(record: ObjectRecord) -> dict[str, str]:
    """What an object is sent with, but its length."""
    digest = "opc-multipart-md5" if "-" in record.md5 else "content-md5"
    return {
        **record.headers,
        **{f"{_META}{name}": value for name, value in record.metadata.items()},
        digest: record.md5,
        "etag": record.etag,
        "last-modified": formatdate(record.modified_at, usegmt=True),
        "version-id": record.etag,
        "storage-tier": "Standard",
        "accept-ranges": "bytes",
    }


def condition_of(header: ReadHeader) -> Condition:
    """The condition in the headers of a request."""
    return Condition(header("if-match"), header("if-none-match"))


def check_md5(header: str, digest: bytes) -> None:
    """Raises OciError unless the header Content-MD5, if there is one, is of this digest."""
    if not header:
        return
    try:
        given = base64.b64decode(header, validate=True)
    except (binascii.Error, ValueError):
        given = b""
    if len(given) != len(digest):
        raise OciError(400, "InvalidContentMD5", "content-md5 is not an MD5 digest in base 64")
    if given != digest:
        text = f"The body has the MD5 digest {in_base64(digest)}, not the one in content-md5"
        raise OciError(400, "UnmatchedContentMD5", text)


def in_base64(digest: bytes) -> str:
    """A digest as it is sent."""
    return base64.b64encode(digest).decode()


def digest_of_parts(digests: Iterable[str]) -> str:
    """The digest of an object in parts (OCI: opc-multipart-md5). digests: those of its parts, in
    base 64, in their order."""
    from hashlib import md5

    parts = [base64.b64decode(one) for one in digests]
    whole = md5(b"".join(parts), usedforsecurity=False).digest()
    return f"{in_base64(whole)}-{len(parts)}"
