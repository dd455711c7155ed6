"""Resources that have all that they can have: every answer has every field of the SDK's model."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import oci as oci_sdk
import pytest
import requests

from support.oci_server import OciServer, module_server
from support.sdk_models import missing, unknown, unknown_values

SCIENCE, LOGGING = oci_sdk.data_science.models, oci_sdk.logging.models

#: What is read -> its model, and the path. Braces: what the fixture has made. Resources that have
#: less are in test_answers.py.
ANSWERS: dict[str, tuple[ModuleType, str, str]] = {
    "job": (SCIENCE, "Job", "/20190101/jobs/{job}"),
    "job of groups": (SCIENCE, "Job", "/20190101/jobs/{groups_job}"),
    "job run": (SCIENCE, "JobRun", "/20190101/jobRuns/{run}"),
    "job run of groups": (SCIENCE, "JobRun", "/20190101/jobRuns/{groups_run}"),
    "log of a job run": (LOGGING, "Log", "/20200531/logGroups/{group}/logs/{log}"),
}


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    yield from module_server(tmp_path_factory)


@pytest.fixture(scope="module")
def ids(oci: OciServer) -> dict[str, str]:
    """What the paths name, all of which exists."""
    log = SCIENCE.JobLogConfigurationDetails(
        enable_logging=True, enable_auto_log_creation=True, log_group_id=oci.log_group
    )
    mount = SCIENCE.ObjectStorageMountConfigurationDetails(
        destination_directory_name="data", bucket="b", namespace="n", prefix="p"
    )
    configuration = SCIENCE.DefaultJobConfigurationDetails(
        environment_variables={"A": "1"},
        startup_probe_details=SCIENCE.JobExecProbeDetails(command=["true"]),
    )
    job = oci.create_job(
        "print(1)",
        job_configuration_details=configuration,
        job_log_configuration_details=log,
        job_environment_configuration_details=(
            SCIENCE.OcirContainerJobEnvironmentConfigurationDetails(image="localhost/none:1")
        ),
        job_storage_mount_configuration_details_list=[mount],
    )
    group = SCIENCE.JobNodeGroupConfigurationDetails(
        name="main",
        job_configuration_details=configuration,
        job_infrastructure_configuration_details=(
            SCIENCE.MultiNodeJobInfrastructureConfigurationDetails(
                shape_name="VM.Standard2.4", block_storage_size_in_gbs=50
            )
        ),
    )
    nodes = SCIENCE.MultiNodeJobNodeConfigurationDetails(
        job_network_configuration=SCIENCE.JobDefaultNetworkConfiguration(),
        job_node_group_configuration_details_list=[group],
    )
    groups_job = oci.create_job(
        "print(1)",
        job_infrastructure_configuration_details=None,
        job_node_configuration_details=nodes,
    )
    run = oci.start(job, job_configuration_override_details=configuration)
    groups_run = oci.start(groups_job, job_node_configuration_override_details=nodes)
    oci.wait(run)
    oci.wait(groups_run)
    return {
        "job": job.id,
        "groups_job": groups_job.id,
        "run": run.id,
        "groups_run": groups_run.id,
        "group": oci.log_group,
        "log": run.log_details.log_id,
    }


@pytest.mark.parametrize("what", ANSWERS)
def test_answers_have_all_fields_of_the_model(
    oci: OciServer, ids: dict[str, str], what: str
) -> None:
    module, model, path = ANSWERS[what]
    signer = oci_sdk.signer.Signer(
        *(oci.config[name] for name in ("tenancy", "user", "fingerprint", "key_file"))
    )
    answer = requests.get(oci.url + path.format(**ids), auth=signer, timeout=30)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert not {*missing(module, model, found)}
    assert not {*unknown(module, model, found)}, "fields that no client knows"
    assert not {*unknown_values(module, model, found)}
