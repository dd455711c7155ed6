"""Write a group's variables and arguments for a container, with references escaped."""

from __future__ import annotations

import re
from collections.abc import Container as Names
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.spec.formats.jobset.config_write import secret_ref, whole_secret
from muster.spec.formats.jobset.downward_api import JOBSET
from muster.spec.formats.jobset.environment_read import INDEX, VARIABLES
from muster.spec.formats.notes import Loss
from muster.spec.models import NodeGroup
from muster.spec.placeholders import OF_SECRET, joined, pieces, placeholders

#: Placeholder -> the field of the pod (downward API) with its value.
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_FIELDS = {
    "index": _INDEX,
    "replica": f"metadata.labels['{JOBSET}job-index']",
    "group": f"metadata.labels['{JOBSET}replicatedjob-name']",
    "run.restarts": f"metadata.labels['{JOBSET}restart-attempt']",
    "address": "status.podIP",
    "hostname": "metadata.name",
    "run.id": f"metadata.labels['{JOBSET}jobset-uid']",
    "run.replica": f"metadata.labels['{JOBSET}job-global-index']",
}
WHOLE_FIELDS = {f"${{{name}}}": path for name, path in _FIELDS.items()} | {
    "${run.id}-${rank}": "metadata.uid"
}
_DOLLARS = re.compile(r"\$(?=\$)|\$\(([^)]*)\)")
_PAIRS = re.compile(r"\$(?=\$)")
_CAPITALS = re.compile(r"[A-Z_][A-Z0-9_]*")


def escaped(text: str, names: Names[str]) -> str:
    """`text` escaped, so that Kubernetes does not replace anything. names: of known variables."""

    def escape(match: re.Match[str]) -> str:
        name = match[1]
        kept = name is not None and name not in names and not _CAPITALS.fullmatch(name)
        return match[0] if kept else f"${match[0]}"

    closed = text.rfind(")") + 1  # keeps the search linear
    return _DOLLARS.sub(escape, text[:closed]) + _PAIRS.sub("$$", text[closed:])


def composed(parts: Iterable[tuple[str, str | None]], names: Names[str]) -> str:
    """Text and references, so that Kubernetes replaces only these. parts: text, or the name of a
    variable; no two texts in a row. names: of known variables."""
    made = before = ""
    for text, variable in parts:
        if variable is None:
            before = text
        else:
            closed = before.rfind(")") + 1  # behind it, a reference would be part of another one
            made += escaped(before[:closed], names) + before[closed:].replace("$", "$$")
            made += f"$({variable})"
            before = ""
    return made + escaped(before, names)


class WrittenEnvironment(Struct, frozen=True):
    """Variables and arguments of a container."""

    env: list[dict[str, Any]]
    #: For the group's `node_args`.
    args: list[str]
    losses: list[Loss]


def variables(
    group: NodeGroup, path: str, *, jobset: str, only_one: bool, is_job: bool = False
) -> WrittenEnvironment:
    """A container's `env`, and the arguments that refer to it.

    jobset: the JobSet's name, which takes the place of the run's. only_one: whether the group has
    all nodes of the job, so that ranks are indices. is_job: whether the group is written as one
    Job, so that replicas are indices.
    """
    if is_job:
        group = _with_indexes(group, only_one=only_one)
    names = {*group.env, *group.node_env, INDEX}
    variables = {**VARIABLES, **_secret_variables(group)}
    losses: list[Loss] = []
    helpers: dict[str, str] = {}
    own = []
    for name, given in group.node_env.items():
        whole = given in WHOLE_FIELDS
        template, lost = (given, []) if whole else _for_pods(given, jobset, only_one=only_one)
        losses += [Loss(f"{path}.node_env.{name}", why) for why in lost]
        if template is None or (name, template) == (INDEX, "${index}"):
            continue  # Jobs set the index themselves
        if template in WHOLE_FIELDS:
            own.append(_from_field(name, WHOLE_FIELDS[template]))
        elif (secret := whole_secret(template)) is not None:
            own.append(_from_secret(name, secret_ref(jobset, secret)))
        else:
            helpers |= {variables[fact]: fact for _, fact in pieces(template) if fact is not None}
            own.append({"name": name, "value": _compose(template, names, variables)})
    known = {fact: _variable(group, fact, variables) for fact in variables}
    args = []
    for number, given in enumerate(group.node_args or ()):
        template, lost = _for_pods(given, jobset, only_one=only_one)
        losses += [Loss(f"{path}.node_args[{number}]", why) for why in lost]
        if template is not None:
            facts = [fact for _, fact in pieces(template) if fact is not None]
            helpers |= {known[f]: f for f in facts if known[f] == variables[f]}
            args.append(_compose(template, names, known))
    plain = [{"name": n, "value": escaped(v, names)} for n, v in group.env.items()]
    first = [
        _from_field(name, _FIELDS[fact])
        if fact in _FIELDS
        else _from_secret(name, secret_ref(jobset, fact[len(OF_SECRET) :]))
        for name, fact in helpers.items()
    ]
    return WrittenEnvironment([*first, *plain, *own], args, losses)


def _with_indexes(group: NodeGroup, *, only_one: bool) -> NodeGroup:
    """The group with the placeholders of one that has a single replica, of as many nodes."""
    names = {"replica": "index"} | ({"run.replica": "index"} if only_one else {})

    def changed(template: str) -> str:
        return joined(
            ("0", None)
            if name == "index"
            else (f"${{{known}}}", known)
            if (known := names.get(name or ""))
            else (text, name)
            for text, name in pieces(template)
        )

    words = None if group.node_args is None else tuple(map(changed, group.node_args))
    node_env = {name: changed(text) for name, text in group.node_env.items()}
    return replace(group, node_args=words, node_env=node_env)


def _for_pods(template: str, jobset: str, *, only_one: bool) -> tuple[str | None, list[str]]:
    """The template with placeholders that pods have fields for, or None; and what it loses."""
    lost: list[str] = []
    parts: list[tuple[str, str | None]] = []
    for text, name in pieces(template):
        if name == "run.name":
            lost.append("is the JobSet's name there, which is the same for every run")
            parts.append((jobset, None))
        elif name == "attempt":
            lost.append("counts restarts there, but not resumes")
            parts.append(("${run.restarts}", "run.restarts"))
        elif name == "rank" and only_one:
            parts.append(("${index}", "index"))
        elif name is not None and name not in _FIELDS and not name.startswith(OF_SECRET):
            why = f"is left out: pods have no field for {name}, only for replica and index"
            return None, [why]
        else:
            parts.append((text, name))
    return joined(parts), lost[:1]


def _secret_variables(group: NodeGroup) -> dict[str, str]:
    """A helper variable for each placeholder of a secret in the group's settings."""
    templates = (*group.node_env.values(), *(group.node_args or ()))
    facts = (fact for template in templates for fact in placeholders(template))
    return {
        fact: "MUSTER_" + re.sub(r"\W", "_", fact.upper())
        for fact in facts
        if fact.startswith(OF_SECRET)
    }


def _variable(group: NodeGroup, fact: str, variables: Mapping[str, str]) -> str:
    """The variable that holds a placeholder: one of the group's, or a helper variable."""
    known = {template: name for name, template in group.node_env.items()}
    if fact == "index" and INDEX not in {**group.env, **group.node_env}:
        return INDEX
    return known.get(f"${{{fact}}}", variables[fact])


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _from_secret(name: str, ref: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": ref}}


def _compose(template: str, names: Names[str], variables: Mapping[str, str]) -> str:
    parts = ((text, None if fact is None else variables[fact]) for text, fact in pieces(template))
    return composed(parts, names)
