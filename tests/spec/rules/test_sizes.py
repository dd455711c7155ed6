from __future__ import annotations

from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.reader import spec_from_mapping
from muster.spec.rules.structure import MAX_GROUPS, MAX_WORD, MAX_WORDS


def refused(**data: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        spec_from_mapping({"command": ["true"], **data})
    return str(caught.value)


def test_too_many_groups_are_the_only_problem_reported() -> None:
    def groups(count: int) -> list[dict[str, Any]]:
        names = [f"g{n}" for n in range(count)]
        depends = [[{"group": other}] for other in [*names[1:], names[0]]]
        return [{"name": n, "depends_on": d} for n, d in zip(names, depends, strict=True)]

    text = refused(node_groups=groups(MAX_GROUPS + 1))
    hint = "use one group with replicas for equal groups"
    assert text == f"node_groups: 1,001 groups, 1,000 are allowed ({hint})"
    cycle = refused(node_groups=groups(MAX_GROUPS))
    assert "is circular: g0 -> g1 -> " in cycle
    assert " -> g7 -> ... -> g0 (" in cycle
    assert len(cycle) < 500, "a long cycle is cut"


def test_the_length_of_an_argument_is_bounded_as_by_the_kernel() -> None:
    assert spec_from_mapping({"command": ["true"], "args": ["x" * MAX_WORD]})
    text = "args[1]: 131,072 bytes in one word, 131,071 are allowed (put it into a file)"
    assert refused(args=["a", "é" * (MAX_WORD // 2 + 1)]) == text
    group = {"name": "a", "node_args": ["x" * (MAX_WORD + 1)]}
    assert refused(node_groups=[group]).startswith("node_groups[0].node_args[0]: 131,072 bytes")


def test_the_length_of_all_arguments_is_bounded_as_by_the_kernel() -> None:
    word = "x" * 100_000
    count = MAX_WORDS // 100_000
    assert spec_from_mapping({"command": ["true"], "args": [word] * (count - 1)})
    assert "bytes in the words of a command, 1,500,000 are allowed" in refused(args=[word] * count)


@pytest.mark.parametrize("count", [10**12, 10**400])
@pytest.mark.parametrize("field", ["nodes", "replicas", "max_replicas"])
def test_counts_are_bounded(field: str, count: int) -> None:
    assert "a run can have 100,000" in refused(node_groups=[{"name": "a", field: count}])


def test_processes_are_bounded() -> None:
    assert "must be at most 1024, not 1000000000" in refused(processes_per_node=10**9)
