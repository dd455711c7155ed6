"""Read the public numbers of a private key's file. `cryptography` does it too, after an import that
takes 30 ms: a process that only names the key in a token does without. Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator

from muster.signed_tokens import PublicKey

_BEGIN, _END = b"-----BEGIN PRIVATE KEY-----", b"-----END PRIVATE KEY-----"
_INTEGER, _SEQUENCE = 0x02, 0x30


def public_numbers(pem: bytes) -> PublicKey:
    """Those of an RSA key (PKCS #8 without a password: RFC 5958, RFC 8017). Raises ValueError."""
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if begin < 0 or end < begin:
        raise ValueError("it is no private key in PKCS #8")
    try:
        data = b64decode(pem[begin + len(_BEGIN) : end])
        # OneAsymmetricKey: version, algorithm, key; RSAPrivateKey: version, n, e, d, ...
        _, _, key = (value for _, value in _parts(_inside(data, _SEQUENCE)))
        _, n, e, *_ = (value for kind, value in _parts(_inside(key, _SEQUENCE)) if kind == _INTEGER)
    except (binascii.Error, IndexError, ValueError):
        raise ValueError("it is no RSA key") from None
    return PublicKey(int.from_bytes(n), int.from_bytes(e))


def _inside(data: bytes, kind: int) -> bytes:
    """The content of data that consists of one value of a kind."""
    ((found, value),) = _parts(data)
    if found != kind:
        raise ValueError(found)
    return value


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The values one after the other: tag, length, content (DER)."""
    at = 0
    while at < len(data):
        kind, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            digits = size & 0x7F
            size, at = int.from_bytes(data[at : at + digits]), at + digits
        if at + size > len(data):
            raise ValueError(size)
        yield kind, data[at : at + size]
        at += size
