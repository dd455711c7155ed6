from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.spec.shapes import catalogue, check_multinode, find_shape

GIB = 1 << 30


def test_shipped_shapes() -> None:
    shape = find_shape("BM.GPU4.8")
    assert (shape.ocpus, shape.cpus, shape.gpus, shape.gpu) == (64, 128, 8, "A100")
    assert find_shape("VM.Standard.A1.Flex").cpus == 4, "an Arm core is one CPU"
    assert len(catalogue()) > 30


@pytest.mark.parametrize(
    ("name", "ocpus", "cpus", "memory"),
    [
        ("VM.Standard.E5.Flex", 4, 8, 48 * GIB),
        ("VM.Standard.E5.Flex:2", 2, 4, 24 * GIB),
        ("VM.Standard.E5.Flex:8:100GiB", 8, 16, 100 * GIB),
    ],
)
def test_flexible_shapes_have_a_size(name: str, ocpus: int, cpus: int, memory: int) -> None:
    shape = find_shape(name)
    assert (shape.ocpus, shape.cpus, shape.memory) == (ocpus, cpus, memory)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("VM.Standard3.Flx", "did you mean VM.Standard3.Flex"),
        ("BM.GPU4.8:4:1GiB", "BM.GPU4.8 is not flexible"),
        ("VM.Standard.E5.Flex:many", "'many' is no size"),
    ],
)
def test_bad_shapes(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        find_shape(name)


@pytest.mark.parametrize(
    ("name", "nodes", "fits"),
    [
        ("VM.Standard2.1", 1, True),
        ("VM.Standard2.1", 2, False),
        ("VM.Standard2.2", 2, False),
        ("VM.Standard2.4", 2, True),
        ("VM.Standard.E5.Flex:2", 2, False),
        ("local", 2, True),
    ],
)
def test_several_nodes_need_more_than_two_cores(name: str, nodes: int, fits: bool) -> None:
    assert (check_multinode(find_shape(name), nodes) == []) is fits


def test_own_catalogue(tmp_path: Path) -> None:
    own = tmp_path / "shapes.yaml"
    own.write_text("lab: {ocpus: 8, memory: 32GiB, gpus: 1}\nlocal: {ocpus: 1, memory: 1GiB}\n")
    assert find_shape("lab", own).gpus == 1
    assert not find_shape("local", own).local, "one's own goes before what ships"


def test_bad_catalogue_says_where(tmp_path: Path) -> None:
    own = tmp_path / "shapes.yaml"
    own.write_text("good: {ocpus: 8, memory: 32GiB}\nbad: {ocpus: 8}\n")
    with pytest.raises(InvalidInput, match=r"shapes.yaml:2: bad: missing 'memory'"):
        find_shape("lab", own)
