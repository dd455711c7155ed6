"""The public numbers of a private key's file."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from muster.signed_tokens import PublicKey
from muster.storage.key_pool import new_key, pem
from muster.storage.public_numbers import public_numbers


@pytest.mark.parametrize(("size", "e"), [(1024, 65537), (1032, 3), (2048, 65537), (4096, 65537)])
def test_those_that_the_library_reads(size: int, e: int) -> None:
    key = rsa.generate_private_key(e, size)
    assert public_numbers(pem(key)) == PublicKey.of(key.public_key())


def other(key: object, form: PrivateFormat, how: KeySerializationEncryption) -> bytes:
    assert isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey))
    return key.private_bytes(Encoding.PEM, form, how)


def test_other_files_are_refused() -> None:
    key = new_key()
    files = {
        "PKCS #1": other(key, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        "encrypted": other(key, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")),
        "elliptic": other(
            ec.generate_private_key(ec.SECP256R1()), PrivateFormat.PKCS8, NoEncryption()
        ),
        "empty": b"",
    }
    for name, content in files.items():
        with pytest.raises(ValueError, match="it is no"):
            pytest.fail(f"{name}: {public_numbers(content)}")


KEY = pem(new_key())


@given(st.integers(0, len(KEY)), st.integers(0, len(KEY)), st.binary(max_size=8))
def test_damaged_files_are_refused_or_read(first: int, last: int, other: bytes) -> None:
    content = KEY[: min(first, last)] + other + KEY[max(first, last) :]
    try:
        found = public_numbers(content)
    except ValueError:
        return
    assert found.n > 0
