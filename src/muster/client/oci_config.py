"""Set up clients of OCI for a server: a key, a profile in OCI's configuration, an authority."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from muster.api.accounts import AccountsAPI, OciAccess
from muster.errors import InvalidInput, Problem
from muster.node.files import replace_file
from muster.spec.ocids import NO_REGION

#: Without it at the end of a key's file, OCI's clients print a warning each time.
_LABEL = b"OCI_API_KEY\n"
_SECTION = r"^\[{}\][ \t]*\n(?:(?!\[).*\n?)*"


class Choices(Struct, frozen=True):
    """How clients are to be set up."""

    file: Path
    """OCI's configuration file."""
    profile: str
    """The name of the profile."""
    key: Path | None
    """The file of the private key; None: one beside the configuration file."""
    auth: str
    """How clients sign: "api_key" or "security_token"."""
    replace: bool
    """Replace a profile with this name."""

    @property
    def session(self) -> Path | None:
        """The folder of a session's key and token; None without a session."""
        if self.auth != "security_token":
            return None
        return self.file.with_name("sessions") / self.profile

    @property
    def key_file(self) -> Path:
        """The file of the private key."""
        folder = self.session
        beside = self.file.with_name("muster_api_key.pem")
        return self.key or (beside if folder is None else folder / "oci_api_key.pem")


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


def set_up(accounts: AccountsAPI, choices: Choices, url: str | None) -> Profile:
    """Write a profile, with a key whose public part the server gets. url: the server's; None: it is
    reached otherwise. Raises InvalidInput if clients cannot reach it."""
    access = accounts.oci()
    if url is None and not access.region:
        text = "commands use this machine's Muster, and clients of OCI need a server"
        hint = "`muster server` starts one; `muster login URL` uses it"
        raise InvalidInput(Problem("", text, hint))
    file, key_file = choices.file, choices.key_file
    pem, fingerprint = ensure_key(key_file)
    ca = ""
    if access.ca:
        ca = str(file.with_name("muster_ca.pem"))
        replace_file(Path(ca), access.ca.encode(), 0o644)
    values = {
        "user": access.user,
        "fingerprint": fingerprint,
        "tenancy": access.tenancy,
        "region": access.region or NO_REGION,
        "key_file": str(key_file),
        **_enroll(accounts, choices, pem, fingerprint),
    }
    write_profile(file, choices.profile, values, replace=choices.replace)
    lacking = missing_names(access)
    host = "127.0.0.1" if url is None else urlsplit(url).hostname
    return Profile(
        file=str(file),
        profile=choices.profile,
        key_file=str(key_file),
        fingerprint=fingerprint,
        auth=choices.auth,
        region=values["region"],
        user=access.user,
        tenancy=access.tenancy,
        compartment=access.compartment,
        ca=ca,
        hosts=f"{host} {' '.join(lacking)}" if lacking else "",
        endpoint="" if access.region or url is None else url,
    )


def _enroll(
    accounts: AccountsAPI, choices: Choices, pem: str, fingerprint: str
) -> Mapping[str, str]:
    """Make the server know a key, for a session or until it is deleted. What the profile says of
    that."""
    if (folder := choices.session) is not None:
        token = folder / "token"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(token, accounts.create_session(pem).token.encode(), 0o600)
        return {"security_token_file": str(token)}
    me = accounts.whoami().user
    if fingerprint not in {one.fingerprint for one in accounts.keys(me)}:
        accounts.add_key(me, pem, f"{os.uname().nodename}:{choices.key_file}"[:200])
    return {}


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
