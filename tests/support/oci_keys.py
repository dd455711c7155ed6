"""Keys, certificates and config files of OCI's clients, for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from msgspec import Struct

from muster.iam.public_keys import fingerprint_of
from muster.spec.ocids import TENANCY, user_ocid


@cache
def private_key() -> RSAPrivateKey:
    """The key of the tests of this process."""
    return generate_private_key(public_exponent=65537, key_size=2048)


def private_pem(key: RSAPrivateKey) -> bytes:
    """A key as clients read it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: RSAPrivateKey) -> str:
    """The public part of a key, as `muster users keys add` reads it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def write_config(folder: Path, user: str, region: str) -> dict[str, Any]:
    """A config file for OCI's clients, where they look for it if `folder` is the user's home, and
    what it says."""
    path = folder / ".oci" / "config"
    path.parent.mkdir()
    key_file = path.parent / "key.pem"
    key_file.write_bytes(private_pem(private_key()))
    key_file.chmod(0o600)
    config = {
        "user": user_ocid(user),
        "tenancy": TENANCY,
        "fingerprint": fingerprint_of(private_key().public_key()),
        "key_file": str(key_file),
        "region": region,
    }
    path.write_text("[DEFAULT]\n" + "".join(f"{name}={text}\n" for name, text in config.items()))
    path.chmod(0o600)
    return config


class TlsFiles(Struct, frozen=True):
    """A certificate, its key, and the authority to trust; all are files in PEM."""

    cert: Path
    key: Path
    authority: Path


def write_certificate(folder: Path, domain: str) -> TlsFiles:
    """A certificate for a domain, the services below it and this machine, by an authority of its
    own."""
    authority_key, key = private_key(), generate_private_key(public_exponent=65537, key_size=2048)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, domain)])
    names = ["localhost", domain, *(f"*{inner}.{domain}" for inner in ("", ".logging", ".vaults"))]
    authority = (
        _builder(issuer, issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(subject, issuer, key)
        .add_extension(x509.SubjectAlternativeName(map(x509.DNSName, names)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    made = TlsFiles(folder / "cert.pem", folder / "tls.pem", folder / "authority.pem")
    made.cert.write_bytes(certificate.public_bytes(Encoding.PEM))
    made.key.write_bytes(private_pem(key))
    made.authority.write_bytes(authority.public_bytes(Encoding.PEM))
    return made


def _builder(subject: x509.Name, issuer: x509.Name, key: RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
