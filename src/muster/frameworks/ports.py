"""Ports set by users: a number in a variable, a range in an option."""

from __future__ import annotations

import re
from itertools import product
from typing import Annotated, Any

from msgspec import Meta

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Port
from muster.spec.wording import Refused, short

#: Set in every cluster from an ADS file.
_ADS = "OCI__CLUSTER_TYPE"


def port_of(cluster: Cluster, name: str, number: int, *variables: str, each: bool = False) -> Port:
    """The port `name`: the number in the first of `variables` that the job's `env` sets, or the
    usual number. Programs for ADS may rely on the usual number, so clusters from ADS files get it
    if it is free.

    Raises InvalidInput if the variable's value is not a port.
    """
    for variable, role in product(variables, cluster.roles):
        text = role.env.get(variable)
        if text is None:
            continue
        if not (text.isdigit() and 0 < int(text) < 65536):
            raise InvalidInput(
                Problem(
                    f"node_groups[{role.name}].env.{variable}",
                    f"{text!r} is not a port",
                    "give a number from 1 to 65535, or leave it out to use a free port",
                )
            )
        return Port(name, int(text), fixed=True, each=each, variable=f"env.{variable}")
    ads = any(_ADS in role.env for role in cluster.roles)
    return Port(name, number, each=each, preferred=ads)


def port_option(name: str, usual: int, given: int | None, option: str) -> Port:
    """The port `name`: the number given in the option, or the usual number."""
    variable = f"framework_options.{option}"
    return Port(name, given or usual, fixed=given is not None, variable=variable)


def _range(value: Any) -> Any:
    match = re.fullmatch(r"(\d+)\s*[-:]\s*(\d+)", str(value).strip())
    if match is None or not 0 < int(match[1]) <= int(match[2]) < 65536:
        raise Refused(f"{short(value)} is not a range of ports", "write 8700-8800")
    return f"{int(match[1])}:{int(match[2])}"


PortNumber = Annotated[int, Meta(ge=1, le=65535)]
#: 8700-8800 or 8700:8800; normalized to the latter.
PortRange = Annotated[
    str, Meta(extra={"parse": _range}, extra_json_schema={"type": ["string", "integer"]})
]
