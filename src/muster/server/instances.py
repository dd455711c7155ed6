"""Registers hosts as instances, for `muster server instance`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from muster.node.files import replace_file
from muster.server.oci.compartments import Compartments
from muster.server.settings import Settings, read_file
from muster.service.backend import Backend
from muster.spec.ocids import NO_REGION, TENANCY
from muster.storage import instances
from muster.storage.home import Home, default_home


def add(
    name: str,
    project: str,
    user: str,
    folder: str,
    domain: str | None,
    port: int,
    networks: Sequence[str] = (),
) -> str:
    """Register a host. domain, port: of the server; without a domain, those that it was last
    started with. Returns its OCID. Raises InvalidInput, NotFound, OSError."""
    home, place = default_home(), Path(folder)
    with closing(Backend(home)) as backend:
        backend.store.accounts.user(user)
        backend.store.accounts.project(project)
        others = read_file(home.root / "server.toml").oci.compartments
        tenancy = Compartments(lambda: backend.store, others).tenancy or TENANCY
    region = Settings(port=port, oci_domain=domain).oci_region or _region(home)
    made = instances.register(home, name, project, user, place, region, tenancy, networks)
    authority = home.oci_certificate / "ca.pem"
    if region != NO_REGION and authority.exists():
        replace_file(place / "ca.pem", authority.read_bytes(), 0o600)
    return made.id


def _region(home: Home) -> str:
    try:
        return home.oci_region.read_text().strip()
    except FileNotFoundError:
        return NO_REGION


def remove(name: str) -> None:
    """Remove a host. Raises NotFound, OSError."""
    instances.remove(default_home(), name)
