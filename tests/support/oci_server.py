"""A server for OCI's clients, with a user who has a key, and what the clients are started with."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.api.streams import LogChunk, Selection
from muster.caller import Caller
from muster.control.launcher import Launcher
from muster.server.settings import OciSettings, Settings
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from muster.store.account_records import UserKind, UserRecord
from support.api_runs import end_all
from support.certificates import write_certificate
from support.connect_proxy import connect_proxy
from support.faults import until
from support.keys import public_pem
from support.launchers import spawn
from support.oci_config import config_of, write_config
from support.server_thread import ONE_USER, ServerThread, running_server, users_of

#: The environment with oracle-ads and oci-cli, which `make test-all` creates.
CLIENTS = Path(sys.prefix) / "oci-clients"
needs_clients = pytest.mark.skipif(
    not CLIENTS.exists() and not os.environ.get("REQUIRE_PROGRAMS"),
    reason="`make test-all` installs ADS and the command oci",
)
#: A region with a dot is a domain, in all clients of OCI.
DOMAIN = "muster.test"
ENDED = ("SUCCEEDED", "FAILED", "CANCELED")
_SHAPE = "VM.Standard.E4.Flex"


class OciServer:
    """A server that runs, and its user's config file."""

    def __init__(self, server: ServerThread, backend: Backend, folder: Path, region: str) -> None:
        self.server, self.backend, self.folder = server, backend, folder
        self.port = server.port
        self.url = f"http://127.0.0.1:{server.port}"
        #: Where clients look for it if `folder` is the user's home.
        self.config_file = folder / ".oci" / "config"
        self.config = write_config(self.config_file, config_of("ana", region=region))
        self._clients: list[Any] = []
        #: Variables for programs that use the clients.
        self.environ: dict[str, str] = {}

    @cached_property
    def science(self) -> Any:
        """The SDK's client of the Data Science service."""
        return self.client("data_science.DataScienceClient")

    def client(self, name: str, **options: Any) -> Any:
        """A client of the SDK, such as `logging.LoggingManagementClient`."""
        import importlib

        module, _, kind = name.rpartition(".")
        make = getattr(importlib.import_module(f"oci.{module}"), kind)
        made = make(self.config, service_endpoint=self.url, **options)
        self._clients.append(made)
        return made

    def close(self) -> None:
        """Close the connections of the clients: the server would wait for them."""
        for client in self._clients:
            client.base_client.session.close()

    @cached_property
    def project(self) -> str:
        """The OCID of a Data Science project."""
        from oci.data_science.models import CreateProjectDetails

        details = CreateProjectDetails(compartment_id=TENANCY, display_name="digits")
        return str(self.science.create_project(details).data.id)

    @cached_property
    def log_group(self) -> str:
        """The OCID of a log group."""
        from oci.logging.models import CreateLogGroupDetails

        client = self.client("logging.LoggingManagementClient")
        details = CreateLogGroupDetails(compartment_id=TENANCY, display_name="runs")
        created = client.create_log_group(details).headers["opc-work-request-id"]
        return str(client.get_work_request(created).data.resources[0].identifier)

    def create_job(
        self, program: str | bytes | None = None, name: str = "job.py", **given: Any
    ) -> Any:
        """A job of one node with a program; without one, it has no artifact. given: fields of
        CreateJobDetails."""
        from oci.data_science import models

        details = {
            "job_infrastructure_configuration_details": (
                models.ManagedEgressStandaloneJobInfrastructureConfigurationDetails(
                    shape_name=_SHAPE,
                    block_storage_size_in_gbs=50,
                    job_shape_config_details=models.JobShapeConfigDetails(ocpus=1, memory_in_gbs=4),
                )
            ),
            **given,
        }
        made = models.CreateJobDetails(project_id=self.project, compartment_id=TENANCY, **details)
        job = self.science.create_job(made).data
        if program is not None:
            disposition = f"attachment; filename={name}"
            content = program.encode() if isinstance(program, str) else program
            self.science.create_job_artifact(job.id, content, content_disposition=disposition)
        return job

    def start(self, job: Any, **given: Any) -> Any:
        """A job run. given: fields of CreateJobRunDetails."""
        from oci.data_science.models import CreateJobRunDetails

        details = CreateJobRunDetails(
            project_id=self.project, compartment_id=TENANCY, job_id=job.id, **given
        )
        return self.science.create_job_run(details).data

    def run(self, program: str, **given: Any) -> Any:
        """The job run of a job with a program, when it has ended. given: fields of
        CreateJobDetails."""
        return self.wait(self.start(self.create_job(program, **given)))

    def wait(self, run: Any, *states: str, within: float = 60) -> Any:
        """The job run when it is in one of these states; by default, when it has ended. within:
        seconds."""
        found: list[Any] = []

        def reached() -> bool:
            found[:] = [self.science.get_job_run(run.id).data]
            return found[0].lifecycle_state in (states or ENDED)

        until(reached, f"{run.id} is {states or ENDED}", within)
        return found[0]

    def output(self, run: Any) -> str:
        """What the programs of a job run have written to stdout."""
        api = EmbeddedAPI(caller=Caller("root", "default"), backend=self.backend)
        parts = api.log(run.id.rpartition(".")[2], Selection(streams=["stdout"]))
        return b"".join(part.data for part in parts if isinstance(part, LogChunk)).decode()

    def program(
        self, *argv: str | Path, check: bool = True, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program that uses the clients."""
        done = subprocess.run(
            [str(word) for word in argv],
            env={**self.environ, **(environ or {})},
            cwd=self.folder,
            text=True,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        return done

    def oci(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command `oci`."""
        given = ["--endpoint", self.url, *words]
        return self.program(CLIENTS / "bin" / "oci", *given, check=check)

    def ads(self, program: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program that uses ADS."""
        path = self.folder / f"program-{time.monotonic_ns()}.py"
        path.write_text(program)
        return self.program(CLIENTS / "bin" / "python", path, *args, environ=environ)


def client_variables(folder: Path) -> dict[str, str]:
    """The environment of programs that use the clients: nothing of the machine's own settings.
    folder: the home of their user, where the config is."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONWARNINGS": "ignore",
        "SUPPRESS_LABEL_WARNING": "True",
    }


@contextmanager
def oci_server(
    home: Home,
    folder: Path,
    *,
    tls: bool = False,
    oci: OciSettings = OciSettings(),  # noqa: B008  a frozen record
    file: Mapping[str, Any] | None = None,
) -> Iterator[OciServer]:
    """A server of one user, Ana, whose key the config in a folder has. All runs are ended
    afterwards.

    tls: it is known by names of a domain, as for ADS, whose clients need several services; it is
    reached through a proxy. file: further settings of the server.
    """
    settings = Settings(file=replace(ONE_USER.file, oci=oci, **(file or {})))
    if tls:
        files = write_certificate(folder, DOMAIN)
        settings = replace(
            settings, tls_cert=str(files.cert), tls_key=str(files.key), oci_domain=DOMAIN
        )
    backend = Backend(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Launcher, "spawn", spawn)
        patch.setenv("MUSTER_HOME", str(home.root))
        with running_server(backend, users_of(backend), settings) as server:
            _create_ana(backend)
            region = f"{DOMAIN}:{server.port}" if tls else "us-ashburn-1"
            made = OciServer(server, backend, folder, region)
            made.environ = client_variables(folder)
            try:
                if not tls:
                    yield made
                    return
                made.url = f"https://localhost:{server.port}"
                patch.setenv("REQUESTS_CA_BUNDLE", str(files.authority))
                with connect_proxy(server.port) as proxy:
                    made.environ |= {
                        "HTTPS_PROXY": proxy.url,
                        "REQUESTS_CA_BUNDLE": str(files.authority),
                    }
                    yield made
            finally:
                made.close()
                end_all(EmbeddedAPI(caller=Caller("root", "default"), backend=backend))


def module_server(factory: pytest.TempPathFactory, **options: Any) -> Iterator[OciServer]:
    """For the fixture of a test module. options: see `oci_server`."""
    folder = factory.mktemp("oci")
    (folder / "home").mkdir()
    with oci_server(Home(folder / "home"), folder, **options) as server:
        yield server


def _create_ana(backend: Backend) -> None:
    accounts = EmbeddedAccounts(backend)
    accounts.create_user(UserRecord("ana", UserKind.PERSON, 0.0, admin=True))
    accounts.add_key("ana", public_pem())
