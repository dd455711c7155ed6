"""What a job asks of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.engines.kubernetes.profile import read_settings
from muster.errors import InvalidInput
from muster.spec.formats.jobset.cluster_settings import NAMES, setting_problems
from muster.spec.reader import spec_from_mapping
from spec.formats.jobset.test_patches import ANYTHING


@pytest.mark.parametrize(
    ("settings", "path", "text"),
    [
        ({"resources": {"gpu": 1}}, "resources.gpu", "is not the name of a resource"),
        ({"resources": {"rdma/ib": "x"}}, "resources.rdma/ib", "'x' is not a quantity"),
        ({"resources": {"cpu": 1}}, "resources.cpu", "is set by Muster"),
        ({"tolerations": [{"ky": "a"}]}, "tolerations[0].ky", "unknown field"),
        ({"tolerations": [{}, {"key": 5}]}, "tolerations[1].key", "must be text, not 5"),
        (
            {"tolerations": [{"key": "a", "operator": "Exist"}]},
            "tolerations[0].operator",
            "must be Exists, Equal, Lt or Gt, not 'Exist'",
        ),
        ({"tolerations": [{"effect": "No"}]}, "tolerations[0].effect", "must be NoSchedule, "),
        ({"affinity": {"nodeAffinity": 5}}, "affinity.nodeAffinity", "must be a mapping, not 5"),
        ({"pod": {"spec": {"hostNetwork": "yes"}}}, "pod.spec.hostNetwork", "must be true or fal"),
        ({"pod": {"spec": {"restartPolicy": "Always"}}}, "pod.spec.restartPolicy", "must be Never"),
    ],
)
def test_what_the_api_server_would_refuse_later_is_found(
    settings: dict[str, Any], path: str, text: str
) -> None:
    with pytest.raises(InvalidInput) as of_job:
        spec_from_mapping({"command": "true", "kubernetes": settings})
    with pytest.raises(InvalidInput) as of_profile:
        read_settings(settings)
    for refused, start in ((of_job, "kubernetes."), (of_profile, "")):
        (problem,) = refused.value.problems
        assert problem.path == f"{start}{path}"
        assert problem.message.startswith(text)


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING))
def test_odd_settings_are_refused_at_their_place(settings: dict[str, Any]) -> None:
    found = [*setting_problems(settings, "kubernetes")]
    assert all(one.path.startswith("kubernetes.") for one in found)
