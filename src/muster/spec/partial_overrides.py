"""Overrides of one field of a record (`--set resources.cpus=2`) or of one item of a list
(`--set mounts[0].source=...`). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, to_builtins
from msgspec.structs import fields, replace

from muster.errors import InvalidInput, Problem
from muster.spec.models import JobSpec, NodeGroup, Resources
from muster.spec.override_models import RUN_WIDE_RECORDS, GroupOverrides, RunOverrides
from muster.spec.wording import short, suggestion

if TYPE_CHECKING:
    from muster.spec.overrides import Changes

#: The records of which a run may change single fields.
RECORDS = (*RUN_WIDE_RECORDS, "startup_probe", "liveness_probe", "resources", "array")
#: Those that only groups have, and that no group inherits.
_OF_GROUP = ("startup_probe", "liveness_probe", "array")
#: Fields that are overridden together: the sets of an array are those of its file.
_TOGETHER = {"array": ("file", "rows")}

_Record = TypeVar("_Record", bound=Struct)


class Part(Struct, frozen=True):
    """A field of a record that is overridden, while the record's other fields are not."""

    group: str
    """Name or number of the group; "" for the whole run."""
    record: str
    """The record's field name."""
    inside: tuple[str, ...]
    """Path of the field in the record."""


def with_parts(changes: Changes, job: JobSpec) -> Changes:
    """The changes with complete records: fields that are not overridden have the Job's values."""
    if not changes.parts:
        return changes
    groups = job.node_groups or (job.only_group,)
    records = _Records(changes.parts, job, changes.overrides)
    overrides = dict(changes.overrides.node_groups)
    for number, group in enumerate(groups):
        by_name = group.name in overrides or str(number) not in overrides
        key = group.name if by_name else str(number)
        own = records.of_group(key, group, overrides.get(key, GroupOverrides()))
        if own != GroupOverrides():
            overrides[key] = own
    run = records.of_run(groups)
    return replace(changes, overrides=replace(run, node_groups=overrides), parts=())


class _Records:
    """Completes records that are given in part."""

    def __init__(self, parts: Sequence[Part], job: JobSpec, overrides: RunOverrides) -> None:
        self._parts = parts
        self._job = job
        self._overrides = overrides

    def of_run(self, groups: Sequence[NodeGroup]) -> RunOverrides:
        """The run's overrides. Resources given in part go to each group's overrides."""
        made = self._overrides
        for name in RUN_WIDE_RECORDS:
            record = self._complete("", name, getattr(self._job, name), getattr(made, name))
            made = replace(made, **{name: record})
        if len(groups) == 1:
            for name in _OF_GROUP:
                record = self._complete("", name, getattr(groups[0], name), getattr(made, name))
                made = replace(made, **{name: record})
        if made.shape is None and self._inside("", "resources"):
            made = replace(made, resources=None)
        return made

    def of_group(self, key: str, group: NodeGroup, own: GroupOverrides) -> GroupOverrides:
        """A group's overrides. key: its name or number, as typed."""
        for name in _OF_GROUP:
            record = self._complete(key, name, getattr(group, name), getattr(own, name))
            own = replace(own, **{name: record})
        parts = self._inside(key, "resources")
        if own.shape is not None or (own.resources is not None and not parts):
            return own  # replaces the resources of all other levels
        if not parts and (self._overrides.shape is not None or not self._inside("", "resources")):
            return own
        resources, shape = self._below(group)
        resources = self._complete(key, "resources", resources, own.resources) or resources
        return replace(own, resources=resources, shape=shape)

    def _below(self, group: NodeGroup) -> tuple[Resources | None, str | None]:
        """The group's resources and shape without the overrides of the group itself."""
        run, parts = self._overrides, self._inside("", "resources")
        if run.shape is not None or (run.resources is not None and not parts):
            return run.resources, run.shape
        level = self._job if group.resources is None and group.shape is None else group
        whole = self._complete("", "resources", level.resources, run.resources)
        return whole or level.resources, level.shape

    def _complete(
        self, key: str, name: str, base: _Record | None, given: _Record | None
    ) -> _Record | None:
        """The Job's record with the given fields; `given` if it is whole or there is no base."""
        if given is None or base is None:
            return given
        parts = self._inside(key, name)
        for inside in parts:
            base = _with_field(base, given, inside)
            if inside[0] in (together := _TOGETHER.get(name, ())):
                base = replace(base, **{field: getattr(given, field) for field in together})
        return base if parts else given

    def _inside(self, key: str, name: str) -> list[tuple[str, ...]]:
        return [p.inside for p in self._parts if (p.group, p.record) == (key, name)]


def _with_field(base: _Record, given: _Record, inside: Sequence[str]) -> _Record:
    """The record with one field's value taken from another record."""
    name = next((i.name for i in fields(given) if i.encode_name == inside[0]), None)
    if name is None:
        return base  # an unknown field, reported by `decode`
    value, old = getattr(given, name), getattr(base, name)
    if len(inside) > 1 and isinstance(value, Struct) and isinstance(old, Struct):
        value = _with_field(old, value, inside[1:])
    elif len(inside) > 1 and isinstance(value, Mapping) and isinstance(old, Mapping):
        value = {**old, **{key: value[key] for key in inside[1:2] if key in value}}
    return replace(base, **{name: value})


#: Lists of which a run may change single items.
LISTS = ("args", "mounts")


class Item(Struct, frozen=True):
    """An item of a list that is overridden, or a field of an item."""

    flag: str
    """The flag as it was typed."""
    group: str
    """Name or number of the group; "" for the job's own list."""
    field: str
    """The list's field name."""
    index: str
    inside: Sequence[str]
    """Path of the field in the item; empty for the whole item."""
    value: Any

    @property
    def list_path(self) -> str:
        """Path of the list."""
        return f"node_groups[{self.group}].{self.field}" if self.group else self.field


def set_item(values: list[Any], path: str, index: str, inside: Sequence[str], value: Any) -> None:
    """Replace an item of a list, or a field of an item. path: the list's, for messages. Raises
    InvalidInput, without a path."""
    number = int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else None
    if number is None or number >= len(values):
        count = len(values)
        has = f"has {count} item{'s' * (count != 1)}" if count else "is empty"
        hint = "the first is 0" if count == 1 else f"they are 0 to {count - 1}"
        whole = f"set the whole list: --set {path}=[...]"
        raise InvalidInput(Problem("", f"{path} {has}", f"{hint}; or {whole}" if count else whole))
    if not inside:
        values[number] = value
        return
    where = values[number]
    for step in inside[:-1]:
        where = where.get(step) if isinstance(where, dict) else None
    if not isinstance(where, dict):
        text = f"{path}[{index}] has no {'.'.join(inside)}"
        raise InvalidInput(Problem("", text, f"set the item: {path}[{index}]=..."))
    where[inside[-1]] = value


def with_items(changes: Changes, job: JobSpec) -> Changes:
    """The changes with complete lists and records: what is not overridden is the job's."""
    changes = with_parts(changes, job)
    if not changes.items:
        return changes
    from muster.spec.overrides import changes_from_mapping

    lists, problems = _lists(changes, job)
    made = changes_from_mapping(_data(lists, job))
    flags = {item.list_path: item.flag for item in changes.items}
    for problem in made.problems:
        about = [flag for path, flag in flags.items() if problem.path.startswith(path)]
        flag = about[0] if about else changes.items[0].flag
        problems.append(problem._replace(path=flag))
    return replace(
        changes,
        overrides=_with_lists(changes.overrides, made.overrides),
        problems=(*changes.problems, *problems),
        broken=(*changes.broken, *made.broken),
        flags={**changes.flags, **flags},
        items=(),
    )


_Level = TypeVar("_Level", RunOverrides, GroupOverrides)
_Lists = dict[tuple[str, str], list[Any]]


def _lists(changes: Changes, job: JobSpec) -> tuple[_Lists, list[Problem]]:
    """The changed lists, by group and field."""
    groups = {group.name: group for group in job.node_groups}
    lists: _Lists = {}
    problems = []
    for item in changes.items:
        name = _name(item, job)
        if name and name not in groups:
            hint = suggestion(name, groups) if groups else "the job has none"
            problems.append(Problem(item.flag, f"no group named {short(name)}", hint))
            continue
        given = changes.overrides.node_groups.get(name) if name else changes.overrides
        if getattr(given, item.field, None) is not None:
            text = f"{item.list_path} is also given as a whole"
            problems.append(Problem(item.flag, text, "keep only one of them"))
            continue
        values = lists.setdefault((name, item.field), _current(groups.get(name), job, item.field))
        try:
            set_item(values, item.list_path, item.index, item.inside, item.value)
        except InvalidInput as error:
            problems += [problem._replace(path=item.flag) for problem in error.problems]
    return lists, problems


def _name(item: Item, job: JobSpec) -> str:
    """The name of the group whose list changes (it may be given by number); "" for the job's list.
    If the job has no such list, the list is that of its only group."""
    group, names = item.group, [one.name for one in job.node_groups]
    if not group and len(names) == 1 and not getattr(job, item.field):
        return names[0]
    if group not in names and group.isascii() and group.isdecimal() and len(group) < 10:
        return names[int(group)] if int(group) < len(names) else group
    return group


def _current(group: NodeGroup | None, job: JobSpec, field: str) -> list[Any]:
    own = getattr(job if group is None else group, field)
    if field == "args" and own is None:
        own = job.args
    return list(to_builtins(own or ()))


def _data(lists: _Lists, job: JobSpec) -> Mapping[str, Any]:
    """Overrides, as plain data, that result in these lists. Run-level overrides would replace the
    lists of groups, so with groups each group gets its own override."""
    if not job.node_groups:
        return {field: values for (_, field), values in lists.items()}
    groups: dict[str, dict[str, Any]] = {}
    for group in job.node_groups:
        own = {field: values for (name, field), values in lists.items() if name == group.name}
        overrides: dict[str, Any] = {}
        if "args" in own or (("", "args") in lists and group.args is None):
            overrides["args"] = own.get("args", lists.get(("", "args")))
        if "mounts" in own or ("", "mounts") in lists:
            shared = lists.get(("", "mounts"), to_builtins(job.mounts))
            overrides["mounts"] = [*shared, *own.get("mounts", to_builtins(group.mounts))]
        if overrides:
            groups[group.name] = overrides
    return {"node_groups": groups}


def _with_lists(first: RunOverrides, second: RunOverrides) -> RunOverrides:
    groups = dict(first.node_groups)
    for name, group in second.node_groups.items():
        groups[name] = _lists_of(groups.get(name, GroupOverrides()), group)
    return replace(_lists_of(first, second), node_groups=groups)


def _lists_of(first: _Level, second: _Level) -> _Level:
    given = {name: getattr(second, name) for name in LISTS if getattr(second, name) is not None}
    return replace(first, **given)
