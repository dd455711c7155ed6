from __future__ import annotations

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from muster.frameworks.base import Check, Cluster, Role, Succeeds
from muster.frameworks.registry import framework_names, get_framework


def cluster(nodes: int = 2, processes: int = 1, **env: str) -> Cluster:
    return Cluster((Role("a", 0, 1, env), Role("b", 1, nodes - 1, {})), processes)


def test_every_framework_has_a_name_and_a_summary() -> None:
    for name in framework_names():
        framework = get_framework(name)
        assert framework.name == name
        assert framework.summary


@pytest.mark.shows("distributed-jobs/framework-custom")
def test_a_framework_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from muster.frameworks import registry

    entry = EntryPoint("mine", "muster.frameworks.generic:Generic", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_entry_points", lambda: [entry])
    assert "mine" in framework_names()
    assert get_framework("mine").setup(cluster()).env


def test_the_old_name_of_a_timeout_works_with_a_warning() -> None:
    """Plug-ins pass and read `patience`, which is also its name in stored plans."""
    with pytest.warns(DeprecationWarning, match=r"use Succeeds\.timeout"):
        check = Succeeds(("true",), patience=3.0)
    assert check == Succeeds(("true",), timeout=3.0) == Succeeds(("true",), "", 3.0)
    with pytest.warns(DeprecationWarning, match=r"use Succeeds\.timeout"):
        assert check.patience == 3.0
    with pytest.warns(DeprecationWarning):
        assert replace(check, patience=4.0).timeout == 4.0
    stored = to_builtins(check)
    assert stored["patience"] == 3.0
    assert "deprecated_patience" not in stored
    assert convert(stored, Check) == check
