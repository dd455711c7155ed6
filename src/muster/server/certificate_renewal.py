"""Renews the certificate of a host that is registered as an instance (`storage.instances`), with
the present one: a copy of it is of no use soon after. Its key stays, as clients read the two files
one after the other."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from email.utils import formatdate
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from msgspec import DecodeError, Struct, json

from muster.iam.instance_tokens import RENEWAL
from muster.iam.signatures import TARGET, Signature, signed_text
from muster.node.files import replace_file
from muster.spec.ocids import NO_REGION

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

#: Seconds: OCI renews certificates several times a day.
RENEWED_AFTER = 6 * 3600.0
#: Seconds until the next attempt.
_RETRY_PAUSE = 300.0
#: Seconds for which it waits at once: the machine may be suspended.
_LONGEST_WAIT = 600.0
_TIMEOUT = 60.0
_SIGNED = ("date", TARGET, "content-length", "content-type", "x-content-sha256")


class _Answer(Struct, frozen=True):
    certificate: str


def auth_url(folder: Path) -> str | None:
    """Where the server of a host gives certificates; None: its clients name it. Raises OSError."""
    region = str(json.decode((folder / "instance.json").read_bytes())["region"])
    return None if region == NO_REGION else f"https://auth.{region}"


def keep_renewed(folder: Path, url: str, stop: Event, say: Callable[[str], None]) -> None:
    """Renew the certificate in a folder whenever it is due, until `stop`. url: of the server. say:
    gets why it cannot be renewed."""
    not_before = 0.0
    while True:
        now = time.time()
        try:
            due = max(_made_at(folder) + RENEWED_AFTER, not_before)
            if now >= due:
                not_before = now + _RETRY_PAUSE  # also if the server's clock is behind
                renew(folder, url)
                continue
        except (OSError, HTTPException, DecodeError, ValueError) as error:
            say(f"the certificate cannot be renewed yet: {error}")
            due = not_before = now + _RETRY_PAUSE
        if stop.wait(min(due - now, _LONGEST_WAIT)):
            return


def renew(folder: Path, url: str) -> None:
    """Replace the certificate in a folder. Raises OSError, HTTPException, ValueError."""
    from cryptography.x509 import load_pem_x509_certificate

    content = (folder / "cert.pem").read_text()
    body = json.encode({"certificate": content})
    certificate = load_pem_x509_certificate(content.encode())
    headers = _signed_headers(certificate, (folder / "key.pem").read_bytes(), body)
    trusted = ssl.create_default_context()
    if (folder / "ca.pem").exists():
        trusted.load_verify_locations(folder / "ca.pem")
    request = Request(f"{url}{RENEWAL}", body, headers, method="POST")
    try:
        with urlopen(request, timeout=_TIMEOUT, context=trusted) as reply:
            made = json.decode(reply.read(), type=_Answer).certificate.encode()
    except HTTPError as error:
        with error:
            raise OSError(f"the server answers {error.code}: its log says why") from None
    if load_pem_x509_certificate(made).public_key() != certificate.public_key():
        raise ValueError("the server has sent a certificate for another key")
    replace_file(folder / "cert.pem", made, 0o600)


def _signed_headers(certificate: Certificate, key: bytes, body: bytes) -> dict[str, str]:
    """As clients of OCI sign what they ask of the Auth service. key: PEM."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    loaded = load_pem_private_key(key, None)
    if not isinstance(loaded, RSAPrivateKey):
        raise ValueError("key.pem is not a key of RSA")  # noqa: TRY004
    headers = {
        "date": formatdate(usegmt=True),
        "content-length": str(len(body)),
        "content-type": "application/json",
        "x-content-sha256": b64encode(sha256(body).digest()).decode(),
    }
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    text = signed_text(Signature("", _SIGNED, b""), "POST", RENEWAL, sent)
    value = b64encode(loaded.sign(text, PKCS1v15(), SHA256())).decode()
    name = f"instance/fed-x509/{certificate.fingerprint(SHA1()).hex(':')}"
    parts = {"version": "1", "keyId": name, "algorithm": "rsa-sha256"}
    parts |= {"headers": " ".join(_SIGNED), "signature": value}
    given = ",".join(f'{name}="{one}"' for name, one in parts.items())
    return {**headers, "authorization": f"Signature {given}"}


def _made_at(folder: Path) -> float:
    """When the certificate in a folder was made (epoch seconds). Raises OSError, ValueError."""
    from cryptography.x509 import load_pem_x509_certificate

    found = load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    return found.not_valid_before_utc.timestamp()
