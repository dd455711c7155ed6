"""Who may start runs on a server that somebody else uses, too."""

from __future__ import annotations

import pytest

from muster.engines.registry import engine_named
from muster.engines.separation import why_refused
from muster.storage.home import default_home


@pytest.mark.parametrize(
    ("engine", "separates", "account", "root", "first_owner", "words"),
    [
        ("local", True, True, True, None, ""),
        ("local", True, True, True, "ana", ""),
        ("local", True, True, True, "ben", ""),
        ("local", True, False, False, None, ""),
        ("local", True, False, False, "ben", ""),
        ("local", True, False, False, "ana", "does not run as root"),
        ("local", True, False, True, "ana", "set separate_owners = true"),
        ("slurm", False, True, True, None, ""),
        ("slurm", False, True, True, "ben", ""),
        ("slurm", False, True, True, "ana", "engine slurm runs the programs of all as one user"),
        ("hosts", False, False, False, "ana", "engine hosts runs the programs of all as one user"),
    ],
)
def test_a_second_owner_is_refused_where_runs_are_not_kept_apart(
    *, engine: str, separates: bool, account: bool, root: bool, first_owner: str | None, words: str
) -> None:
    found = why_refused(
        engine,
        separates=separates,
        account=account,
        root=root,
        owner="ben",
        first_owner=first_owner,
    )
    assert words in found
    assert bool(words) == bool(found)
    if found:
        assert "ben" in found
        assert "ana" not in found, "ana may be of another project"
        assert "a server of your own" in found


@pytest.mark.parametrize("name", ["local", "slurm", "container"])
def test_only_the_local_engine_separates(name: str) -> None:
    capabilities = engine_named(name, default_home()).capabilities
    assert capabilities.separates_owners == (name == "local")
