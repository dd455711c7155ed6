"""Public keys of users, by which their requests are verified (OCI: API keys)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

#: Bits of a key (OCI).
_SHORTEST = 2048
_LONGEST = 16_384
_HINT = "`muster oci-config` makes a key; openssl rsa -pubout prints the public one of yours"


def read_public_key(pem: str) -> RSAPublicKey:
    """The key in a PEM text. Raises InvalidInput for what is none, for a private key and for a
    short one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if "PRIVATE KEY" in pem:
        raise InvalidInput(Problem("key", "is a private key, which stays where it is", _HINT))
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidInput(Problem("key", "is not a public key in PEM", _HINT)) from None
    if not isinstance(key, RSAPublicKey):
        raise InvalidInput(Problem("key", "is not an RSA key", _HINT))
    if not _SHORTEST <= key.key_size <= _LONGEST:
        text = f"has {key.key_size} bits; {_SHORTEST} to {_LONGEST} are possible"
        raise InvalidInput(Problem("key", text, _HINT))
    return key


def fingerprint_of(key: RSAPublicKey) -> str:
    """What names a key: MD5 of it in DER, in pairs of digits with colons (OCI)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digest = hashlib.md5(der, usedforsecurity=False).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, 32, 2))


def normal_pem(key: RSAPublicKey) -> str:
    """A key as it is stored."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
