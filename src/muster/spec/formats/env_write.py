"""A group's variables as a container's, and words that Kubernetes leaves as they are."""

from __future__ import annotations

import re
from collections.abc import Container as Names
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.spec.formats.downward import JOBSET
from muster.spec.formats.environment import GIVEN, INDEX
from muster.spec.formats.losses import Loss
from muster.spec.models import NodeGroup
from muster.spec.placeholders import joined, pieces

#: What tells a pod each placeholder.
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
_WHOLE = {f"${{{name}}}": path for name, path in _FIELDS.items()} | {
    "${run.id}-${rank}": "metadata.uid"
}
_DOLLARS = re.compile(r"\$(?=\$)|\$\(([^)]*)\)")
_PAIRS = re.compile(r"\$(?=\$)")
_CAPITALS = re.compile(r"[A-Z_][A-Z0-9_]*")


def escaped(text: str, names: Names[str]) -> str:
    """`text` so that Kubernetes makes it what it is. names: the variables it could fill in."""

    def escape(match: re.Match[str]) -> str:
        name = match[1]
        kept = name is not None and name not in names and not _CAPITALS.fullmatch(name)
        return match[0] if kept else f"${match[0]}"

    closed = text.rfind(")") + 1  # where there is none, one is not looked for from each `$(` on
    return _DOLLARS.sub(escape, text[:closed]) + _PAIRS.sub("$$", text[closed:])


class Written(Struct, frozen=True):
    """env: of a container. args: what its `node_args` are there."""

    env: list[dict[str, Any]]
    args: list[str]
    losses: list[Loss]


def variables(group: NodeGroup, path: str, *, jobset: str, only_one: bool) -> Written:
    """A container's `env`, and the arguments that refer to it. jobset: its name, which is that of
    every run of it. only_one: the group's nodes are all nodes, so ranks are indices.
    """
    names = {*group.env, *group.node_env, INDEX}
    losses: list[Loss] = []
    helpers: dict[str, str] = {}
    own = []
    for name, said in group.node_env.items():
        whole = said in _WHOLE
        template, lost = (said, []) if whole else _there(said, jobset, only_one=only_one)
        losses += [Loss(f"{path}.node_env.{name}", why) for why in lost]
        if template is None or (name, template) == (INDEX, "${index}"):
            continue  # Jobs give the index themselves
        if template in _WHOLE:
            own.append(_told(name, _WHOLE[template]))
        else:
            helpers |= {GIVEN[fact]: fact for _, fact in pieces(template) if fact is not None}
            own.append({"name": name, "value": _composed(template, names, GIVEN)})
    known = {fact: _variable(group, fact) for fact in GIVEN}
    args = []
    for number, said in enumerate(group.node_args or ()):
        template, lost = _there(said, jobset, only_one=only_one)
        losses += [Loss(f"{path}.node_args[{number}]", why) for why in lost]
        if template is not None:
            facts = [fact for _, fact in pieces(template) if fact is not None]
            helpers |= {known[f]: f for f in facts if known[f] == GIVEN[f]}
            args.append(_composed(template, names, known))
    plain = [{"name": n, "value": escaped(v, names)} for n, v in group.env.items()]
    first = [_told(name, _FIELDS[fact]) for name, fact in helpers.items()]
    return Written([*first, *plain, *own], args, losses)


def _there(template: str, jobset: str, *, only_one: bool) -> tuple[str | None, list[str]]:
    """A template of what pods can tell, None if they cannot; and what of it is not the same."""
    lost: list[str] = []
    parts: list[tuple[str, str | None]] = []
    for text, name in pieces(template):
        if name == "run.name":
            lost.append("is the JobSet's name there, the same for every run")
            parts.append((jobset, None))
        elif name == "attempt":
            lost.append("counts restarts there, not that it was resumed")
            parts.append(("${run.restarts}", "run.restarts"))
        elif name == "rank" and only_one:
            parts.append(("${index}", "index"))
        elif name is not None and name not in _FIELDS:
            why = f"is left out: no pod can tell its {name}; Jobs only know replica and index"
            return None, [why]
        else:
            parts.append((text, name))
    return joined(parts), lost[:1]


def _variable(group: NodeGroup, fact: str) -> str:
    """What a word can refer to for a fact: a variable that is there, or one made for that."""
    told = {template: name for name, template in group.node_env.items()}
    if fact == "index" and INDEX not in {**group.env, **group.node_env}:
        return INDEX
    return told.get(f"${{{fact}}}", GIVEN[fact])


def _told(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _composed(template: str, names: Names[str], variables: Mapping[str, str]) -> str:
    made = ""
    for text, fact in pieces(template):
        if fact is None:
            made += escaped(text, names)
        else:
            # a dollar sign right before would take the reference for text
            made += "$" * made.endswith("$") + f"$({variables[fact]})"
    return made
