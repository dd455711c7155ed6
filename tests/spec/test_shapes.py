from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.spec.models import JobSpec, Resources
from muster.spec.shapes import (
    catalogue,
    check_multinode,
    check_within,
    find_shape,
    without_unknown,
)

GIB = 1 << 30


@pytest.mark.shows("distributed-jobs/capability-shapes", "jobs/creation-shape", "jobs/job-shape")
def test_shipped_shapes_have_their_sizes() -> None:
    shape = find_shape("BM.GPU4.8")
    assert (shape.ocpus, shape.cpus, shape.gpus, shape.gpu) == (64, 128, 8, "A100")
    assert find_shape("VM.Standard.A1.Flex").cpus == 4, "an Arm core is one CPU"
    assert len(catalogue()) > 30


@pytest.mark.shows("distributed-jobs/capability-shapes")
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
        ("vm.gpu3.2", "did you mean VM.GPU3.2?"),
        ("VM.Standard.E4", "did you mean VM.Standard.E4.Flex"),
        ("", "no shape named ''"),
        ("VM.Standard.E5.Flex:many", "'many' is not a valid size"),
        ("VM.Standard.E5.Flex:0", "'0' is not a valid size"),
        ("VM.Standard.E5.Flex:-3", "'-3' is not a valid size"),
        ("VM.Standard.E5.Flex:nan", "'nan' is not a valid size"),
        ("VM.Standard.E5.Flex:4:64GiB:1", "'4:64GiB:1' is not a valid size"),
    ],
)
def test_invalid_shapes_are_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        find_shape(name)


@pytest.mark.shows("distributed-jobs/capability-shapes-two-cores")
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


@pytest.mark.shows("jobs/creation-shape")
def test_a_catalogue_of_the_user(tmp_path: Path) -> None:
    own = tmp_path / "shapes.yaml"
    own.write_text("lab: {ocpus: 8, memory: 32GiB, gpus: 1}\nlocal: {ocpus: 1, memory: 1GiB}\n")
    assert find_shape("lab", own).gpus == 1
    assert not find_shape("local", own).local, "the user's takes precedence"


def test_a_shape_names_its_catalogue(tmp_path: Path) -> None:
    own = tmp_path / "shapes.yaml"
    own.write_text("lab: {ocpus: 8, memory: 32GiB}\nVM.GPU2.1: {ocpus: 1, memory: 1GiB}\n")
    shapes = catalogue(own)
    places = {
        name: (shapes[name].catalogue, shapes[name].replaces) for name in ("lab", "VM.GPU2.1")
    }
    assert places == {"lab": (str(own), False), "VM.GPU2.1": (str(own), True)}
    assert (shapes["BM.GPU4.8"].catalogue, shapes["BM.GPU4.8"].replaces) == ("", False)


def test_resources_may_not_exceed_their_shape() -> None:
    shape = find_shape("VM.Standard2.1")
    assert check_within(shape, Resources(cpus=2, memory=15 * GIB), "resources") == []
    found = check_within(shape, Resources(cpus=3, memory=16 * GIB, gpus=1), "resources")
    assert [(problem.path, problem.message) for problem in found] == [
        ("resources.cpus", "more than shape VM.Standard2.1 has: 2 CPUs"),
        ("resources.memory", "more than shape VM.Standard2.1 has: 15GiB"),
        ("resources.gpus", "more than shape VM.Standard2.1 has: no GPUs"),
    ]
    assert check_within(find_shape("local"), Resources(cpus=3), "resources") == []


def test_an_unknown_shape_of_a_manifest(tmp_path: Path) -> None:
    own = tmp_path / "shapes.yaml"
    own.write_text("VM.New.Flex: {ocpus: 8, memory: 32GiB, flex: true}\n")
    spec = JobSpec(shape="VM.New.Flex:2:8GiB")
    assert without_unknown(spec, catalogue(own)) == (spec, ())
    bare, notes = without_unknown(spec, catalogue())
    assert bare.shape is None
    assert notes == ("shape VM.New.Flex is not known (see `muster shapes`); nodes are not limited",)


def test_problems_of_a_catalogue_have_their_line(tmp_path: Path) -> None:
    own = tmp_path / "shapes.yaml"
    own.write_text("good: {ocpus: 8, memory: 32GiB}\nbad: {ocpus: 8}\n")
    with pytest.raises(InvalidInput, match=r"shapes.yaml:2: bad.memory: is missing"):
        find_shape("lab", own)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("- a\n", ["shapes.yaml: must be a mapping of names to shapes, not a list"]),
        (
            "a: 3\nb: {ocpus: x, memory: [1], gpu_model: A}\n",
            [
                "shapes.yaml:1: a: must be a mapping, not 3",
                "shapes.yaml:2: b.gpu_model: unknown field",
                "shapes.yaml:2: b.ocpus: must be a number, not 'x'",
                "shapes.yaml:2: b.memory: must be a size, not a list",
            ],
        ),
        ("a: {ocpus: 0, memory: 1}\n", ["shapes.yaml:1: a.ocpus: must be more than 0, not 0"]),
    ],
)
def test_all_problems_of_a_catalogue_are_reported_at_once(
    tmp_path: Path, text: str, messages: list[str]
) -> None:
    own = tmp_path / "shapes.yaml"
    own.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        catalogue(own)
    found = [str(problem).replace(str(own), "shapes.yaml") for problem in caught.value.problems]
    assert len(found) == len(messages)
    assert all(one.startswith(start) for one, start in zip(found, messages, strict=True))


def test_a_catalogue_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        catalogue(tmp_path)


def test_the_shipped_catalogue_is_valid() -> None:
    for name, shape in catalogue().items():
        assert shape.local or shape.memory >= shape.ocpus * (1 << 30), name
        assert (shape.gpus > 0) == bool(shape.gpu), name
        assert shape.flex == name.endswith(".Flex"), name
        assert shape.source, f"{name}: name the source of the numbers"


#: Oracle, Compute Shapes: cores and GB of memory that a flexible shape may have at most.
RANGES = {
    "VM.Standard3.Flex": (32, 512),
    "VM.Standard.E3.Flex": (64, 1024),
    "VM.Standard.E4.Flex": (64, 1024),
    "VM.Standard.E5.Flex": (94, 1049),
    "VM.Standard.E6.Flex": (126, 1454),
    "VM.Standard.A1.Flex": (76, 472),
    "VM.Standard.A2.Flex": (78, 946),
    "VM.Optimized3.Flex": (18, 256),
    "VM.DenseIO.E4.Flex": (32, 512),
    "VM.DenseIO.E5.Flex": (48, 576),
}


def test_flexible_sizes_are_within_their_limits() -> None:
    flexible = {name: shape for name, shape in catalogue().items() if shape.flex}
    assert flexible.keys() == RANGES.keys()
    for name, shape in flexible.items():
        cores, memory = RANGES[name]
        assert shape.ocpus <= cores and shape.memory <= memory * GIB
        assert shape.memory <= 64 * GIB * shape.ocpus
