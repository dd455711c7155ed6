"""Profiles of engines `slurm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.engines.registry import engine_named
from muster.engines.slurm.listen import address_towards
from muster.engines.slurm.profile import SlurmProfile, read_settings
from muster.errors import InvalidInput
from muster.storage.home import Home
from support.slurm_cluster import add_engine


def test_all_settings() -> None:
    settings = {"partition": "gpu", "spares": 2, "folder": "/shared", "listen": "10.0.0.1"}
    options = {"partition": "gpu", "spares": 2}
    assert read_settings(settings) == SlurmProfile(options, "/shared", listen="10.0.0.1")
    assert read_settings({}) == SlurmProfile()


@pytest.mark.parametrize(
    ("settings", "path", "text"),
    [
        ({"partitions": "gpu"}, "partitions", "unknown setting"),
        ({"folder": "shared"}, "folder", "must be a path from /, not 'shared'"),
        ({"scratch": '/a"b'}, "scratch", "must have no quotes"),
        ({"python": 3}, "python", "must be a path from /, not 3"),
        ({"listen": ""}, "listen", "must be an address of this machine"),
        ({"time": "soon"}, "time", "must be a time limit of Slurm, not 'soon'"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read_settings(settings)
    (problem,) = error.value.problems
    assert problem.path == path and text in problem.message


def test_an_engine_with_and_without_a_profile(own_home: Path) -> None:
    home = Home(own_home)
    assert engine_named("slurm", home).name == "slurm"
    add_engine(own_home, partition="gpu")
    assert engine_named("slurm", home).name == "slurm"
    add_engine(own_home, nodes=3)
    with pytest.raises(InvalidInput, match="unknown setting"):
        engine_named("slurm", home)


def test_nodes_on_this_machine_dial_its_loopback() -> None:
    assert address_towards(["127.0.0.1", "localhost"]) == "127.0.0.1"
    assert address_towards(["no-such-name.invalid"]) == "127.0.0.1"
    assert address_towards([]) == "127.0.0.1"
