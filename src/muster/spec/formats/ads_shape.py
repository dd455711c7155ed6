"""ADS: shapeName and shapeConfigDetails, as a shape of a spec."""

from __future__ import annotations

from muster.errors import InvalidInput, Problem
from muster.spec.formats.ads_model import InfrastructureSpec
from muster.spec.formats.notes import Notes

_PLACE = "spec.infrastructure.spec"
SHAPE = f"{_PLACE}.shapeName"


def shape_of(machines: InfrastructureSpec, notes: Notes, problems: list[Problem]) -> str | None:
    """`NAME`, or `NAME:OCPUS:MEMORY`; None if none is named. problems: extended."""
    name, size = machines.shape_name, machines.shape_config_details
    if name is None:
        if size is not None:
            notes.add("shapeConfigDetails", "is not used: shapeName is missing")
        return None
    if size is None or size.ocpus is None is size.memory_in_gbs:
        return name
    if size.ocpus is None:
        text, hint = "is missing", "memoryInGBs cannot stand alone"
        problems.append(Problem(f"{_PLACE}.shapeConfigDetails.ocpus", text, hint))
        return name
    memory = "" if size.memory_in_gbs is None else f":{size.memory_in_gbs:g}GiB"
    return f"{name}:{size.ocpus:g}{memory}"


def too_small(name: str, nodes: int) -> str:
    """Why so many nodes of one run cannot have a shape of OCI's; "" if they can, or nobody knows
    the shape."""
    from muster.spec.shapes import check_multinode, find_shape

    try:
        return "".join(problem.message for problem in check_multinode(find_shape(name), nodes))
    except InvalidInput:
        return ""
