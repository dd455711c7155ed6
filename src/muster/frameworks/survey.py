"""Not a framework of anybody's program: nodes that look whether another framework's cluster could
come together (`muster check`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.frameworks.base import Cluster, Framework, Port, Setup
from muster.frameworks.registry import get_framework, read_options
from muster.node.needs import NEEDS
from muster.spec.values import Options


class SurveyOptions(Struct, frozen=True, kw_only=True):
    """What is looked for.

    framework: Whose ports are tried.
    options: What that is told.
    installed: Whether what it needs has to be installed already: not if it comes with the job.
    """

    framework: str
    options: Options = {}
    installed: bool = True


class Survey(Framework):
    name = "survey"
    summary = "looks whether a cluster could come together"
    Options = SurveyOptions

    def has_main(self, options: SurveyOptions) -> bool:
        other = get_framework(options.framework)
        return other.has_main(read_options(other, options.options))

    def setup(self, cluster: Cluster) -> Setup:
        """The other framework's ports, and a program that tries them instead of its services."""
        asked: SurveyOptions = cluster.options
        other = get_framework(asked.framework)
        options = read_options(other, asked.options)
        setup = other.setup(replace(cluster, options=options))
        ports = (*setup.ports, *_sampled(other, options))
        ranks = range(sum(role.size for role in cluster.roles))
        told: dict[str, Any] = {}
        for port in ports:
            on = ranks if port.each else range(1)
            told[port.name] = {
                str(rank): f"${{port.{port.name}{f'.{rank}' if port.each else ''}}}" for rank in on
            }
        return Setup(
            env={"MUSTER_SURVEY": json.dumps(told), **_needs(asked)},
            ports=ports,
            network=setup.network,
            network_reason=setup.network_reason,
        )


#: Stands for the ports that nodes choose by themselves, where these are theirs.
_ANY = 50505


def _sampled(framework: Framework, options: Struct) -> Iterator[Port]:
    """Of ports that nodes choose: the ends and the middle of each range, and one of any."""
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


def _needs(asked: SurveyOptions) -> dict[str, str]:
    looks = asked.installed and asked.framework in NEEDS
    return {"MUSTER_SURVEY_NEEDS": asked.framework} if looks else {}
