"""Job runs that are containers, by OCI's SDK, with a real Podman."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from oci.data_science import models

from muster.storage.home import Home
from support import podman_service
from support.oci_server import OciServer, oci_server
from support.podman_service import IMAGE, PodmanService

pytestmark = pytest.mark.slow

#: An image that says what it was called with.
SAYS = "localhost/says:1"


@pytest.fixture(scope="module")
def podman() -> PodmanService:
    podman_service.skip_without_podman()
    service = podman_service.shared_podman()
    service.add_image(SAYS, 'ENTRYPOINT ["/bin/echo", "entrypoint"]', 'CMD ["cmd"]')
    return service


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory, podman: PodmanService) -> Iterator[OciServer]:
    folder = tmp_path_factory.mktemp("oci")
    home = folder / "home"
    home.mkdir()
    podman_service.add_engine(home, podman)
    with oci_server(Home(home), folder) as server:
        yield server


def environment(image: str = SAYS, **given: Any) -> Any:
    return models.OcirContainerJobEnvironmentConfigurationDetails(image=image, **given)


WORDS = {
    "the image's own": ({}, None, "entrypoint cmd"),
    "cmd": ({"cmd": ["a", "b c"]}, None, "entrypoint a b c"),
    "entrypoint": ({"entrypoint": ["/bin/echo", "mine"]}, None, "mine"),
    "both": ({"entrypoint": ["/bin/sh", "-c"], "cmd": ["echo $GREETING"]}, None, "hello"),
    "an override": ({"cmd": ["job"]}, {"cmd": ["run"]}, "entrypoint run"),
}


@pytest.mark.parametrize("case", WORDS)
def test_what_a_container_runs(oci: OciServer, case: str) -> None:
    given, override, output = WORDS[case]
    job = oci.create_job(
        job_environment_configuration_details=environment(**given),
        job_configuration_details=models.DefaultJobConfigurationDetails(
            environment_variables={"GREETING": "hello"}
        ),
    )
    changes = None if override is None else environment(**override)
    run = oci.wait(oci.start(job, job_environment_configuration_override_details=changes))
    assert run.lifecycle_state == "SUCCEEDED", run.lifecycle_details
    assert oci.output(run) == f"{output}\n"


def test_the_exit_code_of_a_container(oci: OciServer) -> None:
    container = environment(IMAGE, entrypoint=["/bin/sh", "-c"], cmd=["exit 7"])
    job = oci.create_job(job_environment_configuration_details=container)
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "FAILED"
    assert "exit code 7" in run.lifecycle_details


def test_an_image_that_there_is_not(oci: OciServer) -> None:
    container = environment("localhost:1/none:1")
    job = oci.create_job(job_environment_configuration_details=container)
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "FAILED"
    assert "localhost:1/none:1" in run.lifecycle_details
