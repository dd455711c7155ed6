"""Whether a plan fits a machine."""

from __future__ import annotations

import pytest

from muster.engines.local.capacity import check_fit, shape_notes
from muster.engines.local.resources import Machine
from muster.plan.model import ResourcePlan, RunPlan
from support.sessions import make_plan

GIB = 1 << 30
SMALL = ResourcePlan(cpus=1, memory=GIB, shape="small")
LARGE = ResourcePlan(cpus=128, memory=64 * GIB, gpus=8, shape="BM.GPU4.8")


def plan(resources: ResourcePlan, nodes: int = 1) -> RunPlan:
    return make_plan("x", nodes, resources=resources)


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (ResourcePlan(cpus=3), "resources.cpus: a node needs 3 CPUs, this machine has 2"),
        (ResourcePlan(memory=9 * GIB), "a node needs 9GiB, this machine has 8GiB"),
        (ResourcePlan(memory=4), "4 bytes are too few for any program (did you mean 4GiB?)"),
        (ResourcePlan(memory=512), "(did you mean 512MiB?)"),
        (ResourcePlan(memory=9), "(at least 16MiB)"),
        (ResourcePlan(gpus=5), "a node needs 5 GPUs, this machine has 4"),
    ],
)
def test_a_node_larger_than_the_machine_is_refused(resources: ResourcePlan, message: str) -> None:
    (problem,) = check_fit(plan(resources), Machine(2, 8 * GIB, 4))
    assert message in str(problem)


def test_a_machine_without_gpus_is_reported_with_a_hint() -> None:
    (problem,) = check_fit(plan(ResourcePlan(gpus=1)), Machine(2, 8 * GIB, 0))
    assert problem.path == "node_groups[workers].resources.gpus"
    assert problem.message == "a node needs 1 GPU, this machine has none"
    assert problem.hint.startswith("leave gpus out to run on CPUs")


def test_gpus_add_up_and_cpus_do_not() -> None:
    machine = Machine(2, 8 * GIB, 4)
    assert check_fit(plan(ResourcePlan(cpus=2, gpus=1), nodes=4), machine) == []
    (problem,) = check_fit(plan(ResourcePlan(gpus=2), nodes=4), machine)
    assert "all nodes together need 8 GPUs, this machine has 4" in str(problem)


def test_a_shape_larger_than_the_machine_is_noted() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert check_fit(plan(LARGE), machine) == []
    (note,) = shape_notes(plan(LARGE), machine)
    assert note == (
        "group workers: shape BM.GPU4.8 is larger than this machine (2 CPUs, 8GiB, 0 GPUs); "
        "its nodes run with what the machine has"
    )
    assert shape_notes(plan(SMALL), machine) == []
    exact = ResourcePlan(cpus=3, memory=64 * GIB, shape="own", exact=("cpus",))
    assert [str(p) for p in check_fit(plan(exact), machine)] == [
        "node_groups[workers].resources.cpus: a node needs 3 CPUs, this machine has 2 "
        "(ask for at most 2)"
    ]


def test_shapes_larger_than_the_machine_together_are_noted() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert shape_notes(plan(SMALL, 2), machine) == []
    assert shape_notes(plan(SMALL, 10), machine) == [
        "the shapes of 10 nodes add up to 10 CPUs; this machine has 2: they share it",
        "the shapes of 10 nodes add up to 10GiB of memory; this machine has 8GiB: they share it",
    ]


def test_more_nodes_than_the_memory_holds_are_refused() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert check_fit(plan(ResourcePlan(), nodes=100), machine) == []
    (problem,) = check_fit(plan(ResourcePlan(), nodes=4000), machine)
    assert str(problem) == (
        "nodes: 4,000 nodes take at least 11.7GiB of memory, this machine has 8GiB "
        "(ask for fewer than 2,730; `muster simulate` has no limit)"
    )
