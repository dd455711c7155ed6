"""Object storage of a server for tests, and the real client of OCI for each of its users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.caller import Role
from muster.spec.ocids import compartment_ocid
from muster.store.account_records import UserKind, UserRecord
from support.keys import public_pem
from support.oci_config import config_of
from support.server_thread import ONE_USER
from support.teams import Teams, serving_teams

#: The only namespace.
NS = "muster"
#: A compartment that is the project of anouk (admin), mara (maintainer), sam (submitter) and vera
#: (viewer), and one that is of oscar.
VISION, SOUND = compartment_ocid("vision"), compartment_ocid("sound")
USERS = ("anouk", "mara", "sam", "vera", "oscar", "nora")
_numbers = count()


class Storage(Struct, frozen=True):
    """The server, and clients of its object storage."""

    teams: Teams
    clients: dict[str, Any]
    configs: dict[str, dict[str, str]]
    """Configurations of clients, by user."""

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"http://127.0.0.1:{self.teams.port}"

    def bucket(self) -> str:
        """A new bucket of VISION."""
        from oci.object_storage.models import CreateBucketDetails

        name = f"bucket-{next(_numbers)}"
        details = CreateBucketDetails(name=name, compartment_id=VISION)
        self.clients["anouk"].create_bucket(NS, details)
        return name

    def files(self) -> set[Path]:
        """The files of all objects."""
        return {path for path in self.teams.backend.home.objects.rglob("*") if path.is_file()}


@contextmanager
def serving_storage() -> Iterator[Storage]:
    """The server, whose users have keys."""
    with serving_teams(ONE_USER) as teams:
        for name, role in (("mara", Role.MAINTAINER), ("vera", Role.VIEWER)):
            teams.accounts.create_user(UserRecord(name, UserKind.PERSON, 0.0))
            teams.accounts.set_member("vision", name, role)
        configs = {}
        for number, name in enumerate(USERS):
            teams.accounts.add_key(name, public_pem(number))
            configs[name] = config_of(name, number)
        url = f"http://127.0.0.1:{teams.port}"
        clients = {name: client_of(config, url) for name, config in configs.items()}
        yield Storage(teams, clients, configs)


def client_of(config: dict[str, str], url: str) -> Any:
    """A client of object storage that repeats nothing."""
    import oci

    return oci.object_storage.ObjectStorageClient(
        config, service_endpoint=url, retry_strategy=oci.retry.NoneRetryStrategy()
    )
