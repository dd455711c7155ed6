"""Read public keys."""

from __future__ import annotations

import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from muster.errors import InvalidInput
from muster.iam.public_keys import fingerprint_of, normal_pem, read_public_key
from support.keys import private_key, private_pem, public_pem


def pem_of(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    public = key.public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def test_the_fingerprint_is_that_of_openssl() -> None:
    key = read_public_key(public_pem())
    der = subprocess.run(
        ["openssl", "rsa", "-pubin", "-outform", "DER"],
        input=normal_pem(key).encode(),
        capture_output=True,
        check=True,
    ).stdout
    digest = subprocess.run(
        ["openssl", "md5", "-c"], input=der, capture_output=True, check=True
    ).stdout.decode()
    assert digest.split()[-1] == fingerprint_of(key)


def test_a_key_is_stored_in_one_form() -> None:
    key = private_key().public_key()
    other = key.public_bytes(Encoding.PEM, PublicFormat.PKCS1).decode()
    assert normal_pem(read_public_key(other)) == normal_pem(read_public_key(public_pem()))


@pytest.mark.parametrize(
    ("pem", "problem"),
    [
        ("", "is not a public key in PEM"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "is not a public key"),
        (private_pem(), "is a private key, which stays where it is"),
        (pem_of(ec.generate_private_key(ec.SECP256R1())), "is not an RSA key"),
        (pem_of(rsa.generate_private_key(65537, 1024)), "has 1024 bits; 2048 to 16384"),
    ],
)
def test_other_keys_are_refused(pem: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_public_key(pem)
