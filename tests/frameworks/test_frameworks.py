from __future__ import annotations

import pytest

from muster.frameworks.base import Cluster, Role
from muster.frameworks.registry import framework_names, get_framework


def cluster(nodes: int = 2, processes: int = 1, **env: str) -> Cluster:
    return Cluster((Role("a", 0, 1, env), Role("b", 1, nodes - 1, {})), processes)


def test_every_framework_says_what_it_is() -> None:
    for name in framework_names():
        framework = get_framework(name)
        assert framework.name == name
        assert framework.summary


@pytest.mark.shows("distributed-jobs/framework-custom")
def test_a_framework_of_somebody_else_s(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from muster.frameworks import registry

    entry = EntryPoint("mine", "muster.frameworks.generic:Generic", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_entry_points", lambda: [entry])
    assert "mine" in framework_names()
    assert get_framework("mine").setup(cluster()).env
