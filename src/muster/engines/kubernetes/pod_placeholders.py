"""Placeholders in what Kubernetes fills itself: settings of the other containers of a pod, and
paths in volumes. Pure.

All pods of a Job have one template, and differ only in what Kubernetes knows of them. So a
placeholder is known if it is the same in all of them, or is a text around the index of the pod or
of its Job. Containers refer to these as `$(NAME)`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from muster.engines.kubernetes.layout import JobLayout, layout
from muster.engines.kubernetes.names import JOB_INDEX, POD_INDEX
from muster.plan.model import ExtraContainerPlan, GroupPlan, RunPlan
from muster.plan.template import Facts
from muster.spec.formats.jobset.environment_write import composed
from muster.spec.placeholders import pieces, placeholders

#: The variables that others refer to -> the fields of the pod that they have. Those of Jobs are set
#: by their controller as well, but only behind the variables of the manifest.
_INDEX, _JOB, _ADDRESS = "MUSTER_POD_INDEX", "MUSTER_JOB_INDEX", "MUSTER_POD_IP"
_FIELDS = {
    _INDEX: f"metadata.annotations['{POD_INDEX}']",
    _JOB: f"metadata.labels['{JOB_INDEX}']",
    _ADDRESS: "status.podIP",
}
#: Placeholders that are the same in all starts of a program in a pod.
_OF_NODE = ("rank", "group", "index", "replica", "hostname", "run.name", "run.id", "run.replica")
#: Those of them whose values change when another node of an array gets the pod.
_OF_REPLICA = frozenset({"rank", "replica", "hostname", "run.replica"})
#: Text, or the name of a variable.
_Part = tuple[str, str | None]


class UnknownPlaceholderError(LookupError):
    """A placeholder is not known in pods; the argument is its name."""


class PodPlaceholders:
    """What placeholders are in the pods of a replicated Job. job: the index of the only Job that
    has the template; None: all Jobs have it."""

    def __init__(self, plan: RunPlan, job: JobLayout, only: int | None = None) -> None:
        self._plan, self._group = plan, plan.group(job.group)
        first, last = (0, job.jobs) if only is None else (only, only + 1)
        self._slots = job.slots[first * job.nodes : last * job.nodes]
        self._numbers = {
            _INDEX: [number % job.nodes for number in range(len(self._slots))],
            _JOB: [first + number // job.nodes for number in range(len(self._slots))],
        }
        self._known: dict[str, Sequence[_Part]] = {"address": [("", _ADDRESS)]}

    def written(self, template: str, names: Collection[str] = ()) -> str:
        """A template as Kubernetes fills it. names: of the variables of its container. Raises
        UnknownPlaceholderError."""
        return composed(self._parts(template), names)

    def variables(self, templates: Iterable[str]) -> list[dict[str, Any]]:
        """The variables to which these refer. Raises UnknownPlaceholderError."""
        names = {name for text in templates for _, name in self._parts(text) if name is not None}
        return [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in _FIELDS.items()
            if name in names
        ]

    def unknown(self, template: str) -> Iterator[str]:
        """The placeholders in a template that are not known."""
        for name in placeholders(template):
            try:
                self._of(name)
            except UnknownPlaceholderError:
                yield name

    def _parts(self, template: str) -> list[_Part]:
        """The template filled. Texts that follow each other are one."""
        found: list[_Part] = []
        for text, name in pieces(template):
            for part in [(text, None)] if name is None else self._of(name):
                if part[1] is None and found and found[-1][1] is None:
                    found[-1] = found[-1][0] + part[0], None
                else:
                    found.append(part)
        return found

    def _of(self, name: str) -> Sequence[_Part]:
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Sequence[_Part]:
        if name not in _OF_NODE or (self._group.is_array and name in _OF_REPLICA):
            raise UnknownPlaceholderError(name)
        nodes = [self._plan.nodes[slot] for slot in self._slots]
        texts = [Facts(self._plan, node, 0, 0, {}).fill(f"${{{name}}}") for node in nodes]
        if all(text == texts[0] for text in texts):
            return [(texts[0], None)]
        for variable, numbers in self._numbers.items():
            if (around := _around(texts, numbers)) is not None:
                return [(around[0], None), ("", variable), (around[1], None)]
        raise UnknownPlaceholderError(name)


def _around(texts: Sequence[str], numbers: Sequence[int]) -> tuple[str, str] | None:
    """What is before and behind the number in each of these texts; None if that is not the same."""
    first, number = texts[0], str(numbers[0])
    for start in range(len(first)):
        before, after = first[:start], first[start + len(number) :]
        if all(text == f"{before}{n}{after}" for text, n in zip(texts, numbers, strict=True)):
            return before, after
    return None


# --- of a group


class Template(Struct, frozen=True):
    """A text of the job that Kubernetes fills."""

    #: Its path below the group, in the normal form of the spec.
    path: str
    text: str


def templates_of(group: GroupPlan) -> Iterator[Template]:
    """Those of a group."""
    shared = {mount.source for one in group.extra_containers for mount in one.mounts}
    for number, one in enumerate(group.extra_containers):
        for path, text in _templates_in(one):
            yield Template(f"extra_containers[{number}].{path}", text)
    for number, mount in enumerate(group.mounts):
        is_volume = mount.kind in ("nfs", "volume") or mount.source in shared
        if is_volume and mount.sub_path is not None:
            yield Template(f"mounts[{number}].sub_path", mount.sub_path)


def _templates_in(one: ExtraContainerPlan) -> Iterator[tuple[str, str]]:
    yield from ((f"node_args[{n}]", text) for n, text in enumerate(one.node_args))
    yield from ((f"node_env.{name}", text) for name, text in one.node_env.items())
    for number, mount in enumerate(one.mounts):
        if mount.sub_path is not None:
            yield f"mounts[{number}].sub_path", mount.sub_path


def allocatable(plan: RunPlan, slots: Sequence[int]) -> list[list[int]]:
    """Slots in parts, each of which can be an allocation of its own: in that of some nodes of a
    group, it may not be known which one a pod is."""
    alone: list[int] = []
    for job in layout(plan, slots):
        texts = [one.text for one in templates_of(plan.group(job.group))]
        if any(any(PodPlaceholders(plan, job).unknown(text)) for text in texts):
            alone += job.slots
    together = [slot for slot in slots if slot not in alone]
    return [*([together] if together else []), *([slot] for slot in alone)]
