"""ADS: shapeName and shapeConfigDetails as the shape of a spec."""

from __future__ import annotations

from muster.errors import InvalidInput
from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.ads.model import InfrastructureSpec

_PLACE = "spec.infrastructure.spec"
SHAPE = f"{_PLACE}.shapeName"


def shape_of(machines: InfrastructureSpec, conversion: Conversion) -> str | None:
    """`NAME` or `NAME:OCPUS:MEMORY`; None if no shape is given."""
    name, size = machines.shape_name, machines.shape_config_details
    if name is None:
        if size is not None:
            conversion.notes.add("shapeConfigDetails", "is not used: shapeName is missing")
        return None
    if size is None or size.ocpus is None is size.memory_in_gbs:
        return name
    if size.ocpus is None:
        path = f"{_PLACE}.shapeConfigDetails.ocpus"
        conversion.refuse(path, "is missing", "give both ocpus and memoryInGBs")
        return name
    memory = "" if size.memory_in_gbs is None else f":{size.memory_in_gbs:g}GiB"
    return f"{name}:{size.ocpus:g}{memory}"


def multinode_problem(name: str, nodes: int) -> str:
    """Why OCI cannot run several nodes of a shape in one run; "" if it can, or if the catalogue
    lacks the shape."""
    from muster.spec.shapes import check_multinode, find_shape

    try:
        return "".join(problem.message for problem in check_multinode(find_shape(name), nodes))
    except InvalidInput:
        return ""
