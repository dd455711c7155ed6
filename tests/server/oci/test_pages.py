"""Hundreds of job runs, listed by the SDK's paginator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from oci.data_science import models
from oci.exceptions import ServiceError
from oci.pagination import list_call_get_all_results, list_call_get_up_to_limit

from muster.spec.ocids import TENANCY
from support.oci_server import OciServer, module_server

COUNT = 230


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    yield from module_server(tmp_path_factory)


@pytest.fixture(scope="module")
def job(oci: OciServer) -> Any:
    """A job with many runs, all of which have failed: there is no such environment."""
    variables = {"CONDA_ENV_TYPE": "service", "CONDA_ENV_SLUG": "none"}
    configuration = models.DefaultJobConfigurationDetails(environment_variables=variables)
    made = oci.create_job("print(1)", job_configuration_details=configuration)
    for number in range(COUNT):
        oci.start(made, display_name=f"run {number:03}")
    return made


NAMES = [f"run {number:03}" for number in range(COUNT)]


@pytest.mark.parametrize("limit", [7, 100, None])
def test_all_runs_are_listed_once(oci: OciServer, job: Any, limit: int | None) -> None:
    given = {} if limit is None else {"limit": limit}
    listed = list_call_get_all_results(
        oci.science.list_job_runs, TENANCY, job_id=job.id, **given
    ).data
    assert [run.display_name for run in listed] == NAMES[::-1]
    assert {run.lifecycle_state for run in listed} == {"FAILED"}


def test_by_name(oci: OciServer, job: Any) -> None:
    given = {"job_id": job.id, "sort_by": "displayName", "limit": 50}
    listed = list_call_get_all_results(oci.science.list_job_runs, TENANCY, **given).data
    assert [run.display_name for run in listed] == NAMES


def test_up_to_a_number(oci: OciServer, job: Any) -> None:
    listed = list_call_get_up_to_limit(
        oci.science.list_job_runs, 120, 50, TENANCY, job_id=job.id
    ).data
    assert [run.display_name for run in listed] == NAMES[::-1][:120]


def test_the_last_page_names_no_other(oci: OciServer, job: Any) -> None:
    """The SDK asks for another one as long as the header is there."""
    first = oci.science.list_job_runs(TENANCY, job_id=job.id, limit=COUNT - 1)
    last = oci.science.list_job_runs(
        TENANCY, job_id=job.id, limit=COUNT - 1, page=first.headers["opc-next-page"]
    )
    assert [run.display_name for run in last.data] == ["run 000"]
    assert "opc-next-page" not in last.headers


def test_states(oci: OciServer, job: Any) -> None:
    for state, count in (("FAILED", COUNT), ("SUCCEEDED", 0)):
        listed = list_call_get_all_results(
            oci.science.list_job_runs, TENANCY, job_id=job.id, lifecycle_state=state
        ).data
        assert len(listed) == count, state


@pytest.mark.parametrize("given", [{"page": "nonsense"}, {"limit": 0}, {"limit": 5000}])
def test_pages_that_there_are_not(oci: OciServer, given: dict[str, Any]) -> None:
    with pytest.raises(ServiceError) as caught:
        oci.science.list_job_runs(TENANCY, **given)
    assert (caught.value.status, caught.value.code) == (400, "InvalidParameter")
