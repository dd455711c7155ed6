"""Every answer has every field of the SDK's model, or the field is in a table of what is absent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import oci as oci_sdk
import pytest
import requests

from muster.spec.ocids import TENANCY
from support.oci_server import OciServer, module_server

SCIENCE, LOGGING = oci_sdk.data_science.models, oci_sdk.logging.models

#: Operation -> its model, and the path that it reads. Braces: what the fixture has made.
ANSWERS: dict[str, tuple[ModuleType, str, str]] = {
    "get_job": (SCIENCE, "Job", "/20190101/jobs/{job}"),
    "get_job of groups": (SCIENCE, "Job", "/20190101/jobs/{groups_job}"),
    "list_jobs": (SCIENCE, "JobSummary", "/20190101/jobs?compartmentId={tenancy}"),
    "get_job_run": (SCIENCE, "JobRun", "/20190101/jobRuns/{run}"),
    "get_job_run of groups": (SCIENCE, "JobRun", "/20190101/jobRuns/{groups_run}"),
    "list_job_runs": (SCIENCE, "JobRunSummary", "/20190101/jobRuns?compartmentId={tenancy}"),
    "list_job_shapes": (SCIENCE, "JobShapeSummary", "/20190101/jobShapes?compartmentId={tenancy}"),
    "list_fast_launch_job_configs": (
        *(SCIENCE, "FastLaunchJobConfigSummary"),
        "/20190101/fastLaunchJobConfigs?compartmentId={tenancy}",
    ),
    "get_project": (SCIENCE, "Project", "/20190101/projects/{project}"),
    "list_projects": (SCIENCE, "ProjectSummary", "/20190101/projects?compartmentId={tenancy}"),
    "get_work_request": (SCIENCE, "WorkRequest", "/20190101/workRequests/{work_request}"),
    "list_work_requests": (
        *(SCIENCE, "WorkRequestSummary"),
        "/20190101/workRequests?compartmentId={tenancy}",
    ),
    "list_work_request_logs": (
        *(SCIENCE, "WorkRequestLogEntry"),
        "/20190101/workRequests/{work_request}/logs",
    ),
    "get_log_group": (LOGGING, "LogGroup", "/20200531/logGroups/{group}"),
    "list_log_groups": (LOGGING, "LogGroupSummary", "/20200531/logGroups?compartmentId={tenancy}"),
    "get_log": (LOGGING, "Log", "/20200531/logGroups/{group}/logs/{log}"),
    "list_logs": (LOGGING, "LogSummary", "/20200531/logGroups/{group}/logs"),
}
#: Operation -> fields that its answers do not have: a model of a later SDK may have more.
ABSENT: dict[str, set[str]] = {}


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
    deleted = oci.science.delete_job(oci.create_job().id)
    return {
        "tenancy": TENANCY,
        "project": oci.project,
        "job": job.id,
        "groups_job": groups_job.id,
        "run": run.id,
        "groups_run": groups_run.id,
        "work_request": deleted.headers["opc-work-request-id"],
        "group": oci.log_group,
        "log": run.log_details.log_id,
    }


@pytest.mark.parametrize("operation", ANSWERS)
def test_answers_have_all_fields_of_the_model(
    oci: OciServer, ids: dict[str, str], operation: str
) -> None:
    module, model, path = ANSWERS[operation]
    signer = oci_sdk.signer.Signer(
        *(oci.config[name] for name in ("tenancy", "user", "fingerprint", "key_file"))
    )
    answer = requests.get(oci.url + path.format(**ids), auth=signer, timeout=30)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found, "there is something to see"
    for one in found if isinstance(found, list) else [found]:
        absent, unknown = {*missing(module, model, one)}, {*more(module, model, one)}
        assert absent == ABSENT.get(operation, set())
        assert not unknown, "fields that no client knows"


def subtype(module: ModuleType, model: str, data: Any) -> Any:
    kind = getattr(module, model)
    return getattr(module, kind.get_subtype(data)) if hasattr(kind, "get_subtype") else kind


def missing(module: ModuleType, model: str, data: Any, where: str = "") -> Iterator[str]:
    """The fields of a model that an answer lacks, with those of the models in it."""
    kind = subtype(module, model, data)()
    for name, key in kind.attribute_map.items():
        if key not in data:
            yield where + key
        elif inner := _inner(module, kind.swagger_types[name]):
            values = data[key] if isinstance(data[key], list) else [data[key]]
            for value in filter(None, values):
                yield from missing(module, inner, value, f"{where}{key}.")


def more(module: ModuleType, model: str, data: Any, where: str = "") -> Iterator[str]:
    """The fields of an answer that a model does not have."""
    kind = subtype(module, model, data)()
    names = {key: name for name, key in kind.attribute_map.items()}
    for key, value in data.items():
        if key not in names:
            yield where + key
        elif inner := _inner(module, kind.swagger_types[names[key]]):
            for one in filter(None, value if isinstance(value, list) else [value]):
                yield from more(module, inner, one, f"{where}{key}.")


def _inner(module: ModuleType, declared: str) -> str | None:
    """The model in a declared type: `list[Model]` or `Model`; None if there is none."""
    found = re.fullmatch(r"(?:list\[)?([A-Z]\w+)\]?", declared)
    return found[1] if found and hasattr(module, found[1]) else None
