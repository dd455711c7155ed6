"""Lines about a framework's ports, services and checks on the nodes of a group."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from muster.frameworks.base import Answers, Check, Joined, Port, Service, Succeeds
from muster.plan.model import GroupPlan, NodePlan, RunPlan
from muster.plan.template import Facts
from muster.secrets import HIDDEN
from muster.spec.placeholders import OF_PARAMETER, OF_SECRET, placeholders
from muster.spec.quantities import format_duration

#: Values known only on the node -> the text shown instead.
_ON_NODE = {
    "folder": "(a folder of the node)",
    "tmp": "$TMPDIR",
    "run.tls": "(the run's certificates)",
    "run.token": "(the run's token)",
    "cpus": "(the CPUs it may use)",
    "python": "python",
}
_MAX_NAMES = 5


class TemplateText:
    """Fills templates for a node; values known only later are shown as text.

    memory: bytes that the node should use. parameters: those of its replica, secrets hidden.
    """

    def __init__(
        self, plan: RunPlan, node: NodePlan, memory: int, parameters: Mapping[str, str]
    ) -> None:
        # a marker is one word, which shlex.join does not quote; the text it stands for may need it
        self._texts: dict[str, str] = {}
        ports = {name: self._mark(text) for name, text in _ports(plan)}
        values = {name: self._mark(text) for name, text in _ON_NODE.items()}
        values["run.restarts"] = "0"
        values["memory"] = str(memory)
        values |= {f"{OF_PARAMETER}{name}": value for name, value in parameters.items()}
        self._values = values
        self._facts = Facts(plan, node, 0, 0, ports, values)

    def _mark(self, text: str) -> str:
        marker = f"Muster{len(self._texts)}Marker"
        self._texts[marker] = text
        return marker

    def text(self, template: str) -> str:
        """A template with every placeholder filled."""
        return self._without_markers(self._fill(template))

    def command(self, templates: Iterable[str], literal: Iterable[str] = ()) -> str:
        """A command line as one would type it; `literal` words are not templates and come last."""
        words = [self._fill(word) for word in templates]
        return self._without_markers(shlex.join([*words, *literal]))

    def _fill(self, template: str) -> str:
        if "${secret." in template:  # those of the project have no values before the start
            secrets = (name for name in placeholders(template) if name.startswith(OF_SECRET))
            self._values |= dict.fromkeys(secrets, HIDDEN)
        return self._facts.fill(template)

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
    """Describe each port and the nodes that listen on it."""
    for port in plan.ports:
        where = "every node" if port.each else plan.nodes[0].fqdn
        row = f", {port.count} in a row" if port.count > 1 else ""
        number = _number(plan, port).strip("()")
        yield f"{port.name}: {number} on {where}{row}"


def services(group: GroupPlan, shown: TemplateText) -> Iterator[str]:
    """Describe the services that run before the program, or instead of it."""
    role = group.role
    if role.services:
        kind = "starts first, in this order" if role.program else "serves the other nodes with"
        yield f"{kind}:"
        for service in role.services:
            yield f"  {service.name}: {shown.command(service.command)}"
            yield from (f"    {line}" for line in _about(service, shown))
    if role.gather is not None:
        limit = format_duration(group.services_timeout)
        yield f"waits until {_check(role.gather, shown)}; at most {limit}"


def _about(service: Service, shown: TemplateText) -> Iterator[str]:
    if service.after is not None:
        yield f"starts when {_check(service.after, shown)}"
    if service.ready is not None:
        yield f"is ready when {_check(service.ready, shown)}"
    if service.output == "own":
        yield f"output: `muster logs RUN --service {service.name}`"


def _check(check: Check, shown: TemplateText) -> str:
    match check:
        case Answers(address, port, path):
            http = "" if path is None else "http://"
            return f"{http}{shown.text(f'{address}:{port}')}{path or ''} answers"
        case Joined():
            names = [shown.text(name) for _, name in check.expected]
            more = ", ..." if len(names) > _MAX_NAMES else ""
            what = f"{len(names)} {check.what}s have" if len(names) > 1 else f"1 {check.what} has"
            return f"{what} joined: {', '.join(names[:_MAX_NAMES])}{more}"
        case Succeeds():
            words = (*check.command, *(name for _, name in check.expected))
            return check.what or f"`{shown.command(words)}` succeeds"
