"""RSA keys for tests, which take long to make."""

from __future__ import annotations

from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def private_key(number: int = 0) -> rsa.RSAPrivateKey:
    """A key; another one for each number."""
    return _made(number)


@cache
def _made(_number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def private_pem(number: int = 0) -> str:
    """A private key, as clients of OCI read it."""
    key = private_key(number)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_pem(number: int = 0) -> str:
    """A public key."""
    public = private_key(number).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
