"""Which Python stands for the conda environment of a job."""

from __future__ import annotations

import pytest

from muster.spec.formats.oci.conda import conda_python
from muster.spec.formats.oci.model import (
    DefaultConfiguration,
    EmptyConfiguration,
    JobDetails,
    NodeConfiguration,
    NodeGroupConfiguration,
)

PYTHONS = {"pytorch_v1": "/a/bin/python", "cpu/tf/2.0/tf_v2": "/b/bin/python"}


def job(**variables: str) -> JobDetails:
    return JobDetails(
        job_configuration_details=DefaultConfiguration(environment_variables=variables)
    )


def of_groups(*slugs: str | None) -> JobDetails:
    groups = [
        NodeGroupConfiguration(
            name=f"group-{number}",
            job_configuration_details=DefaultConfiguration(
                environment_variables={} if slug is None else {"CONDA_ENV_SLUG": slug}
            ),
        )
        for number, slug in enumerate(slugs)
    ]
    nodes = NodeConfiguration(job_node_group_configuration_details_list=groups)
    return JobDetails(
        job_configuration_details=EmptyConfiguration(), job_node_configuration_details=nodes
    )


FOUND = {
    "none": (job(A="1"), None),
    "a slug": (job(CONDA_ENV_SLUG="pytorch_v1"), ("pytorch_v1", "/a/bin/python")),
    "a published pack": (
        job(CONDA_ENV_OBJECT_NAME="cpu/tf/2.0/tf_v2"),
        ("cpu/tf/2.0/tf_v2", "/b/bin/python"),
    ),
    "the last part of its path": (
        job(CONDA_ENV_OBJECT_NAME="conda/pytorch_v1"),
        ("conda/pytorch_v1", "/a/bin/python"),
    ),
    "groups with the same": (
        of_groups("pytorch_v1", None, "pytorch_v1"),
        ("pytorch_v1", "/a/bin/python"),
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_found(case: str) -> None:
    given, expected = FOUND[case]
    assert conda_python(given, PYTHONS) == expected


def test_every_other_name_has_one_python() -> None:
    pythons = {**PYTHONS, "*": "/c/bin/python"}
    assert conda_python(job(CONDA_ENV_SLUG="other"), pythons) == ("other", "/c/bin/python")
    found = conda_python(job(CONDA_ENV_SLUG="pytorch_v1"), pythons)
    assert found == ("pytorch_v1", "/a/bin/python")


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="there is no conda environment 'other' here") as caught:
        conda_python(job(CONDA_ENV_SLUG="other"), PYTHONS)
    assert '[oci.conda], "other" = "/PATH/bin/python"' in str(caught.value)


def test_an_unknown_pack() -> None:
    with pytest.raises(ValueError, match="packs in object storage are not unpacked") as caught:
        conda_python(job(CONDA_ENV_TYPE="published", CONDA_ENV_OBJECT_NAME="a/other"), PYTHONS)
    assert str(caught.value).startswith("there is no conda environment 'a/other' here; packs in")


def test_groups_with_several() -> None:
    with pytest.raises(ValueError, match="several conda environments, a, pytorch_v1"):
        conda_python(of_groups("pytorch_v1", "a"), PYTHONS)
