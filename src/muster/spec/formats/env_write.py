"""A group's variables as a container's, and words that Kubernetes leaves as they are."""

from __future__ import annotations

import re
from collections.abc import Container as Names
from typing import Any

from muster.spec.formats.downward import JOBSET
from muster.spec.formats.environment import GIVEN, INDEX
from muster.spec.formats.losses import Loss
from muster.spec.models import NodeGroup
from muster.spec.placeholders import PLACEHOLDER

#: What tells a pod each placeholder.
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_FIELDS = {
    "index": _INDEX,
    "replica": f"metadata.labels['{JOBSET}job-index']",
    "group": f"metadata.labels['{JOBSET}replicatedjob-name']",
    "attempt": f"metadata.labels['{JOBSET}restart-attempt']",
    "address": "status.podIP",
    "hostname": "metadata.name",
    "run.id": f"metadata.labels['{JOBSET}jobset-uid']",
}
_WHOLE = {f"${{{name}}}": path for name, path in _FIELDS.items()} | {
    "${run.id}-${rank}": "metadata.uid"
}
_DOLLARS = re.compile(r"\$(?=\$)|\$\(([^)]*)\)")
_CAPITALS = re.compile(r"[A-Z_][A-Z0-9_]*")


def escaped(text: str, names: Names[str]) -> str:
    """`text` so that Kubernetes makes it what it is. names: the variables it could fill in."""

    def escape(match: re.Match[str]) -> str:
        name = match[1]
        kept = name is not None and name not in names and not _CAPITALS.fullmatch(name)
        return match[0] if kept else f"${match[0]}"

    return _DOLLARS.sub(escape, text)


def variables(
    group: NodeGroup, path: str, *, jobset: str, only_one: bool
) -> tuple[list[dict[str, Any]], list[Loss]]:
    """A container's `env`. jobset: its name, which is that of every run of it. only_one: the
    group's nodes are all nodes, so ranks are indices.
    """
    names = {*group.env, *group.node_env, INDEX}
    losses: list[Loss] = []
    helpers: dict[str, str] = {}
    own = []
    for name, said in group.node_env.items():
        template = said.replace("${run.name}", jobset)
        if template != said:
            why = "is the JobSet's name there, the same for every run"
            losses.append(Loss(f"{path}.node_env.{name}", why))
        if (name, template) == (INDEX, "${index}"):
            continue  # Jobs give it themselves
        if only_one and "${run.id}-${rank}" not in template:
            template = template.replace("${rank}", "${index}")
        if template in _WHOLE:
            own.append(_told(name, _WHOLE[template]))
        elif missing := [f for f in PLACEHOLDER.findall(template) if f not in _FIELDS]:
            why = f"no pod can tell its {missing[0]}; Jobs only know replica and index"
            losses.append(Loss(f"{path}.node_env.{name}", why))
            continue
        else:
            helpers |= {GIVEN[fact]: fact for fact in PLACEHOLDER.findall(template)}
            own.append({"name": name, "value": _composed(template, names)})
    plain = [{"name": n, "value": escaped(v, names)} for n, v in group.env.items()]
    first = [_told(name, _FIELDS[fact]) for name, fact in helpers.items()]
    return [*first, *plain, *own], losses


def _told(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _composed(template: str, names: Names[str]) -> str:
    made, end = "", 0
    for match in PLACEHOLDER.finditer(template):
        made += escaped(template[end : match.start()], names) + f"$({GIVEN[match[1]]})"
        end = match.end()
    return made + escaped(template[end:], names)
