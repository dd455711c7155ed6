"""Certificates by which the nodes of one run trust each other, and nobody else."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from muster.errors import EngineError
from muster.node.files import replace_file

_LIFETIME = datetime.timedelta(days=31)  # a run lives 30 at most


class Named(Protocol):
    """A node: its address and what it is called."""

    @property
    def address(self) -> str: ...
    @property
    def hostname(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...


def make_certificates(folder: Path, nodes: Sequence[Named]) -> None:
    """Write `ca.pem`, `cert.pem` and `key.pem`, for all nodes, readable by their owner alone.

    The authority's own key is not kept: nobody can be added. Raises EngineError where the
    `cryptography` package is missing.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        text = "certificates need the cryptography package: pip install 'muster-jobs[tls]'"
        raise EngineError(text) from None
    now = datetime.datetime.now(datetime.UTC)
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster run")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster node")])
    names: list[x509.GeneralName] = []
    for node in nodes:
        names.append(x509.IPAddress(ipaddress.ip_address(node.address)))
        names += [x509.DNSName(name) for name in dict.fromkeys((node.hostname, *node.names))]

    def builder(name: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
        )

    # key usage and identifiers: Python 3.13 and later trust no authority without them (RFC 5280)
    known = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    ca = (
        builder(issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(x509, key_cert_sign=True), critical=True)
        .add_extension(known, critical=False)
        .sign(authority, hashes.SHA256())
    )
    by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
    cert = (
        builder(subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(x509, digital_signature=True), critical=True)
        .add_extension(by, critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in (
        ("ca.pem", ca.public_bytes(pem)),
        ("cert.pem", cert.public_bytes(pem)),
        ("key.pem", private),
    ):
        replace_file(folder / name, content, 0o600)


def _usage(x509: Any, **meant: bool) -> Any:
    """What a key is for: this, and nothing else."""
    others = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{**dict.fromkeys(others, False), **meant})
