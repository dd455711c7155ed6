"""Read a container's variables, command and arguments, split into fixed and per-node values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from muster.errors import Problem
from muster.spec.formats.jobset.downward_api import Pod, resource_field
from muster.spec.formats.jobset.kubernetes import Container, EnvVar
from muster.spec.formats.jobset.references import Value, expand, references
from muster.spec.formats.notes import Notes
from muster.spec.placeholders import literal
from muster.spec.wording import Refused, short

#: Kubernetes: the last variable of the pods of Indexed Jobs.
INDEX = "JOB_COMPLETION_INDEX"
#: Placeholder -> the variable that holds it. Muster sets all but two on every node, so that a
#: manifest need not set them again.
VARIABLES = {
    "index": "MUSTER_INDEX",
    "replica": "MUSTER_REPLICA",
    "group": "MUSTER_GROUP",
    "run.restarts": "MUSTER_RUN_RESTARTS",
    "address": "MUSTER_NODE_ADDRESS",
    "hostname": "MUSTER_HOSTNAME",
    "run.id": "MUSTER_RUN_ID",
    "run.replica": "MUSTER_RUN_REPLICA",
}
_NOT_SET_BY_MUSTER = ("hostname", "run.replica")
_SET_BY_MUSTER = {
    (name, f"${{{fact}}}") for fact, name in VARIABLES.items() if fact not in _NOT_SET_BY_MUSTER
}


class ContainerEnvironment(Struct, frozen=True):
    """A container's variables."""

    values: Mapping[str, Value]
    #: Placeholders that are the same on all nodes of the group, with their values.
    facts: Mapping[str, str]

    @property
    def env(self) -> dict[str, str]:
        """The variables that are the same on all nodes."""
        return {name: v.text for name, v in self.values.items() if not v.per_node}

    @property
    def node_env(self) -> dict[str, str]:
        """The variables with placeholders, without those that Muster sets on every node."""
        varying = {name: v.text for name, v in self.values.items() if v.per_node}
        return {name: text for name, text in varying.items() if (name, text) not in _SET_BY_MUSTER}

    def expand_command(self, command: Sequence[str], args: Sequence[str]) -> Program:
        """A command and its arguments with their references replaced. Raises Refused if the
        program itself differs between nodes."""
        values = [expand(word, self.values.get) for word in (*command, *args)]
        fixed = [value.fixed(self.facts) for value in values]
        same = next((n for n, text in enumerate(fixed) if text is None), len(fixed))
        if command and same == 0:
            text = f"{short(command[0])} differs from pod to pod, and a group has one program"
            raise Refused(text, "let a shell find it: sh -c 'exec ...'")
        words = [text for text in fixed[:same] if text is not None]
        own = [
            value.template if text is None else literal(text)
            for value, text in zip(values[same:], fixed[same:], strict=True)
        ]
        return Program(tuple(words[: len(command)]), tuple(words[len(command) :]), tuple(own))


class Program(Struct, frozen=True):
    """What a node runs: the command, then args, then node_args."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    #: Arguments with placeholders, and those that follow them.
    node_args: tuple[str, ...]


def environment(
    pod: Pod, container: Container, path: str, problems: list[Problem], notes: Notes
) -> ContainerEnvironment:
    """The variables of a container, expanded in Kubernetes' order."""
    containers = {c.name: c for c in pod.rj.template.spec.template.spec.containers}
    values: dict[str, Value] = {}
    later = {var.name for var in container.env} | {INDEX}
    for number, var in enumerate(container.env):
        where = f"{path}.env[{number}]"
        try:
            value = _value(var, values.get, pod, containers, container.name)
        except Refused as error:
            if not any(problem.path.startswith(f"{where}.") for problem in problems):
                problems.append(Problem(where, error.message, error.hint))
            continue
        values.pop(var.name, None)
        values[var.name] = value
        for name in references(var.value or ""):
            if name not in values and name in later:
                why = f"is not replaced in {var.name}: it is defined later, as in Kubernetes"
                notes.add(f"$({name})", why, pod.rj.name)
    indexed = pod.rj.template.spec.completion_mode == "Indexed"
    if indexed and INDEX not in values:
        values[INDEX] = pod.index
    return ContainerEnvironment(values, _facts(pod))


def _facts(pod: Pod) -> dict[str, str]:
    if pod.job is not None:
        return {"index": "0"} | ({"group": pod.rj.name} if pod.named else {})
    facts = {"group": pod.rj.name}
    if pod.rj.replicas == 1:
        facts["replica"] = "0"
    if (pod.rj.template.spec.completions or 1) == 1:
        facts["index"] = "0"
    return facts


def _value(
    var: EnvVar,
    lookup: Callable[[str], Value | None],
    pod: Pod,
    containers: Mapping[str, Container],
    own: str,
) -> Value:
    source = var.value_from
    if source is None:
        return expand(var.value or "", lookup)
    if var.value:
        raise Refused("has both value and valueFrom", "keep only one of them")
    if source.field_ref is not None:
        return pod.field(source.field_ref.field_path)
    if source.resource_field_ref is not None:
        return resource_field(source.resource_field_ref, containers, own)
    raise Refused("valueFrom is empty", "give it a fieldRef or a resourceFieldRef")
