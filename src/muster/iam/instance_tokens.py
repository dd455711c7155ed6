"""Tokens of instances: what a host has instead of a key's fingerprint (OCI: instance principals).

A host has a certificate (`storage.instances`). With that, it asks for a token for the public key of
a session (OCI: POST /v1/x509 of the Auth service), whose private key signs its requests.
"""

from __future__ import annotations

import datetime
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.errors import NotFound
from muster.iam.signatures import (
    Headers,
    Signature,
    SignatureRefused,
    check_body,
    check_date,
    check_value,
    signed_text,
)
from muster.identity import new_id
from muster.signed_tokens import InvalidToken, SignedTokens, key_of
from muster.spec.ocids import compartment_ocid
from muster.storage.instances import OVERLAP, Instance, instance

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509 import Certificate

    from muster.storage.home import Home

#: Seconds that a token can be used.
LIFETIME = OVERLAP
#: Where a host gets a certificate for its key, with its present one: Muster's own.
RENEWAL = "/v1/x509/certificate"
#: The claim `ptype` of such a token.
_INSTANCE = "instance"


class InstanceToken(Struct, frozen=True):
    """A verified token."""

    instance: Instance
    key: RSAPublicKey
    expires_at: float
    """Epoch seconds."""


class Certified(Struct, frozen=True):
    """What a certificate says."""

    instance: Instance
    key: RSAPublicKey
    """Signs requests for tokens."""
    serial: str
    fingerprint: str


def is_of_instance(claims: Mapping[str, Any]) -> bool:
    """Whether claims are those of an instance's token."""
    return claims.get("ptype") == _INSTANCE


def issue(
    tokens: SignedTokens, certified: Certified, key: RSAPublicKey, tenancy: str, now: float
) -> str:
    """A token for an instance and the key of its session."""
    found = certified.instance
    claims = {
        "sub": found.id,
        "jti": new_id(),
        "iat": int(now),
        "exp": int(now + LIFETIME),
        "ptype": _INSTANCE,
        "tenant": tenancy,
        "opc-tenant": tenancy,
        "opc-instance": found.id,
        "opc-compartment": compartment_ocid(found.project),
        "name": found.name,
        "serial": certified.serial,
    }
    return tokens.sign(claims, key)


def instance_token(home: Home, claims: Mapping[str, Any], now: float) -> InstanceToken:
    """The token with these claims. Raises InvalidToken if it has expired, or its host was removed
    or has another certificate by now."""
    try:
        name, serial, expires_at = str(claims["name"]), claims["serial"], float(claims["exp"])
        found = instance(home, name)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidToken(f"it lacks something: {error}") from None
    except NotFound as error:
        raise InvalidToken(str(error)) from None
    if expires_at <= now:
        raise InvalidToken(f"that of instance {name} has expired")
    if claims.get("sub") != found.id or not found.accepts(str(serial), now):
        raise InvalidToken(f"instance {name} was registered again since")
    return InstanceToken(found, key_of(claims), expires_at)


def verify_certificate(home: Home, text: str, address: str, now: float) -> Certified:
    """text: PEM, perhaps without its first and last line. address: from where it is used. Raises
    SignatureRefused."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.x509.oid import NameOID

    certificate = _loaded(text)
    authority = _authority(home)
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise SignatureRefused("the certificate was not issued by this server") from None
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    if not certificate.not_valid_before_utc <= moment < certificate.not_valid_after_utc:
        raise SignatureRefused("the certificate has expired, or is not valid yet")
    name = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    try:
        found = instance(home, name)
    except NotFound as error:
        raise SignatureRefused(str(error)) from None
    serial = f"{certificate.serial_number:x}"
    if not found.accepts(serial, now):
        raise SignatureRefused(f"instance {name} has another certificate by now")
    check_address(found, address)
    fingerprint = certificate.fingerprint(SHA1()).hex(":")
    return Certified(found, _rsa(certificate.public_key()), serial, fingerprint)


def check_address(found: Instance, address: str) -> None:
    """Raises SignatureRefused unless a host can be used from an address."""
    if not found.is_at(address):
        only = ", ".join(found.networks)
        raise SignatureRefused(
            f"instance {found.name} was used from {address or 'a socket'}, and can only be used "
            f"from {only}; if it reaches the server through a proxy or through NAT, see "
            "trusted_proxies in server.toml, or register it again with the address that is seen"
        )


def check_request(
    signature: Signature,
    certified: Certified,
    target: str,
    sent: Headers,
    body: bytes,
    now: float,
) -> None:
    """Raises SignatureRefused unless the key of a certificate has signed a request."""
    if signature.key_id.rpartition("/")[2].lower() != certified.fingerprint:
        raise SignatureRefused("the request is signed with another certificate than it has")
    values = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent}
    # OCI: without the host
    for name in ("date", "(request-target)", "x-content-sha256"):
        if name not in signature.headers:
            raise SignatureRefused(f"the signature lacks {name}")
    check_date(values.get("date", ""), now)
    check_value((certified.key,), signature, signed_text(signature, "POST", target, sent))
    check_body(values.get("x-content-sha256", ""), body)


def public_key(text: str) -> RSAPublicKey:
    """The key of a session. text: PEM, perhaps without its first and last line. Raises
    SignatureRefused."""
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        return _rsa(load_der_public_key(_der(text)))
    except (ValueError, TypeError):
        raise SignatureRefused("the public key of the session cannot be read") from None


def _loaded(text: str) -> Certificate:
    from cryptography.x509 import load_der_x509_certificate

    try:
        return load_der_x509_certificate(_der(text))
    except ValueError:
        raise SignatureRefused("the certificate cannot be read") from None


def _der(text: str) -> bytes:
    lines = [line for line in text.splitlines() if not line.startswith("-----")]
    try:
        return b64decode("".join(lines), validate=True)
    except NotBase64:
        raise ValueError("it is not in base64") from None


def _authority(home: Home) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate((home.root / "instances" / "ca.pem").read_bytes())
    except FileNotFoundError:
        raise SignatureRefused(
            "no instance is registered; `muster server instance` does it"
        ) from None


def _rsa(key: object) -> RSAPublicKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if not isinstance(key, RSAPublicKey):
        raise SignatureRefused("the key is not of RSA")
    return key
