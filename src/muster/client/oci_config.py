"""Set up clients of OCI for a server: a key, a profile in OCI's configuration, an authority."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from muster.api.accounts import OciAccess
from muster.errors import InvalidInput, Problem
from muster.node.files import replace_file

#: The region of a profile if the server has no domain. It never resolves, so that no request which
#: does not name the server goes to OCI.
NO_REGION = "muster.invalid"
#: Without it at the end of a key's file, OCI's clients print a warning each time.
_LABEL = b"OCI_API_KEY\n"
_SECTION = r"^\[{}\][ \t]*\n(?:(?!\[).*\n?)*"


class Profile(Struct, frozen=True):
    """What was written."""

    file: str
    profile: str
    key_file: str
    fingerprint: str
    #: How clients sign: "api_key" or "security_token".
    auth: str
    region: str
    user: str
    tenancy: str
    compartment: str
    #: The file of the authority to trust; "" if the system's are enough.
    ca: str
    #: A line for /etc/hosts with names that do not resolve here; "" if all do.
    hosts: str
    #: The URL to give to clients as their endpoint; "" if the region is enough.
    endpoint: str


def ensure_key(path: Path) -> tuple[str, str]:
    """The public key, in PEM, and the fingerprint of the private one in a file, which is made if it
    is missing. Raises InvalidInput if it is no private RSA key."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    from muster.iam.public_keys import fingerprint_of, normal_pem

    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        pem += _LABEL
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, pem, 0o600)
    except (ValueError, TypeError):
        text = f"{path} has no private key in PEM without a passphrase"
        raise InvalidInput(Problem("--key", text, "name another file, which is made")) from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InvalidInput(Problem("--key", f"{path} is not an RSA key", "name another file"))
    return normal_pem(key.public_key()), fingerprint_of(key.public_key())


def write_profile(file: Path, name: str, values: Mapping[str, str], *, replace: bool) -> None:
    """Add a profile to OCI's configuration file, whose other lines stay. replace: one with the same
    name is replaced. Raises InvalidInput if there is one with other values."""
    block = "".join([f"[{name}]\n", *(f"{key}={value}\n" for key, value in values.items())])
    text = file.read_text() if file.exists() else ""
    found = re.search(_SECTION.format(re.escape(name)), text, re.MULTILINE)
    if found is not None and found[0].strip() == block.strip():
        return
    if found is not None and not replace:
        text = f"{file} has a profile {name} with other values"
        raise InvalidInput(Problem("--profile", text, "choose another name, or --replace it"))
    if found is not None:
        text = f"{text[: found.start()]}{block}{text[found.end() :]}"
    else:
        before = text if not text or text.endswith("\n") else f"{text}\n"
        text = before + ("\n" if before else "") + block
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(file, text.encode(), 0o600)


def missing_names(access: OciAccess) -> list[str]:
    """The names of services that do not resolve here."""
    domain = access.region.partition(":")[0]
    names = [f"{service}.{domain}" for service in access.services]
    return [name for name in names if not _resolves(name)]


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True
