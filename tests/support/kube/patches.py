"""Patches: apply with the ownership of fields, merge, strategic and JSON patches. Pure.

Lists of objects with a key are merged by it, as the schemas of the cluster say; other lists are
values.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from support.kube.objects import ApiError, Obj, Resource, timestamp

#: A step into an object: `f:NAME`, `k:{KEYS}` or `v:VALUE`, as `managedFields` writes them.
Path = tuple[str, ...]
_NAME = ("name",)
#: The last fields of paths -> the keys of their entries.
_KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "volumes"), _NAME),
    **dict.fromkeys(("env", "imagePullSecrets", "replicatedJobs", "dependsOn"), _NAME),
    "failurePolicy.rules": _NAME,
    "podSets": _NAME,
    "volumeMounts": ("mountPath",),
    "containers.*.ports": ("containerPort", "protocol"),
    "spec.ports": ("port", "protocol"),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
_DEFAULTS = {"protocol": "TCP"}
_SETS = ("finalizers",)
#: What no manager owns.
_UNOWNED = ("apiVersion", "kind")
_UNOWNED_METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "generateName"),
)


def _keys(names: Sequence[str]) -> tuple[str, ...] | None:
    """The keys of the list at a path of field names; `*` stands for an entry."""
    for length in (1, 2, 3):
        if (found := _KEYS.get(".".join(names[-length:]))) is not None:
            return found
    return None


def _entry(item: Any, keys: Sequence[str]) -> str | None:
    """The step to an entry of a list; None if it does not have the keys."""
    if not isinstance(item, dict):
        return None
    found = {key: item.get(key, _DEFAULTS.get(key)) for key in keys}
    if None in found.values():
        return None
    return "k:" + json.dumps(found, sort_keys=True, separators=(",", ":"))


def leaves(value: Any, names: tuple[str, ...] = (), path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field with a value of its own, and that value; an entry of a list is a field, too."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if not names and name in _UNOWNED:
                continue
            if names == ("metadata",) and name in _UNOWNED_METADATA:
                continue
            yield from leaves(inner, (*names, name), (*path, f"f:{name}"))
        return
    if isinstance(value, list) and value:
        if names[-1] in _SETS:
            yield from (((*path, f"v:{json.dumps(item)}"), item) for item in value)
            return
        steps = [] if (keys := _keys(names)) is None else [_entry(item, keys) for item in value]
        if steps and None not in steps:
            for step, item in zip(steps, value, strict=True):
                inner_path = (*path, str(step))
                yield (*inner_path, "."), None
                yield from leaves(item, (*names, "*"), inner_path)
            return
    yield path, value


def write_fields(paths: Sequence[Path] | set[Path]) -> Obj:
    """`fieldsV1`."""
    made: Obj = {}
    for path in sorted(paths):
        at = made
        for step in path:
            at = at.setdefault(step, {})
    return made


def read_fields(fields: Obj, path: Path = ()) -> Iterator[Path]:
    for step, inner in fields.items():
        if inner:
            yield from read_fields(inner, (*path, step))
        else:
            yield (*path, step)


def _as_text(path: Path) -> str:
    """A field as messages name it: `.spec.containers[name="node"].image`."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "k":
            inner = ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(rest).items())
            text += f"[{inner}]"
        elif kind == "v":
            text += f"[={rest}]"
        elif kind == "f":
            text += f".{rest}"
    return text


# --- apply


def apply(
    resource: Resource, live: Obj | None, given: Obj, manager: str, *, force: bool, part: str = ""
) -> Obj:
    """The object after an apply. Raises ApiError for conflicts. part: `status` or ``."""
    wanted = dict(leaves(given))
    base: Obj = {} if live is None else copy.deepcopy(live)
    has = dict(leaves(base))
    entries = base.get("metadata", {}).get("managedFields", [])
    owned = {_owner(one): set(read_fields(one["fieldsV1"])) for one in entries}
    me = (manager, "Apply", part)
    against: dict[tuple[str, str, str], list[Path]] = {}
    for owner, paths in owned.items():
        clash = [p for p in paths & wanted.keys() if has.get(p) != wanted[p] and p[-1] != "."]
        if owner != me and clash:
            against[owner] = clash
    if against and not force:
        raise _conflicts(resource, against)
    for owner, lost in against.items():
        owned[owner] -= set(lost)
    others = {path for owner, paths in owned.items() if owner != me for path in paths}
    for gone in owned.get(me, set()) - wanted.keys() - others:
        _remove(base, gone)
    merged: Obj = _merge(base, given, ())
    owned[me] = set(wanted)
    _write_owners(merged, entries, owned, resource.api_version)
    return merged


def own_changes(
    resource: Resource, new: Obj, old: Obj | None, manager: str, part: str = ""
) -> None:
    """Give the fields that a write other than apply has changed to its manager."""
    before = {} if old is None else dict(leaves(old))
    after = dict(leaves(new))
    entries = (old or {}).get("metadata", {}).get("managedFields", [])
    owned = {_owner(one): set(read_fields(one["fieldsV1"])) for one in entries}
    missing = object()
    changed = {path for path, value in after.items() if before.get(path, missing) != value}
    if part != "status":
        changed = {path for path in changed if path[0] != "f:status"}
    owned = {owner: (paths & after.keys()) - changed for owner, paths in owned.items()}
    if changed:
        owned.setdefault((manager, "Update", part), set()).update(changed)
    _write_owners(new, entries, owned, resource.api_version)


def _owner(entry: Obj) -> tuple[str, str, str]:
    return entry["manager"], entry["operation"], entry.get("subresource", "")


def _write_owners(
    obj: Obj, before: list[Obj], owned: dict[tuple[str, str, str], set[Path]], version: str
) -> None:
    """Write `managedFields`. The time of an entry stays if its fields do."""
    known = {_owner(one): one for one in before}
    made = []
    for owner, paths in owned.items():
        if not paths:
            continue
        fields = write_fields(paths)
        was = known.get(owner, {})
        entry = {
            "manager": owner[0],
            "operation": owner[1],
            "apiVersion": version,
            "time": was["time"] if was.get("fieldsV1") == fields else timestamp(),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        made.append(entry | ({"subresource": owner[2]} if owner[2] else {}))
    obj.setdefault("metadata", {})["managedFields"] = made


def _conflicts(resource: Resource, against: dict[tuple[str, str, str], list[Path]]) -> ApiError:
    causes, texts = [], []
    for (manager, operation, _), paths in against.items():
        using = f" using {resource.api_version}" if operation == "Update" else ""
        texts.append(f'conflict with "{manager}"{using}')
        causes += [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{manager}"{using}',
                "field": _as_text(path),
            }
            for path in sorted(paths)
        ]
    one = "conflict" if len(causes) == 1 else "conflicts"
    fields = ", ".join(cause["field"] for cause in causes)
    text = f"Apply failed with {len(causes)} {one}: {', '.join(texts)}: {fields}"
    return ApiError(409, "Conflict", text, {"causes": causes})


def _merge(live: Any, given: Any, names: tuple[str, ...]) -> Any:
    """Both, and what is given where they differ."""
    if isinstance(live, dict) and isinstance(given, dict):
        made = dict(live)
        for name, value in given.items():
            made[name] = _merge(live.get(name), value, (*names, name))
        return made
    if isinstance(live, list) and isinstance(given, list) and names:
        if names[-1] in _SETS:
            return [*live, *(item for item in given if item not in live)]
        keys = _keys(names)
        if keys is not None:
            return _merge_lists(live, given, names, keys)
    return copy.deepcopy(given)


def _merge_lists(
    live: list[Any], given: list[Any], names: tuple[str, ...], keys: Sequence[str]
) -> list[Any]:
    known = {_entry(item, keys): item for item in live}
    inner = (*names, "*")
    first = [_merge(known.get(_entry(item, keys)), item, inner) for item in given]
    taken = {_entry(item, keys) for item in given}
    return [*first, *(item for item in live if _entry(item, keys) not in taken)]


def _remove(obj: Any, path: Path) -> None:
    """Remove a field, if it is there."""
    names: list[str] = []
    parents: list[tuple[Any, Any]] = []
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == ".":
            break
        place: Any = None
        if kind == "f" and isinstance(obj, dict) and rest in obj:
            place = rest
            names.append(rest)
        elif kind in ("k", "v") and isinstance(obj, list):
            keys = _keys(names) or ()
            names.append("*")
            for number, item in enumerate(obj):
                if step in (_entry(item, keys), f"v:{json.dumps(item)}"):
                    place = number
        if place is None:
            return
        parents.append((obj, place))
        obj = obj[place]
    holder, place = parents[-1]
    del holder[place]


# --- other patches


def merge_patch(obj: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    made = dict(obj) if isinstance(obj, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merge_patch(made.get(name), value)
    return made


def strategic_patch(obj: Any, patch: Any, names: tuple[str, ...] = ()) -> Any:
    """A strategic merge patch, without its directives but `$patch: delete` of entries."""
    if isinstance(patch, dict):
        made = dict(obj) if isinstance(obj, dict) else {}
        for name, value in patch.items():
            if name.startswith("$"):
                continue
            if value is None:
                made.pop(name, None)
            else:
                made[name] = strategic_patch(made.get(name), value, (*names, name))
        return made
    keys = _keys(names) if isinstance(patch, list) and isinstance(obj, list) and names else None
    if keys is None:
        return patch
    found = {_entry(item, keys): item for item in obj}
    for item in patch:
        place = _entry(item, keys)
        if item.get("$patch") == "delete":
            found.pop(place, None)
        else:
            found[place] = strategic_patch(found.get(place), item, (*names, "*"))
    return list(found.values())


def json_patch(obj: Any, operations: list[Obj]) -> Any:
    """RFC 6902: add, replace, remove and test."""
    made = copy.deepcopy(obj)
    for one in operations:
        steps = [s.replace("~1", "/").replace("~0", "~") for s in one["path"].split("/")[1:]]
        at = made
        try:
            for step in steps[:-1]:
                at = at[int(step)] if isinstance(at, list) else at[step]
            _change(one)(at, steps[-1], one)
        except (KeyError, IndexError, ValueError, TypeError):
            text = f"the server rejected our request due to an error in our request: {one}"
            raise ApiError(422, "Invalid", text) from None
    return made


def _change(one: Obj) -> Callable[[Any, str, Obj], None]:
    return {"add": _add, "replace": _replace, "remove": _drop, "test": _test}[one["op"]]


def _add(at: Any, step: str, one: Obj) -> None:
    if isinstance(at, list):
        at.insert(len(at) if step == "-" else int(step), one["value"])
    else:
        at[step] = one["value"]


def _replace(at: Any, step: str, one: Obj) -> None:
    place: Any = int(step) if isinstance(at, list) else step
    at[place]
    at[place] = one["value"]


def _drop(at: Any, step: str, one: Obj) -> None:
    del at[int(step) if isinstance(at, list) else step]


def _test(at: Any, step: str, one: Obj) -> None:
    if at[int(step) if isinstance(at, list) else step] != one["value"]:
        raise ValueError
