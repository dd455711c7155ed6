"""Map the names of replicated Jobs to those of node groups, and back.

Names stay the same where both formats allow them. JobSet also allows names that start with a digit,
longer names and empty ones; groups also allow capitals and underscores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.spec.formats.jobset.model import JobSet
from muster.spec.formats.notes import Notes
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.placeholders import as_label, joined, pieces
from muster.spec.policies import FailureRule
from muster.spec.values import is_group_name


def renamed(jobset: JobSet) -> dict[str, str]:
    """Replicated Job -> its group, for those whose names differ."""
    names = [rj.name for rj in jobset.spec.replicated_jobs]
    taken = {name for name in names if is_group_name(name)}
    made: dict[str, str] = {}
    for number, name in enumerate(names):
        if name not in taken:
            made[name] = next(f for f in _free(number) if f not in taken)
            taken.add(made[name])
    return made


def _free(number: int) -> Iterable[str]:
    yield f"group-{number}"
    while True:
        number += 1
        yield f"group-{number}"


def with_groups(spec: JobSpec, names: Mapping[str, str], notes: Notes) -> JobSpec:
    """The job with valid group names. names: see `renamed`."""
    for name, group in names.items():
        why = f"is node group {group}: group names have up to 40 characters and start with a letter"
        notes.add(f"replicated Job {name}" if name else "the replicated Job without a name", why)
    return rename_groups(spec, names)


def as_kubernetes_names(spec: JobSpec) -> tuple[JobSpec, dict[str, str]]:
    """The job with group names that Kubernetes allows, and the old name of each new one. Values
    with ${group} keep the old name."""
    names = {one.name: as_label(one.name) for one in spec.node_groups}
    names = {name: label for name, label in names.items() if name != label}
    if not names:
        return spec, {}
    groups = tuple(
        _with_literal_group(group) if group.name in names else group for group in spec.node_groups
    )
    made = rename_groups(replace(spec, node_groups=groups), names)
    return made, {label: name for name, label in names.items()}


def _with_literal_group(group: NodeGroup) -> NodeGroup:
    def filled(template: str) -> str:
        return joined(
            (group.name, None) if name == "group" else (text, name)
            for text, name in pieces(template)
        )

    words = None if group.node_args is None else tuple(map(filled, group.node_args))
    node_env = {name: filled(text) for name, text in group.node_env.items()}
    return replace(group, node_env=node_env, node_args=words)


def rename_groups(spec: JobSpec, names: Mapping[str, str]) -> JobSpec:
    """The job with its groups renamed in every field. names: old name -> new name."""
    return replace(
        spec,
        node_groups=tuple(
            replace(
                group,
                name=names.get(group.name, group.name),
                depends_on=tuple(
                    replace(other, group=names.get(other.group, other.group))
                    for other in group.depends_on
                ),
            )
            for group in spec.node_groups
        ),
        success=replace(spec.success, groups=_each(spec.success.groups, names)),
        failure=replace(
            spec.failure, rules=tuple(_rule(rule, names) for rule in spec.failure.rules)
        ),
    )


def _each(groups: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names.get(group, group) for group in groups)


def _rule(rule: FailureRule, names: Mapping[str, str]) -> FailureRule:
    """The rule with its groups renamed. Rules for one group have its name in theirs."""
    name = rule.name
    if name is not None and len(rule.groups) == 1:
        old, new = rule.groups[0], names.get(rule.groups[0], rule.groups[0])
        parts = name.split(".")
        name = ".".join(new if part == old else part for part in parts)
    return replace(rule, name=name, groups=_each(rule.groups, names))
