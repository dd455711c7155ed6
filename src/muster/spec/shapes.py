"""Shapes: named node sizes, from the built-in catalogue and the user's own, which takes precedence.

OCI: listJobShapes. A flexible shape may have a size: `VM.Standard.E5.Flex:4:64GiB` (OCPUs,
memory). An OCPU is one core; on x86 it is two CPUs of the operating system.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode
from muster.spec.files import read_text
from muster.spec.models import JobSpec, Resources
from muster.spec.problem_places import placed
from muster.spec.quantities import format_size, parse_size
from muster.spec.values import Positive, Size
from muster.spec.wording import close_to, say, short
from muster.spec.yaml import load

CATALOGUE = Path(__file__).with_name("shapes.yaml")
#: OCI: shapes with this many cores or fewer are refused for multi-node runs.
MAX_CORES_SINGLE_NODE = 2


class Shape(Struct, frozen=True):
    """A named node size."""

    name: str
    ocpus: float
    """Cores."""
    cpus: float
    """CPUs of the operating system."""
    memory: int
    """Bytes."""
    gpus: int = 0
    gpu: str = ""
    """Model of the GPUs."""
    flex: bool = False
    """Whether OCPUs and memory can be chosen."""
    local: bool = False
    """Whether it stands for the whole machine."""
    source: str = ""
    """Source of the figures."""
    catalogue: str = ""
    """The user's catalogue file; "" for the built-in catalogue."""
    replaces: bool = False
    """Whether it replaces a built-in shape of the same name."""


class _Entry(Struct, frozen=True, kw_only=True):
    """A shape in a catalogue file."""

    ocpus: Positive
    memory: Size
    cpus: Positive | None = None
    gpus: Annotated[int, Meta(ge=0)] = 0
    gpu: str = ""
    arm: bool = False
    """Whether a core has one CPU instead of two."""
    flex: bool = False
    local: bool = False
    source: str = ""


def find_shape(text: str, own: Path | None = None) -> Shape:
    """The shape with this name, with or without a size. own: the user's catalogue file. Raises
    InvalidInput."""
    name, _, size = text.partition(":")
    known = catalogue(own)
    if name not in known:
        longer = [other for other in known if name and other.lower().startswith(name.lower())]
        close = longer[:3] or close_to(name, known, 3, 0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else "`local` is this machine"
        raise InvalidInput(Problem("shape", f"no shape named {short(name)}", hint))
    return _with_size(known[name], size) if size else known[name]


def catalogue(own: Path | None = None) -> dict[str, Shape]:
    """All shapes by name. own: the user's catalogue file."""
    shapes = dict(_built_in())
    if own is not None and os.path.exists(own):
        for name, shape in _read(own):
            shapes[name] = replace(shape, catalogue=str(own), replaces=name in shapes)
    return shapes


@cache
def _built_in() -> tuple[tuple[str, Shape], ...]:
    return tuple(_read(CATALOGUE))


def without_unknown(spec: JobSpec, known: Container[str]) -> tuple[JobSpec, tuple[str, ...]]:
    """A manifest's job without its shape if the shape is unknown, and a note. OCI adds shapes
    regularly, and a manifest's shape describes nodes elsewhere. known: names of shapes."""
    name = (spec.shape or "").partition(":")[0]
    if not name or name in known:
        return spec, ()
    note = f"shape {name} is not known (see `muster shapes`); nodes are not limited"
    return replace(spec, shape=None), (note,)


def check_multinode(shape: Shape, nodes: int) -> list[Problem]:
    """OCI: multi-node runs need shapes with more than two cores. The local shape is exempt."""
    if nodes < 2 or shape.local or shape.ocpus > MAX_CORES_SINGLE_NODE:
        return []
    cores = "1 core" if shape.ocpus == 1 else f"{shape.ocpus:g} cores"
    text = f"{shape.name} has {cores}; a run of several nodes needs more than 2"
    hint = f"write {shape.name}:4:64GiB" if shape.flex else "use a larger shape, or `local`"
    return [Problem("shape", text, hint)]


def check_within(shape: Shape, resources: Resources, path: str) -> list[Problem]:
    """Resources given with a shape must not exceed it. path: of the resources."""
    if shape.local:
        return []
    found = []
    for name, had, shown in (
        ("cpus", shape.cpus, f"{shape.cpus:g} CPUs"),
        ("memory", shape.memory, format_size(shape.memory)),
        ("gpus", shape.gpus, f"{shape.gpus} GPUs" if shape.gpus else "no GPUs"),
    ):
        if (getattr(resources, name) or 0) > had:
            text = f"more than shape {shape.name} has: {shown}"
            hint = "reduce it, use a larger shape, or leave out one of the two"
            found.append(Problem(f"{path}.{name}", text, hint))
    return found


def _with_size(shape: Shape, size: str) -> Shape:
    if not shape.flex:
        text = f"{shape.name} is not flexible, so its size cannot be {size}"
        raise InvalidInput(Problem("shape", text, f"write {shape.name}"))
    ocpus, _, memory = size.partition(":")
    try:
        cores = float(ocpus)
        share = int(shape.memory / shape.ocpus * cores)
        amount = parse_size(memory) if memory else share
    except (ValueError, OverflowError):
        cores = amount = 0
    if not (cores > 0 and amount > 0):
        text = f"{size!r} is not a valid size of {shape.name}"
        raise InvalidInput(Problem("shape", text, f"write {shape.name}:4:64GiB"))
    return replace(shape, ocpus=cores, cpus=cores * shape.cpus / shape.ocpus, memory=amount)


def _read(path: Path) -> Iterator[tuple[str, Shape]]:
    data, lines = load(read_text(path), str(path))
    if not isinstance(data, Mapping):
        text = f"must be a mapping of names to shapes, not {say(data)}"
        raise InvalidInput(Problem("", text, "write NAME: {ocpus: 4, memory: 64GiB}", str(path)))
    problems: list[Problem] = []
    entries = {name: decode(_Entry, entry, problems, name) for name, entry in data.items()}
    if problems:
        raise InvalidInput(*(placed(problem, str(path), lines) for problem in problems))
    for name, entry in entries.items():
        if entry is not None:
            yield name, _shape(name, entry)


def _shape(name: str, entry: _Entry) -> Shape:
    threads = 1 if entry.arm else 2
    return Shape(
        name=name,
        ocpus=entry.ocpus,
        cpus=entry.ocpus * threads if entry.cpus is None else entry.cpus,
        memory=entry.memory,
        gpus=entry.gpus,
        gpu=entry.gpu,
        flex=entry.flex,
        local=entry.local,
        source=entry.source,
    )
