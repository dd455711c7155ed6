"""TLS certificates: those that only the nodes of one run trust, and those of a server for the names
of OCI's services."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from muster.node.files import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName

_LIFETIME = datetime.timedelta(days=31)  # a run takes at most 30
_AUTHORITY = "muster run"
_SERVER_AUTHORITY = "muster server authority"
_INSTANCE_AUTHORITY = "muster instance authority"
#: Of a server's authority, which clients trust, and of its certificates (the most that browsers and
#: some clients accept).
_AUTHORITY_LIFETIME = datetime.timedelta(days=3650)
_SERVER_LIFETIME = datetime.timedelta(days=397)
#: A server's certificate is replaced at a start when it lasts no longer than this.
_RENEWED_BEFORE = datetime.timedelta(days=60)


class Named(Protocol):
    """A node with its address and host names."""

    @property
    def address(self) -> str: ...
    @property
    def hostname(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...


def make_certificates(folder: Path, nodes: Sequence[Named]) -> None:
    """Write `ca.pem`, `cert.pem` and `key.pem` for all nodes, readable only by their owner.

    The key of the certificate authority is discarded, so that no certificate can be added.
    """
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for node in nodes:
        names.append(x509.IPAddress(ipaddress.ip_address(node.address)))
        names += [x509.DNSName(name) for name in dict.fromkeys((node.hostname, *node.names))]
    _write(folder, "muster node", names)


def make_supervisor_certificate(folder: Path, name: str) -> None:
    """As `make_certificates`, for the supervisor of a run, which nodes know by this name."""
    from cryptography import x509

    _write(folder, "muster supervisor", [x509.DNSName(name)])


def server_certificate(folder: Path, names: Sequence[str], now: datetime.datetime) -> Path:
    """The folder of a certificate for these names or addresses, signed by an authority that clients
    trust: `ca.pem`, `cert.pem` and `key.pem`. Made or renewed if needed; the authority stays."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = [folder / name for name in ("ca.pem", "cert.pem", "key.pem")]
    given = [_general_name(name) for name in names]
    if all(file.exists() for file in files) and _serves(files[1], given, now):
        return folder
    pem, key_file = serialization.Encoding.PEM, folder / "ca-key.pem"
    if key_file.exists() and files[0].exists():
        found = serialization.load_pem_private_key(key_file.read_bytes(), None)
        assert isinstance(found, ec.EllipticCurvePrivateKey)
        authority = found
    else:
        authority = ec.generate_private_key(ec.SECP256R1())
        replace_file(key_file, _private_pem(authority), 0o600)
        issued = _authority_certificate(authority, _SERVER_AUTHORITY, _AUTHORITY_LIFETIME)
        replace_file(files[0], issued.public_bytes(pem), 0o644)
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = _leaf_certificate(
        *("muster server", key.public_key(), authority, given),
        by_name=_SERVER_AUTHORITY,
        lifetime=_SERVER_LIFETIME,
    )
    replace_file(files[2], _private_pem(key), 0o600)
    replace_file(files[1], leaf.public_bytes(pem), 0o644)
    return folder


def authority_of(folder: Path) -> tuple[EllipticCurvePrivateKey, bytes]:
    """The key of the authority of a folder, and its certificate in PEM. Made if it is missing."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key_file, file = folder / "ca-key.pem", folder / "ca.pem"
    if not (key_file.exists() and file.exists()):
        made = ec.generate_private_key(ec.SECP256R1())
        issued = _authority_certificate(made, _INSTANCE_AUTHORITY, _AUTHORITY_LIFETIME)
        replace_file(key_file, _private_pem(made), 0o600)
        replace_file(file, issued.public_bytes(serialization.Encoding.PEM), 0o644)
    found = serialization.load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(found, ec.EllipticCurvePrivateKey)
    return found, file.read_bytes()


def instance_certificate(
    name: str,
    units: Sequence[str],
    key: RSAPublicKey,
    authority: EllipticCurvePrivateKey,
    lifetime: datetime.timedelta,
) -> tuple[int, bytes]:
    """A certificate of an instance, whose subject has these units beside its name (OCI:
    `opc-tenant:OCID`, ...). Its serial number, and the certificate in PEM. key: of RSA, as clients
    of OCI sign with it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    signed = (
        _certificate(name, key, _INSTANCE_AUTHORITY, lifetime, units)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(x509, digital_signature=True), critical=True)
        .sign(authority, hashes.SHA256())
    )
    return signed.serial_number, signed.public_bytes(Encoding.PEM)


def _general_name(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _serves(file: Path, names: Sequence[GeneralName], now: datetime.datetime) -> bool:
    """Whether a certificate lasts, and has these names."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(file.read_bytes())
    extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    if list(extension.value) != list(names):
        return False
    return now + _RENEWED_BEFORE < found.not_valid_after_utc


def _private_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(folder: Path, subject: str, names: Sequence[GeneralName]) -> None:
    """Write the files of a certificate for these names, and of its authority."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    pem = serialization.Encoding.PEM
    certificate = _leaf_certificate(subject, key.public_key(), authority, names)
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in (
        ("ca.pem", _authority_certificate(authority).public_bytes(pem)),
        ("cert.pem", certificate.public_bytes(pem)),
        ("key.pem", _private_pem(key)),
    ):
        replace_file(folder / name, content, 0o600)


def _authority_certificate(
    authority: EllipticCurvePrivateKey,
    name: str = _AUTHORITY,
    lifetime: datetime.timedelta = _LIFETIME,
) -> Certificate:
    """The certificate of an authority, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    # Python 3.13 and later require key usage and identifiers of an authority (RFC 5280)
    public = authority.public_key()
    return (
        _certificate(name, public, name, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(x509, key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(authority, hashes.SHA256())
    )


def _leaf_certificate(
    subject: str,
    public: EllipticCurvePublicKey,
    authority: EllipticCurvePrivateKey,
    names: Sequence[GeneralName],
    by_name: str = _AUTHORITY,
    lifetime: datetime.timedelta = _LIFETIME,
) -> Certificate:
    """A certificate of an authority for these addresses and names."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    signer = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer)
    return (
        _certificate(subject, public, by_name, lifetime)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(x509, digital_signature=True), critical=True)
        .add_extension(by, critical=False)
        .sign(authority, hashes.SHA256())
    )


def _certificate(
    subject: str,
    public: EllipticCurvePublicKey | RSAPublicKey,
    issuer: str,
    lifetime: datetime.timedelta,
    units: Sequence[str] = (),
) -> CertificateBuilder:
    """A certificate without extensions. units: of the subject, beside its name."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.COMMON_NAME, subject),
                    *(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, one) for one in units),
                ]
            )
        )
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + lifetime)
    )


def _usage(x509: Any, **purposes: bool) -> Any:
    """A key usage extension with only these purposes."""
    others = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{**dict.fromkeys(others, False), **purposes})
