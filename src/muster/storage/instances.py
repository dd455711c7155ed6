"""Hosts that act as themselves (OCI: instance principals): a file for each in MUSTER_HOME, and the
certificate with which it asks for tokens. The certificate of a host that was removed is of no use.

A host renews its certificate with the present one (`server.certificate_renewal`). The new one is
valid beside the present one until it is used: its host may not have received it.
"""

from __future__ import annotations

import datetime
import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound, Problem
from muster.file_locks import flock
from muster.identity import new_id
from muster.node.files import replace_file
from muster.spec.ocids import compartment_ocid, ocid
from muster.storage.home import Home
from muster.unix_account import as_root

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

#: Of a certificate: how long a host can be off, and renew it afterwards.
LIFETIME = datetime.timedelta(days=397)
#: Seconds for which a certificate can be used after the next one was: those of a token, so that
#: no client has to ask for one before it would by itself.
OVERLAP = 1200.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Instance(Struct, frozen=True):
    """A host."""

    id: str
    """An OCID."""
    name: str
    project: str
    user: str
    """Who answers for it: what it makes is this user's."""
    serial: str
    """Of its certificate."""
    networks: tuple[str, ...] = ()
    """Only from there it can be used; (): from everywhere."""
    next: str = ""
    """Serial number of a renewed certificate that has not been used yet; "": there is none."""
    next_pem: str = ""
    """That certificate: a host that has not received it gets it again."""
    former: str = ""
    """That of the certificate before, which can be used for a while; "": there is none."""
    replaced_at: float = 0.0
    """When that was replaced (epoch seconds)."""

    def accepts(self, serial: str, now: float) -> bool:
        """Whether a certificate can be used, and tokens that were given for it."""
        if serial in (self.serial, self.next):
            return bool(serial)
        return bool(serial) and serial == self.former and now < self.replaced_at + OVERLAP

    def is_at(self, address: str) -> bool:
        """Whether it can be used from an address; "" is none."""
        if not self.networks:
            return True
        try:
            found = ip_address(address)
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in ip_network(one) for one in self.networks)


def _file(home: Home, name: str) -> Path:
    return home.root / "instances" / f"{name}.json"


def instances(home: Home) -> list[Instance]:
    """All of them. Raises OSError."""
    with as_root():
        files = sorted((home.root / "instances").glob("*.json"))
        return [_read(file) for file in files]


def instance(home: Home, name: str) -> Instance:
    """One of them. Raises NotFound, OSError."""
    if not _NAME.fullmatch(name):
        raise NotFound(f"there is no instance {name[:100]!r}")
    try:
        with as_root():
            return _read(_file(home, name))
    except FileNotFoundError:
        raise NotFound(f"there is no instance {name!r}") from None


def _read(file: Path) -> Instance:
    try:
        return json.decode(file.read_bytes(), type=Instance)
    except DecodeError as error:
        raise OSError(f"{file} is damaged: {error}") from None


def register(
    home: Home,
    name: str,
    project: str,
    user: str,
    folder: Path,
    region: str,
    tenancy: str,
    networks: Sequence[str] = (),
) -> Instance:
    """Register a host, or one again whose certificate is replaced. Writes what its metadata service
    serves to a folder (`server.metadata`). region, tenancy: of the server, as clients of OCI name
    it. networks: see `Instance.networks`. Raises InvalidInput, OSError."""
    from muster.storage.certificates import authority_of
    from muster.storage.key_pool import new_key, pem

    if not _NAME.fullmatch(name):
        hint = "letters, digits, '.', '-' and '_', up to 100"
        raise InvalidInput(Problem("name", f"{name!r} is not a valid name of an instance", hint))
    only = tuple(map(_network, networks))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = new_key()
    with _changing(home):
        try:
            known = instance(home, name).id
        except NotFound:
            known = ocid("instance", new_id())
        _, authority_pem = authority_of(home.root / "instances")
        made = Instance(known, name, project, user, "", only)
        serial, cert = _certificate(home, made, tenancy, key.public_key())
        made = replace(made, serial=serial)
        shown = {"id": known, "displayName": name, "region": region, "tenantId": tenancy}
        shown |= {"compartmentId": compartment_ocid(project), "canonicalRegionName": region}
        files = {"cert.pem": cert, "key.pem": pem(key), "intermediate.pem": authority_pem}
        files["instance.json"] = json.encode(shown)
        for file, content in files.items():
            replace_file(folder / file, content, 0o600)
        _write(home, made)
    return made


def _network(text: str) -> str:
    """Raises InvalidInput."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        hint = "such as 10.0.0.7, or 10.0.0.0/24"
        raise InvalidInput(Problem("--address", f"{error}", hint)) from None


def _certificate(home: Home, found: Instance, tenancy: str, key: RSAPublicKey) -> tuple[str, bytes]:
    """A certificate of a host: its serial number, and PEM. Raises OSError."""
    from muster.storage.certificates import authority_of, instance_certificate

    authority, _ = authority_of(home.root / "instances")
    own = {"tenant": tenancy, "instance": found.id, "compartment": compartment_ocid(found.project)}
    units = [f"opc-{what}:{one}" for what, one in own.items()]
    serial, cert = instance_certificate(found.name, units, key, authority, LIFETIME)
    return f"{serial:x}", cert


def renew(
    home: Home, name: str, presented: str, key: RSAPublicKey, tenancy: str, now: float
) -> bytes:
    """A new certificate of a host, in PEM, for the same key. It is the same one until the host uses
    it: a request that is repeated makes no other. presented: the serial number of the certificate
    that it has, which it has used by that. Raises NotFound, OSError."""
    with as_root(), _changing(home):
        found = instance(home, name)
        if presented not in (found.serial, found.next):
            raise NotFound(f"instance {name} has another certificate by now")
        if presented == found.next:
            found = _with_next(found, now)
        if not found.next:
            serial, cert = _certificate(home, found, tenancy, key)
            found = replace(found, next=serial, next_pem=cert.decode())
            _write(home, found)
        return found.next_pem.encode()


def _with_next(found: Instance, now: float) -> Instance:
    """A host that has used its renewed certificate: the one before ends soon."""
    return replace(
        found, serial=found.next, next="", next_pem="", former=found.serial, replaced_at=now
    )


def note_use(home: Home, name: str, serial: str, now: float) -> None:
    """A certificate was used: if it was renewed, the one before ends soon. Raises NotFound,
    OSError."""
    if instance(home, name).next != serial:
        return
    with as_root(), _changing(home):
        found = instance(home, name)
        if found.next == serial:
            _write(home, _with_next(found, now))


def _write(home: Home, made: Instance) -> None:
    replace_file(_file(home, made.name), json.encode(made), 0o600)


@contextmanager
def _changing(home: Home) -> Iterator[None]:
    """No other process changes a host meanwhile: none undoes that it was registered again. Raises
    OSError."""
    folder = home.root / "instances"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / "lock"
    with open(file, "ab") as lock:
        flock(lock.fileno(), fcntl.LOCK_EX, file)
        yield


def remove(home: Home, name: str) -> None:
    """Remove a host: what it has is of no use from now on. Raises NotFound, OSError."""
    with _changing(home):
        instance(home, name)
        _file(home, name).unlink(missing_ok=True)
