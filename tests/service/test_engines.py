"""Engines that the user adds and removes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.service import engines
from muster.storage.home import Home


def add(name: str = "lab", *, replace: bool = False, **settings: Any) -> Path:
    return engines.add(name, "hosts", {"hosts": ("gpu1",), **settings}, {}, replace=replace)


def names(home: Path) -> list[str]:
    """The names of all engines."""
    return [one.name for one in engines.engines(Home(home))]


def problem_of(error: pytest.ExceptionInfo[InvalidInput]) -> str:
    (problem,) = error.value.problems
    return str(problem)


def test_an_engine_is_added_listed_and_removed(own_home: Path) -> None:
    file = add(gpus=2)
    assert file == own_home / "engines" / "lab.toml"
    assert file.read_text() == 'kind = "hosts"\nhosts = ["gpu1"]\ngpus = 2\n'
    assert names(own_home)[0] == "local"
    (found,) = (one for one in engines.engines(Home(own_home)) if one.name == "lab")
    assert found.origin == "its profile"
    assert found.capabilities is not None
    assert engines.remove("lab") == file
    assert "lab" not in names(own_home)
    assert not file.exists()


def test_the_name_of_a_kind_is_for_engines_of_that_kind(own_home: Path) -> None:
    assert add("hosts").name == "hosts.toml"


def test_what_was_added_is_replaced_only_if_that_is_wanted(own_home: Path) -> None:
    file = add()
    with pytest.raises(InvalidInput) as error:
        add(gpus=1)
    assert problem_of(error) == (
        "--name: engine lab exists already "
        f"(--replace replaces it, --name adds another one; its file can be edited: {file})"
    )
    assert "gpus" not in file.read_text()
    add(gpus=1, replace=True)
    assert "gpus = 1" in file.read_text()


@pytest.mark.parametrize("replace", [False, True])
def test_the_names_of_other_engines_are_taken(own_home: Path, replace: bool) -> None:
    with pytest.raises(InvalidInput) as error:
        add("local", replace=replace)
    assert problem_of(error) == "--name: there is an engine local already (choose another name)"
    assert not (own_home / "engines").exists()


@pytest.mark.parametrize("name", ["../lab", "Lab", "", "a/b", "lab."])
def test_names_that_no_engine_can_have(own_home: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        add(name)
    assert problem_of(error).startswith(f"--name: {name!r} cannot be the name of an engine")
    with pytest.raises(InvalidInput, match="was added"):
        engines.remove(name)
    assert not (own_home / "engines").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hosts": ("gpu1", "-v")}, "--host: must be [USER@]HOST[:PORT], not '-v'"),
        ({"python": "-c"}, "--python: must be an interpreter, not '-c'"),
        ({"isolation_timeout": "60"}, "--isolation-timeout: 60 has no unit"),
        ({"folder": "muster\x7f"}, "--folder: must be a path from / or ~/, not 'muster"),
    ],
)
def test_problems_name_the_flag(own_home: Path, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        add(**settings)
    assert problem_of(error).startswith(says)
    assert not (own_home / "engines").exists(), "nothing is written"


def test_a_broken_profile_can_be_replaced_and_removed(own_home: Path) -> None:
    for repair in (lambda: add(replace=True), lambda: engines.remove("lab")):
        add(replace=True).write_text("kind = ,")
        (found,) = (one for one in engines.engines(Home(own_home)) if one.name == "lab")
        assert "lab.toml:1: not TOML" in found.unusable
        with pytest.raises(InvalidInput, match="not TOML"):
            engines.check("lab", Home(own_home))
        repair()
    assert "lab" not in names(own_home)


def test_what_was_not_added_cannot_be_removed(own_home: Path) -> None:
    for name in ("local", "other"):
        with pytest.raises(InvalidInput) as error:
            engines.remove(name)
        assert problem_of(error) == f"no engine {name} was added (added: none)"
    add()
    with pytest.raises(InvalidInput, match=r"no engine other was added \(added: lab\)"):
        engines.remove("other")


def test_an_engine_that_is_not_there_is_not_checked(own_home: Path) -> None:
    with pytest.raises(InvalidInput, match="no engine named 'other' is installed"):
        engines.check("other", Home(own_home))
    with pytest.raises(InvalidInput, match="no engine hosts was added"):
        engines.check("hosts", Home(own_home))
