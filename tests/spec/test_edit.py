from __future__ import annotations

import pytest

from muster.errors import InvalidInput
from muster.spec.edit import edit
from muster.spec.reader import spec_from_mapping


def test_what_may_change() -> None:
    spec = spec_from_mapping({"command": "x", "shape": "local", "node_groups": [{"name": "a"}]})
    changed = edit(
        spec, ["resources.cpus=2", "description=new", "node_groups.a.resources.memory=1GiB"]
    )
    assert changed.resources is not None
    assert (changed.resources.cpus, changed.shape, changed.description) == (2, None, "new")
    assert changed.node_groups[0].resources is not None
    assert edit(changed, ["shape=local"]).resources is None


@pytest.mark.parametrize("change", ["env.A=1", "command=y", "nodes=2", "node_groups.b.shape=x"])
def test_what_may_not(change: str) -> None:
    spec = spec_from_mapping({"command": "x", "node_groups": [{"name": "a"}]})
    with pytest.raises(InvalidInput, match="cannot change"):
        edit(spec, [change])
