"""The framework of `muster check`: its nodes test whether another framework could run on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.frameworks.base import Cluster, Framework, Port, Setup
from muster.frameworks.packages import PACKAGES
from muster.frameworks.registry import get_framework, read_options
from muster.node.requirements import REQUIREMENTS
from muster.spec.values import Options


class PreflightOptions(Struct, frozen=True, kw_only=True):
    """What is tested."""

    framework: str
    """The framework whose ports are tried."""
    options: Options = {}
    """Its `framework_options`."""
    installed: bool = True
    """Whether its packages must be installed already. False if the job brings them."""


class Preflight(Framework):
    name = "preflight"
    summary = "tests whether a cluster could form"
    Options = PreflightOptions

    def has_main(self, options: PreflightOptions) -> bool:
        other = get_framework(options.framework)
        return other.has_main(read_options(other, options.options))

    def setup(self, cluster: Cluster) -> Setup:
        """The other framework's ports, and a program that tries them instead of its services."""
        tested: PreflightOptions = cluster.options
        other = get_framework(tested.framework)
        options = read_options(other, tested.options)
        setup = other.setup(replace(cluster, options=options))
        ports = (*setup.ports, *_sample_ports(other, options))
        ranks = range(sum(role.size for role in cluster.roles))
        numbers: dict[str, Any] = {}
        for port in ports:
            on = ranks if port.each else range(1)
            numbers[port.name] = {
                str(rank): f"${{port.{port.name}{f'.{rank}' if port.each else ''}}}" for rank in on
            }
        return Setup(
            env={"MUSTER_PREFLIGHT": json.dumps(numbers), **_packages(tested)},
            ports=ports,
            network=setup.network,
            network_reason=setup.network_reason,
        )


#: Tried as an example of the ports that nodes choose themselves.
_ANY = 50505


def _sample_ports(framework: Framework, options: Struct) -> Iterator[Port]:
    """Samples of the ports that nodes choose: the ends and middle of each range, and one of any."""
    chosen = any(need.ports == "any" for need in framework.needs)
    for name in options.__struct_fields__:
        if not name.endswith("_ports"):
            continue
        text = getattr(options, name)
        if text is None:
            chosen = True
            continue
        first, last = (int(number) for number in text.split(":"))
        for number in sorted({first, (first + last) // 2, last}):
            at = f"framework_options.{name}"
            yield Port(f"{name}_{number}", number, fixed=True, each=True, own=True, variable=at)
    if chosen:
        yield Port("any", _ANY, each=True)


def _packages(tested: PreflightOptions) -> dict[str, str]:
    if not tested.installed:
        return {}
    if tested.framework in REQUIREMENTS:
        return {"MUSTER_PREFLIGHT_FRAMEWORK": tested.framework}
    needed = PACKAGES.get(tested.framework)
    if needed is None:
        return {}
    return {"MUSTER_PREFLIGHT_PACKAGES": json.dumps(needed.modules)}
