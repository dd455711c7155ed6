"""OCI's own SDK against a server of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from requests.adapters import HTTPAdapter

from muster.caller import Role
from muster.server.settings import Settings
from muster.spec.ocids import compartment_ocid
from muster.store.account_records import UserKind, UserRecord
from support import oci_config
from support.keys import public_pem
from support.server_thread import ONE_USER
from support.teams import Teams, serving_teams

if TYPE_CHECKING:
    from oci.signer import Signer

T = TypeVar("T")
VISION, SOUND = compartment_ocid("vision"), compartment_ocid("sound")
#: Those who have keys, each the one with the number of its place.
USERS = ("root", "anouk", "sam", "vera", "oscar", "nora")


def config_of(user: str) -> dict[str, str]:
    """The configuration of an SDK for a user, whose key is that of `USERS`."""
    return oci_config.config_of(user, USERS.index(user))


@cache
def signer_of(user: str, key: str | None = None) -> Signer:
    """What signs requests as a user. key: another private key. To load one takes 40 ms."""
    from oci.signer import Signer

    config = config_of(user)
    names = ("tenancy", "user", "fingerprint")
    content = key or config["key_content"]
    return Signer(*(config[name] for name in names), None, None, content)


class OciTeams:
    """The server of `support.teams`, whose users have keys: anouk administers `vision`, sam submits
    there, vera views it; oscar administers `sound`; nora is in no project; root administers the
    server."""

    def __init__(self, teams: Teams) -> None:
        self.teams = teams
        self.url = f"http://127.0.0.1:{teams.port}"
        teams.accounts.create_user(UserRecord("vera", UserKind.PERSON, 0.0))
        teams.accounts.set_member("vision", "vera", Role.VIEWER)
        for number, user in enumerate(USERS):
            teams.accounts.add_key(user, public_pem(number))

    def client(self, make: Callable[..., T], user: str = "anouk", **options: Any) -> T:
        """A client of the SDK that signs as a user."""
        from oci.retry import NoneRetryStrategy

        given = {"retry_strategy": NoneRetryStrategy(), "signer": signer_of(user), **options}
        return make(config_of(user), service_endpoint=self.url, **given)

    def run_job(
        self,
        program: str,
        user: str = "anouk",
        compartment: str = VISION,
        name: str = "p",
        subnet: str | None = None,
    ) -> tuple[Any, str]:
        """Start a job run of a program in Python. The client, and the OCID of the job run."""
        from oci.data_science import DataScienceClient, models

        client = self.client(DataScienceClient, user)
        details = models.CreateProjectDetails(compartment_id=compartment, display_name=name)
        project = client.create_project(details).data.id
        kind = models.ManagedEgressStandaloneJobInfrastructureConfigurationDetails
        if subnet is not None:
            kind = models.StandaloneJobInfrastructureConfigurationDetails
        infrastructure = kind(
            shape_name="VM.Standard.E4.Flex",
            block_storage_size_in_gbs=50,
            job_shape_config_details=models.JobShapeConfigDetails(ocpus=1, memory_in_gbs=1),
            **({} if subnet is None else {"subnet_id": subnet}),
        )
        job = client.create_job(
            models.CreateJobDetails(
                project_id=project,
                compartment_id=compartment,
                display_name=name,
                job_configuration_details=models.DefaultJobConfigurationDetails(),
                job_infrastructure_configuration_details=infrastructure,
            )
        ).data.id
        client.create_job_artifact(
            job, program.encode(), content_disposition="attachment; filename=main.py"
        )
        run = models.CreateJobRunDetails(
            project_id=project, compartment_id=compartment, job_id=job, display_name=name
        )
        return client, client.create_job_run(run).data.id


class From(HTTPAdapter):
    """Has a client of the SDK connect from an address of this machine."""

    def __init__(self, source: str) -> None:
        self._source = source
        super().__init__()

    def init_poolmanager(self, *given: Any, **more: Any) -> None:
        """See `HTTPAdapter`."""
        super().init_poolmanager(*given, **more, source_address=(self._source, 0))


@contextmanager
def oci_teams(settings: Settings = ONE_USER) -> Iterator[OciTeams]:
    """A server with users that have keys."""
    with serving_teams(settings) as teams:
        yield OciTeams(teams)
