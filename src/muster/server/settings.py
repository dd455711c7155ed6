"""The settings of a server: the options of `muster server`, and the file MUSTER_HOME/server.toml.

python = "/opt/muster/bin/python"     # runs the programs of nodes on the server's machine
trusted_proxies = ["10.0.0.7"]        # whose X-Forwarded-For tells the address of the client

separate_owners = true                # a server that runs as root: a Unix account for each user
allow_private_addresses = false       # mounts of URLs and notifications may lead to its own network

[accounts]                            # user of Muster = Unix user; others get a new account
ana = "ana"

[oci]                                 # the OCI API: docs/guides/oci-clients.md
engine = "local"                      # where its jobs run
subnet = "127.0.0.0/8"                # the CIDR block of every subnet: the addresses of nodes
namespace = "muster"                  # of its object storage: oci://BUCKET@NAMESPACE/NAME
resource_principals = true            # runs get credentials of their own for this server
bind_credentials = true               # which can only be used on the hosts of their nodes
endpoint = "http://10.0.0.5:8431"     # where nodes reach it, if not at its own address

[oci.compartments]                    # compartments of OCI that are projects of Muster
"ocid1.compartment.oc1..aaaa" = "vision"

[notifications]                       # what notifications may use here: `notify.settings`

[environ]                             # variables of nodes on the server's machine
PATH = "/opt/tools/bin:/usr/bin:/bin"
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from muster.addresses import is_server_url
from muster.errors import InvalidInput, Problem
from muster.notify.settings import NotificationSettings
from muster.spec.decode import decode
from muster.spec.models import DEFAULT_ENGINE
from muster.spec.toml_file import read_toml

#: What the nodes of a server's own machine start from, besides what the submitter sends.
_ENVIRON = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}


class OciSettings(Struct, frozen=True):
    """How jobs of the OCI API run here."""

    #: Where the nodes of jobs run, and of jobs that are containers.
    engine: str = DEFAULT_ENGINE
    container_engine: str = "container"
    #: What the object storage of the server is called, so that URLs such as
    #: oci://bucket@namespace/name work as they are.
    namespace: str = "muster"
    #: OCIDs of compartments in OCI, or of a tenancy, that are projects of Muster, so that code
    #: which has them runs as it is.
    compartments: Mapping[str, str] = field(default_factory=dict)
    #: The block that clients get for each subnet, with the addresses of nodes: of those on this
    #: machine by default.
    subnet: str = "127.0.0.0/8"
    #: Whether programs of runs get credentials with which they act as their run here.
    resource_principals: bool = True
    #: Whether they can only be used from the addresses of their nodes' hosts. Not if nodes reach
    #: the server through a translation of addresses (NAT).
    bind_credentials: bool = True
    #: The URL by which nodes reach a server without a domain, if that is not the one that it
    #: listens on.
    endpoint: str | None = None
    #: OCID of an export of a file system -> where it is: `nfs://server/path`.
    exports: Mapping[str, str] = field(default_factory=dict)
    #: Slug of a conda environment -> the Python here that programs run with instead, by its path.
    conda: Mapping[str, str] = field(default_factory=dict)


class FileSettings(Struct, frozen=True):
    """What the file says."""

    #: The Python of nodes on the server's own machine. Default: that of the server.
    python: str = sys.executable
    #: The variables that their environment starts from.
    environ: Mapping[str, str] = field(default_factory=lambda: dict(_ENVIRON))
    #: Whether the runs of each user have a Unix account of their own, on a server that runs as
    #: root. Without, it is for one user, whose programs run as root.
    separate_owners: bool = True
    #: Whether what the server fetches for its users, which are mounts of URLs, and where it sends
    #: events, may be at addresses that are not of the public internet.
    allow_private_addresses: bool = False
    #: Muster user -> the Unix user that nodes of the user's runs belong to, on a server that runs
    #: as root. Others get an account of their own.
    accounts: Mapping[str, str] = field(default_factory=dict)
    #: Addresses of proxies that tell the address of the client.
    trusted_proxies: tuple[str, ...] = ()
    #: Requests that one token may make per second on average, and at once.
    requests_per_second: float = 2000.0
    burst: int = 4000
    #: The OCI API.
    oci: OciSettings = OciSettings()
    #: What notifications may use here. It is read at each delivery.
    notifications: NotificationSettings = NotificationSettings()


class Settings(Struct, frozen=True):
    """See the module."""

    host: str = "127.0.0.1"
    port: int = 8431
    #: The files of the server's certificate and its key, in PEM; None: it listens without TLS.
    tls_cert: str | None = None
    tls_key: str | None = None
    #: The domain below which clients of OCI find its services: `datascience.DOMAIN`; None: they
    #: name the server's address.
    oci_domain: str | None = None
    file: FileSettings = FileSettings()

    @property
    def oci_region(self) -> str | None:
        """What clients of OCI have as their region: a name with a dot is a domain to them."""
        if self.oci_domain is None:
            return None
        return self.oci_domain if self.port == 443 else f"{self.oci_domain}:{self.port}"

    @property
    def endpoint(self) -> str:
        """Where nodes of runs reach the server."""
        if self.file.oci.endpoint is not None:
            return self.file.oci.endpoint.rstrip("/")
        return self.url_for_others

    @property
    def url_for_others(self) -> str:
        """Where the server is for other machines. One that listens on all addresses has none of its
        own: they name its machine."""
        if self.host in ("0.0.0.0", "::"):
            return replace(self, host=socket.gethostname()).url
        return self.url

    @property
    def url(self) -> str:
        """Where the server is, for clients on this machine."""
        scheme = "http" if self.tls_cert is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def read_file(path: Path) -> FileSettings:
    """The settings in the file; the defaults if there is none. Raises InvalidInput with every
    problem."""
    found = read_toml(path)
    if found is None:
        return FileSettings()
    problems: list[Problem] = []
    settings = decode(FileSettings, found.data, problems)
    if settings is not None:
        problems += _problems(settings)
    if problems or settings is None:
        raise InvalidInput(*map(found.placed, problems))
    return settings


def _problems(settings: FileSettings) -> list[Problem]:
    problems = []
    pythons = {f"oci.conda.{name}": path for name, path in settings.oci.conda.items()}
    for place, path in {"python": settings.python, **pythons}.items():
        if not os.access(path, os.X_OK):
            text = f"{path} cannot be executed"
            problems.append(Problem(place, text, "give the full path of a Python interpreter"))
    for name in ("requests_per_second", "burst"):
        value = getattr(settings, name)
        if value <= 0:
            problems.append(Problem(name, f"must be more than 0, not {value:g}"))
    try:
        ip_network(settings.oci.subnet)
    except ValueError as error:
        problems.append(Problem("oci.subnet", str(error), "give a block such as 10.0.0.0/16"))
    if (url := settings.oci.endpoint) is not None and not is_server_url(url):
        text = f"{url!r} is not the URL of a server"
        problems.append(Problem("oci.endpoint", text, "give one such as http://10.0.0.5:8431"))
    return problems
