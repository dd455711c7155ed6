"""Mistakes in the file of an engine, whose hints are in TOML."""

from __future__ import annotations

import tomllib

import pytest

from muster.engines.kubernetes.profile import read_settings
from muster.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        (
            "[tolerations]\nkey = 'a'\n",
            "tolerations",
            'as in [{key = "nvidia.com/gpu", operator = "Exists"}]',
        ),
        ("[pod.spec.volumes]\nname = 'x'\n", "pod.spec.volumes", "write [[pod.spec.volumes]]"),
        ("resources = 3\n", "resources", 'as in {"rdma/ib" = 1}'),
        ("pod = 3\n", "pod", "as in {spec = {hostNetwork = true}}"),
        ("image_pull_secrets = 'reg'\n", "image_pull_secrets", 'as in ["registry-login"]'),
        ("exclusive = true\n", "exclusive", 'as in "cloud.google.com/gke-nodepool"'),
        ("[pod.spec]\nhostIpc = true\n", "pod.spec.hostIpc", 'did you mean "hostIPC"?'),
    ],
)
def test_hints_are_in_toml(text: str, path: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read_settings(tomllib.loads(text))
    (problem,) = error.value.problems
    assert (problem.path, problem.hint) == (path, hint)
