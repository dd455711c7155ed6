"""`--set resources.cpus=2`: one field of a record that a run may change; the others stay. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from muster.spec.models import DEFAULT_GROUP, JobSpec, NodeGroup, Resources
from muster.spec.override_models import GroupOverrides, RunOverrides

if TYPE_CHECKING:
    from muster.spec.overrides import Changes

#: The records that only the whole run has.
_OF_RUN = ("logging", "success", "failure", "checkpoint")
RECORDS = (*_OF_RUN, "startup_probe", "resources")

_Record = TypeVar("_Record", bound=Struct)


class Part(Struct, frozen=True):
    """group: its name or number, or "" for the whole run. inside: the way from the record on."""

    group: str
    record: str
    inside: tuple[str, ...]


def with_parts(changes: Changes, job: JobSpec) -> Changes:
    """The changes, with every record in them whole: what they leave out of one is the Job's."""
    if not changes.parts:
        return changes
    written = job.node_groups or (NodeGroup(name=DEFAULT_GROUP, startup_probe=job.startup_probe),)
    filling = _Filling(changes.parts, job, changes.overrides)
    groups = dict(changes.overrides.node_groups)
    for number, group in enumerate(written):
        named = group.name in groups or str(number) not in groups
        key = group.name if named else str(number)
        own = filling.group(key, group, groups.get(key, GroupOverrides()))
        if own != GroupOverrides():
            groups[key] = own
    run = filling.run(written)
    return replace(changes, overrides=replace(run, node_groups=groups), parts=())


class _Filling:
    """Records that were given in part, with the rest of what they take the place of."""

    def __init__(self, parts: Sequence[Part], job: JobSpec, said: RunOverrides) -> None:
        self._parts = parts
        self._job = job
        self._said = said

    def run(self, written: Sequence[NodeGroup]) -> RunOverrides:
        """What is said for the whole run; where a part of resources is, each group has its own."""
        made = self._said
        for name in _OF_RUN:
            record = self._whole("", name, getattr(self._job, name), getattr(made, name))
            made = replace(made, **{name: record})
        if len(written) == 1:
            probe = written[0].startup_probe
            made = replace(
                made, startup_probe=self._whole("", "startup_probe", probe, made.startup_probe)
            )
        if made.shape is None and self._inside("", "resources"):
            made = replace(made, resources=None)
        return made

    def group(self, key: str, group: NodeGroup, own: GroupOverrides) -> GroupOverrides:
        """What is said for one group. key: its name or number, as it was typed."""
        probe = self._whole(key, "startup_probe", group.startup_probe, own.startup_probe)
        own = replace(own, startup_probe=probe)
        parts = self._inside(key, "resources")
        if own.shape is not None or (own.resources is not None and not parts):
            return own  # takes the place of all that is said of it elsewhere
        if not parts and (self._said.shape is not None or not self._inside("", "resources")):
            return own
        resources, shape = self._below(group)
        resources = self._whole(key, "resources", resources, own.resources) or resources
        return replace(own, resources=resources, shape=shape)

    def _below(self, group: NodeGroup) -> tuple[Resources | None, str | None]:
        """The resources and shape that a group has unless more is said for it alone."""
        said, parts = self._said, self._inside("", "resources")
        if said.shape is not None or (said.resources is not None and not parts):
            return said.resources, said.shape
        level = self._job if group.resources is None and group.shape is None else group
        whole = self._whole("", "resources", level.resources, said.resources)
        return whole or level.resources, level.shape

    def _whole(
        self, key: str, name: str, base: _Record | None, said: _Record | None
    ) -> _Record | None:
        """The record as it is said, if that is all of it or nothing of it could be read."""
        if said is None or base is None:
            return said
        for inside in self._inside(key, name):
            base = _with(base, said, inside)
        return base if self._inside(key, name) else said

    def _inside(self, key: str, name: str) -> list[tuple[str, ...]]:
        return [p.inside for p in self._parts if (p.group, p.record) == (key, name)]


def _with(base: _Record, said: _Record, inside: Sequence[str]) -> _Record:
    """The record, with one value of another at its place."""
    name = next((i.name for i in fields(said) if i.encode_name == inside[0]), None)
    if name is None:
        return base  # there is no such field, which has been told
    value, old = getattr(said, name), getattr(base, name)
    if len(inside) > 1 and isinstance(value, Struct) and isinstance(old, Struct):
        value = _with(old, value, inside[1:])
    return replace(base, **{name: value})
