"""Read a container's variables, command and arguments, split into fixed and per-node values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from muster.errors import Problem
from muster.spec.formats.jobset.cluster_read import KUBERNETES_ONLY, ContainerPatch
from muster.spec.formats.jobset.config_objects import ConfigObjects, Kind
from muster.spec.formats.jobset.downward_api import Pod, resource_field
from muster.spec.formats.jobset.kubernetes import (
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    KeyRef,
    ObjectRef,
)
from muster.spec.formats.jobset.references import Value, expand, references
from muster.spec.formats.notes import Notes
from muster.spec.placeholders import literal
from muster.spec.values import is_env_name
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
    #: Variable -> why its value is known only in the pod.
    unknown: Mapping[str, str] = {}

    def value(self, name: str) -> Value | None:
        """The value of a variable; None if there is none. Raises Refused if only the pod has it."""
        return _known(name, self.values, self.unknown)

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
        values = [expand(word, self.value) for word in (*command, *args)]
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


def _known(name: str, values: Mapping[str, Value], unknown: Mapping[str, str]) -> Value | None:
    """Raises Refused."""
    if name in unknown:
        text = f"refers to {name}, whose value only the cluster knows: {unknown[name]}"
        raise Refused(text, f"let a shell replace it in the pod: sh -c '... ${name} ...'")
    return values.get(name)


class Program(Struct, frozen=True):
    """What a node runs: the command, then args, then node_args."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    #: Arguments with placeholders, and those that follow them.
    node_args: tuple[str, ...]


def environment(
    pod: Pod,
    container: Container,
    path: str,
    problems: list[Problem],
    notes: Notes,
    objects: ConfigObjects,
    patch: ContainerPatch,
) -> ContainerEnvironment:
    """The variables of a container, expanded in Kubernetes' order. patch: gets those whose values
    only the cluster knows."""
    of_pod = pod.rj.template.spec.template.spec
    containers = {c.name: c for c in (*of_pod.init_containers, *of_pod.containers)}
    values: dict[str, Value] = {}
    unknown: dict[str, str] = {}
    for number, source in enumerate(container.env_from):
        if why := _object_in_cluster(source, objects):
            notes.add(f"envFrom[{number}]", f"{KUBERNETES_ONLY}: {why}", pod.rj.name)
            patch.keep("envFrom", number)
            continue
        try:
            values |= _of_object(source, pod, notes, objects)
        except Refused as error:
            problems.append(Problem(f"{path}.envFrom[{number}]", error.message, error.hint))
    later = {var.name for var in container.env} | {INDEX}
    for number, var in enumerate(container.env):
        where = f"{path}.env[{number}]"
        if why := _value_in_cluster(var, objects):
            notes.add(f"variable {var.name}", f"{KUBERNETES_ONLY}: {why}", pod.rj.name)
            patch.keep("env", number)
            values.pop(var.name, None)
            unknown[var.name] = why
            continue
        try:
            lookup = partial(_known, values=values, unknown=unknown)
            value = _value(var, lookup, pod, containers, container.name, objects)
        except Refused as error:
            if not any(problem.path.startswith(f"{where}.") for problem in problems):
                problems.append(Problem(where, error.message, error.hint))
            continue
        if value is None:
            continue  # an optional key that is missing: a value of envFrom stays
        unknown.pop(var.name, None)
        values.pop(var.name, None)
        values[var.name] = value
        for name in references(var.value or ""):
            if name not in values and name in later:
                why = f"is not replaced in {var.name}: it is defined later, as in Kubernetes"
                notes.add(f"$({name})", why, pod.rj.name)
    indexed = pod.rj.template.spec.completion_mode == "Indexed"
    if indexed and INDEX not in values:
        values[INDEX] = pod.index
    return ContainerEnvironment(values, _facts(pod), unknown)


def _object_in_cluster(source: EnvFromSource, objects: ConfigObjects) -> str:
    """Why only the cluster knows the variables of an object; "" if it does not."""
    return _one_in_cluster(source.config_map_ref, source.secret_ref, objects)


def _value_in_cluster(var: EnvVar, objects: ConfigObjects) -> str:
    """The same of the value of a variable."""
    source = var.value_from
    if source is None or not objects.in_cluster:
        return ""
    if source == EnvVarSource():
        return "it is read from a file of a volume"
    return _one_in_cluster(source.config_map_key_ref, source.secret_key_ref, objects)


def _one_in_cluster(
    config_map: ObjectRef | KeyRef | None, secret: ObjectRef | KeyRef | None, objects: ConfigObjects
) -> str:
    """The same of a ConfigMap and a Secret."""
    refs: tuple[tuple[Kind, ObjectRef | KeyRef | None], ...]
    refs = (("ConfigMap", config_map), ("Secret", secret))
    for kind, ref in refs:
        if ref is not None and objects.is_in_cluster(kind, ref.name):
            return f"{kind} {ref.name} is not in this file"
    return ""


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
    objects: ConfigObjects,
) -> Value | None:
    """None: it is optional, and missing."""
    source = var.value_from
    if source is None:
        return expand(var.value or "", lookup)
    if var.value:
        raise Refused("has both value and valueFrom", "keep only one of them")
    if source.field_ref is not None:
        return pod.field(source.field_ref.field_path)
    if source.resource_field_ref is not None:
        return resource_field(source.resource_field_ref, containers, own)
    refs: tuple[tuple[Kind, KeyRef | None], ...]
    refs = (("ConfigMap", source.config_map_key_ref), ("Secret", source.secret_key_ref))
    for kind, ref in refs:
        if ref is not None:
            namespace = pod.jobset.metadata.namespace
            return objects.key(kind, ref.name, ref.key, namespace, optional=ref.optional)
    hint = "give it a fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef"
    raise Refused("valueFrom is empty", hint)


def _of_object(
    source: EnvFromSource, pod: Pod, notes: Notes, objects: ConfigObjects
) -> dict[str, Value]:
    """The variables that the keys of a ConfigMap or Secret become. Raises Refused."""
    refs: tuple[tuple[Kind, ObjectRef | None], ...]
    refs = (("ConfigMap", source.config_map_ref), ("Secret", source.secret_ref))
    given = [(kind, ref) for kind, ref in refs if ref is not None]
    if len(given) != 1:
        text = "has both configMapRef and secretRef" if given else "names no object"
        raise Refused(text, "give it a configMapRef or a secretRef")
    ((kind, ref),) = given
    namespace = pod.jobset.metadata.namespace
    found = objects.find(kind, ref.name, namespace, optional=ref.optional)
    if found is None:
        return {}
    # Kubernetes: binaryData of a ConfigMap becomes no variables
    keys = found.keys if found.is_secret else list(found.texts)
    named = {f"{source.prefix}{key}": key for key in keys}
    if skipped := [name for name in named if not is_env_name(name)]:
        why = "cannot name variables: use letters, digits and _, not starting with a digit"
        notes.add(f"{', '.join(skipped)} of {found.kind} {found.name}", why, pod.rj.name)
    return {name: found.variable(key) for name, key in named.items() if is_env_name(name)}
