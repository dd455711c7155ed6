from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.spec.edit import edit as edit_in
from muster.spec.models import JobSpec
from muster.spec.reader import spec_from_mapping


def edit(spec: JobSpec, changes: list[str]) -> JobSpec:
    return edit_in(spec, changes, Path("/at"))


@pytest.mark.shows("jobs/edit-shape")
def test_settings_that_may_change() -> None:
    spec = spec_from_mapping({"command": "x", "shape": "local", "node_groups": [{"name": "a"}]})
    changed = edit(
        spec, ["resources.cpus=2", "description=new", "node_groups.a.resources.memory=1GiB"]
    )
    assert changed.resources is not None
    assert (changed.resources.cpus, changed.shape, changed.description) == (2, "local", "new")
    assert changed.node_groups[0].resources is not None
    assert edit(changed, ["shape=local"]).resources is None


def test_one_mount_of_several() -> None:
    data = {"command": "x", "mounts": [{"source": "/a"}, {"source": "/b"}]}
    spec = spec_from_mapping({**data, "node_groups": [{"name": "g", "mounts": [{"source": "/c"}]}]})
    changed = edit(spec, ["mounts[1].source=/d", "node_groups[0].mounts[0].path=/p"])
    assert [mount.source for mount in changed.mounts] == ["/a", "/d"]
    assert changed.node_groups[0].mounts[0].path == "/p"
    with pytest.raises(InvalidInput, match=r"mounts has 2 items \(they are 0 to 1"):
        edit(spec, ["mounts[2].source=/d"])


@pytest.mark.parametrize(
    "change",
    [
        "env.A=1",
        "command=y",
        "nodes=2",
        "node_groups.b.shape=x",
        "description.a=1",
        "description.a.b=1",
        "shape.a.b.c=1",
    ],
)
def test_settings_that_may_not_change(change: str) -> None:
    data = {"command": "x", "description": "y", "shape": "local", "node_groups": [{"name": "a"}]}
    spec = spec_from_mapping(data)
    with pytest.raises(InvalidInput, match="cannot change"):
        edit(spec, [change])


def test_all_invalid_changes_are_reported_at_once() -> None:
    spec = spec_from_mapping({"command": "x"})
    with pytest.raises(InvalidInput) as caught:
        edit(spec, ["x", "tags=[1", "name=y"])
    starts = ["--set: 'x' is not PATH=VALUE", "--set tags=[1: not valid YAML", "--set: name cannot"]
    found = [str(problem) for problem in caught.value.problems]
    assert all(one.startswith(start) for one, start in zip(found, starts, strict=True))


def test_a_tag_is_kept_as_typed() -> None:
    spec = spec_from_mapping({"command": "x"})
    assert edit(spec, ["tags.version=1.10"]).tags == {"version": "1.10"}


def test_relative_paths_are_those_of_the_submitter() -> None:
    spec = spec_from_mapping({"command": "true", "mounts": [{"source": "/a"}]})
    (mount,) = edit(spec, ["mounts[0].source=data"]).mounts
    assert mount.source == "/at/data"
