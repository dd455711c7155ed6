"""Certificates for servers of tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from msgspec import Struct

from support.keys import private_key, private_pem

#: The numbers of keys that no user has.
_AUTHORITY_KEY, _SERVER_KEY = 1001, 1002


class TlsFiles(Struct, frozen=True):
    """A certificate, its key, and the authority to trust; all are files in PEM."""

    cert: Path
    key: Path
    authority: Path


def write_certificate(folder: Path, domain: str) -> TlsFiles:
    """A certificate for a domain, the services below it and this machine, by an authority of its
    own."""
    authority_key, key = private_key(_AUTHORITY_KEY), private_key(_SERVER_KEY)
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
    made.key.write_text(private_pem(_SERVER_KEY))
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
