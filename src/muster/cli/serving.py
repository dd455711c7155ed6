"""What a framework runs on a group's nodes, in words, for `muster explain`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from muster.engines.local.machine import share_of_memory, this_machine
from muster.frameworks.base import Answers, Check, Joined, Port, Service, Succeeds
from muster.plan.model import GroupPlan, RunPlan
from muster.plan.template import Facts
from muster.spec.quantities import format_duration

#: What is known on the node alone, as people would call it.
_PLACES = {
    "folder": "(a folder of the node's)",
    "tmp": "$TMPDIR",
    "run.tls": "(the run's certificates)",
    "run.token": "(the run's token)",
    "cpus": "(the CPUs it may use)",
    "python": "python",
}
_MOST_NAMES = 5


class Shown:
    """What the first node of a group is told, as far as it is known now."""

    def __init__(self, plan: RunPlan, group: GroupPlan) -> None:
        # a marker is a plain word, which no shell wants quoted; its text may not be
        self._texts: dict[str, str] = {}
        ports = {name: self._mark(text) for name, text in _ports(plan)}
        places = {name: self._mark(text) for name, text in _PLACES.items()}
        places["run.restarts"] = "0"
        places["memory"] = str(share_of_memory(plan, group, this_machine()))
        self._facts = Facts(plan, plan.nodes[group.first_rank], 0, 0, ports, places)

    def _mark(self, text: str) -> str:
        marker = f"Muster{len(self._texts)}Marker"
        self._texts[marker] = text
        return marker

    def text(self, template: str) -> str:
        """A template with every gap filled."""
        return self._without_markers(self._facts.fill(template))

    def command(self, templates: Iterable[str], literal: Iterable[str] = ()) -> str:
        """Words as one would type them; `literal` ones come last."""
        words = [self._facts.fill(word) for word in templates]
        return self._without_markers(shlex.join([*words, *literal]))

    def _without_markers(self, text: str) -> str:
        for marker, shown in self._texts.items():
            text = text.replace(marker, shown)
        return text


def _ports(plan: RunPlan) -> Iterator[tuple[str, str]]:
    for port in plan.ports:
        text = _number(plan, port)
        yield port.name, text
        if port.each:
            for node in plan.nodes:
                yield f"{port.name}.{node.rank}", text


def _number(plan: RunPlan, port: Port) -> str:
    if port.can_be_kept(shared=not plan.own_interfaces):
        return str(port.number)
    usual = port.fixed or port.preferred
    return f"({port.number}, or a free port)" if usual else "(a free port)"


def ports(plan: RunPlan) -> Iterator[str]:
    """Who listens where."""
    for port in plan.ports:
        where = "every node" if port.each else plan.nodes[0].fqdn
        row = f", {port.count} in a row" if port.count > 1 else ""
        yield f"{port.name}: {_number(plan, port)} on {where}{row}"


def around(group: GroupPlan, shown: Shown) -> Iterator[str]:
    """What runs before the program, or in its place."""
    role = group.role
    if role.services:
        kind = "starts first, in this order" if role.program else "serves the others, with"
        yield f"{kind}:"
        for service in role.services:
            yield f"  {service.name}: {shown.command(service.command)}"
            yield from (f"    {line}" for line in _about(service, shown))
    if role.gather is not None:
        most = format_duration(group.ready_timeout)
        yield f"waits until {_check(role.gather, shown)}; {most} at most"


def _about(service: Service, shown: Shown) -> Iterator[str]:
    if service.after is not None:
        yield f"not before {_check(service.after, shown)}"
    if service.ready is not None:
        yield f"is up when {_check(service.ready, shown)}"
    if service.output == "own":
        yield f"writes what `muster logs RUN --service {service.name}` shows"


def _check(check: Check, shown: Shown) -> str:
    match check:
        case Answers(address, port, path):
            http = "" if path is None else "http://"
            return f"{http}{shown.text(f'{address}:{port}')}{path or ''} answers"
        case Joined():
            names = [shown.text(name) for _, name in check.expected]
            more = ", ..." if len(names) > _MOST_NAMES else ""
            what = f"{len(names)} {check.what}s have" if len(names) > 1 else f"1 {check.what} has"
            return f"{what} joined: {', '.join(names[:_MOST_NAMES])}{more}"
        case Succeeds():
            words = (*check.command, *(name for _, name in check.expected))
            return check.what or f"`{shown.command(words)}` succeeds"
