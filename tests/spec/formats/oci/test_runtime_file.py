"""Variables that an archive has in a file."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster.errors import InvalidInput
from muster.spec.formats.oci.model import (
    DefaultConfiguration,
    JobDetails,
    NodeConfiguration,
    NodeGroupConfiguration,
)
from muster.spec.formats.oci.runtime_file import (
    LONGEST,
    runtime_file,
    variables_in,
    with_variables,
)

FILE = "work/jobruntime.yaml"
#: As in OCI's samples of archives.
SAMPLE = b"""\
CONDA_ENV_TYPE: service
CONDA_ENV_SLUG: generalml_p38_cpu_v1
JOB_RUN_ENTRYPOINT: conda_pack_test.py
KEY2: 0123
EMPTY: ""
ON: yes
"""


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["main.py", "jobruntime.yaml"], "jobruntime.yaml"),
        (["p/main.py", "p/jobruntime.yaml"], "p/jobruntime.yaml"),
        (["p/jobruntime.yaml", "jobruntime.yaml"], "jobruntime.yaml"),
        (["p/q/jobruntime.yaml", "p/my-jobruntime.yaml", "p/jobruntime.yaml.txt"], None),
        ([], None),
    ],
)
def test_which_file_it_is(names: list[str], found: str | None) -> None:
    assert runtime_file(names) == found


def test_values_are_texts_as_they_are_written() -> None:
    assert variables_in(FILE, SAMPLE) == {
        "CONDA_ENV_TYPE": "service",
        "CONDA_ENV_SLUG": "generalml_p38_cpu_v1",
        "JOB_RUN_ENTRYPOINT": "conda_pack_test.py",
        "KEY2": "0123",
        "EMPTY": "",
        "ON": "yes",
    }
    assert variables_in(FILE, b"\n") == {}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"- a\n", f"{FILE}: has to be lines of NAME: value"),
        (b"A: 1\nB: [1]\nC: {D: 1}\n", f"{FILE}:2: B: has to be text\n{FILE}:3: C: has to be text"),
        (b"A: 'x\n", f"{FILE}:"),
        (b"A: 1\nA: 2\n", f"{FILE}:2: env.A"),
        (b"\xff", f"{FILE}: is not UTF-8"),
        (b"A: " + b"x" * LONGEST, f"{FILE}: has more than 65,536 bytes"),
    ],
)
def test_files_that_cannot_be_read(content: bytes, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        variables_in(FILE, content)
    assert str(caught.value).startswith(told)


def test_what_a_job_sets_comes_first() -> None:
    own = DefaultConfiguration(environment_variables={"A": "job"}, command_line_arguments="x")
    job = with_variables(JobDetails(job_configuration_details=own), {"A": "file", "B": "file"})
    assert job.job_configuration_details == replace(
        own, environment_variables={"A": "job", "B": "file"}
    )


def test_each_node_group_gets_the_variables() -> None:
    groups = [
        NodeGroupConfiguration(
            name="main",
            job_configuration_details=DefaultConfiguration(environment_variables={"A": "main"}),
        ),
        NodeGroupConfiguration(name="rest"),
    ]
    nodes = NodeConfiguration(job_node_group_configuration_details_list=groups)
    job = with_variables(JobDetails(job_node_configuration_details=nodes), {"A": "file"})
    assert job.job_configuration_details is None
    changed = job.job_node_configuration_details
    assert isinstance(changed, NodeConfiguration)
    found = changed.job_node_group_configuration_details_list or []
    assert [one.job_configuration_details for one in found] == [
        DefaultConfiguration(environment_variables={"A": "main"}),
        DefaultConfiguration(environment_variables={"A": "file"}),
    ]
