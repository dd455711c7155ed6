"""Shapes: names for what a node has. The catalogue is a file; a person's own goes before it.

OCI: listJobShapes. A flexible shape may be given its size: `VM.Standard.E5.Flex:4:64GiB`
(OCPUs, memory). An OCPU is one core; on x86 it is two CPUs of the operating system.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.spec.quantities import parse_size
from muster.spec.yaml import load

CATALOGUE = Path(__file__).with_name("shapes.yaml")
#: OCI: multi-node runs take every shape but those with so many cores or fewer.
MAX_CORES_SINGLE_NODE = 2


class Shape(Struct, frozen=True):
    """ocpus: cores; memory in bytes; local: whatever this machine has."""

    name: str
    ocpus: float
    cpus: float
    memory: int
    gpus: int = 0
    gpu: str = ""
    flex: bool = False
    local: bool = False


def find_shape(text: str, own: Path | None = None) -> Shape:
    """The shape of that name. own: a person's catalogue. Raises InvalidInput."""
    name, _, size = text.partition(":")
    known = catalogue(own)
    if name not in known:
        close = get_close_matches(name, known, 3, 0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else f"see {CATALOGUE.name}"
        raise InvalidInput(Problem("shape", f"no shape named {name!r}", hint))
    return _sized(known[name], size) if size else known[name]


def catalogue(own: Path | None = None) -> dict[str, Shape]:
    """Every shape by name."""
    shapes = dict(_read(CATALOGUE))
    if own is not None and own.exists():
        shapes |= dict(_read(own))
    return shapes


def check_multinode(shape: Shape, nodes: int) -> list[Problem]:
    """OCI: multi-node runs need shapes with more than two cores. Local ones may do as they like."""
    if nodes < 2 or shape.local or shape.ocpus > MAX_CORES_SINGLE_NODE:
        return []
    text = f"{shape.name} has {shape.ocpus:g} cores; a run of several nodes needs more than 2"
    hint = f"write {shape.name}:4:64GiB" if shape.flex else "take a larger shape, or `local`"
    return [Problem("shape", text, hint)]


def _sized(shape: Shape, size: str) -> Shape:
    ocpus, _, memory = size.partition(":")
    if not shape.flex:
        text = f"{shape.name} is not flexible; it cannot be {size}"
        raise InvalidInput(Problem("shape", text, f"write {shape.name}"))
    try:
        cores = float(ocpus)
        amount = parse_size(memory) if memory else int(shape.memory / shape.ocpus * cores)
    except ValueError:
        text = f"{size!r} is no size for {shape.name}"
        raise InvalidInput(Problem("shape", text, f"write {shape.name}:4:64GiB")) from None
    threads = shape.cpus / shape.ocpus
    return Shape(shape.name, cores, cores * threads, amount, shape.gpus, shape.gpu, True)


def _read(path: Path) -> Iterator[tuple[str, Shape]]:
    data, lines = load(path.read_text(), str(path))
    if not isinstance(data, Mapping):
        raise InvalidInput(Problem("", "must be a mapping of names to shapes", "", str(path)))
    for name, entry in data.items():
        try:
            yield str(name), _shape(str(name), entry)
        except (KeyError, TypeError, ValueError) as error:
            place = f"{path}:{lines.get(str(name), 1)}"
            what = f"missing {error}" if isinstance(error, KeyError) else str(error)
            hint = "a shape has ocpus and memory, perhaps cpus, gpus, gpu, flex, local"
            raise InvalidInput(Problem(str(name), what, hint, place)) from None


def _shape(name: str, entry: Mapping[str, Any]) -> Shape:
    ocpus = float(entry["ocpus"])
    return Shape(
        name=name,
        ocpus=ocpus,
        cpus=float(entry.get("cpus", ocpus * (1 if entry.get("arm") else 2))),
        memory=parse_size(entry["memory"]),
        gpus=int(entry.get("gpus", 0)),
        gpu=str(entry.get("gpu", "")),
        flex=bool(entry.get("flex", False)),
        local=bool(entry.get("local", False)),
    )
