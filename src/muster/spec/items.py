"""`--set mounts[0].source=...`: one item of a list that a run may change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.override_models import GroupOverrides, RunOverrides
from muster.spec.parts import with_parts
from muster.spec.wording import suggestion

if TYPE_CHECKING:
    from muster.spec.overrides import Changes

#: The lists that a run may change.
LISTS = ("args", "mounts")


class Item(Struct, frozen=True):
    """A value for one item, or for a field of one. flag: as it was typed; group: name or number,
    or "" for the job's own list; inside: the field of the item."""

    flag: str
    group: str
    field: str
    index: str
    inside: Sequence[str]
    value: Any

    @property
    def list_path(self) -> str:
        """Of the list it is an item of."""
        return f"node_groups[{self.group}].{self.field}" if self.group else self.field


def set_item(values: list[Any], path: str, index: str, inside: Sequence[str], value: Any) -> None:
    """Replace an item, or a field of one. path: of the list. Raises InvalidInput with what is
    wrong, at no path."""
    number = int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else None
    if number is None or number >= len(values):
        count = len(values)
        has = f"has {count} item{'s' * (count != 1)}" if count else "is empty"
        hint = "the first is 0" if count == 1 else f"they are 0 to {count - 1}"
        whole = f"set all of it: --set {path}=[...]"
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
    """The changes, with those of single items made to the job's lists, and with whole records."""
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
        overrides=_both(changes.overrides, made.overrides),
        problems=(*changes.problems, *problems),
        broken=(*changes.broken, *made.broken),
        said={**changes.said, **flags},
        items=(),
    )


_Level = TypeVar("_Level", RunOverrides, GroupOverrides)
_Lists = dict[tuple[str, str], list[Any]]


def _lists(changes: Changes, job: JobSpec) -> tuple[_Lists, list[Problem]]:
    """The lists that change, as they are then, by group and field."""
    groups = {group.name: group for group in job.node_groups}
    lists: _Lists = {}
    problems = []
    for item in changes.items:
        name = _name(item, job)
        if name and name not in groups:
            hint = suggestion(name, groups) if groups else "the job has none"
            problems.append(Problem(item.flag, f"no group named {name!r}", hint))
            continue
        given = changes.overrides.node_groups.get(name) if name else changes.overrides
        if getattr(given, item.field, None) is not None:
            text = f"{item.list_path} is given as a whole, too"
            problems.append(Problem(item.flag, text, "keep the one you mean"))
            continue
        values = lists.setdefault((name, item.field), _now(groups.get(name), job, item.field))
        try:
            set_item(values, item.list_path, item.index, item.inside, item.value)
        except InvalidInput as error:
            problems += [problem._replace(path=item.flag) for problem in error.problems]
    return lists, problems


def _name(item: Item, job: JobSpec) -> str:
    """The name of the group whose list is meant, which may be given by number; or "". The only
    group is meant where the job itself has no such list."""
    group, names = item.group, [one.name for one in job.node_groups]
    if not group and len(names) == 1 and not getattr(job, item.field):
        return names[0]
    if group not in names and group.isascii() and group.isdecimal() and len(group) < 10:
        return names[int(group)] if int(group) < len(names) else group
    return group


def _now(group: NodeGroup | None, job: JobSpec, field: str) -> list[Any]:
    own = getattr(job if group is None else group, field)
    if field == "args" and own is None:
        own = job.args
    return list(to_builtins(own or ()))


def _data(lists: _Lists, job: JobSpec) -> Mapping[str, Any]:
    """What a run has to say for the lists to become these. What it says for the job takes the
    place of what groups say, so where there are groups it is said for each."""
    if not job.node_groups:
        return {field: values for (_, field), values in lists.items()}
    groups: dict[str, dict[str, Any]] = {}
    for group in job.node_groups:
        own = {field: values for (name, field), values in lists.items() if name == group.name}
        said: dict[str, Any] = {}
        if "args" in own or (("", "args") in lists and group.args is None):
            said["args"] = own.get("args", lists.get(("", "args")))
        if "mounts" in own or ("", "mounts") in lists:
            shared = lists.get(("", "mounts"), to_builtins(job.mounts))
            said["mounts"] = [*shared, *own.get("mounts", to_builtins(group.mounts))]
        if said:
            groups[group.name] = said
    return {"node_groups": groups}


def _both(first: RunOverrides, second: RunOverrides) -> RunOverrides:
    groups = dict(first.node_groups)
    for name, group in second.node_groups.items():
        groups[name] = _lists_of(groups.get(name, GroupOverrides()), group)
    return replace(_lists_of(first, second), node_groups=groups)


def _lists_of(first: _Level, second: _Level) -> _Level:
    given = {name: getattr(second, name) for name in LISTS if getattr(second, name) is not None}
    return replace(first, **given)
