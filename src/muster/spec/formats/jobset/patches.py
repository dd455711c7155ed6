"""Strategic merge patches, as the API server applies them to pod templates.

Kubernetes: objects are merged key by key, and null deletes a key. Lists of objects that have a
merge key are merged by it; all other lists are replaced. `$patch: replace` replaces an object or a
list, `$patch: delete` deletes an object or an entry. Other directives, such as `$setElementOrder`,
are refused: programs write them, people do not.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.errors import Problem
from muster.spec.formats.jobset.schema import template_problems
from muster.spec.wording import say

#: The path of a list below a pod template -> the key by which its entries are merged. `*` stands
#: for an entry of a list. Kubernetes: `patchMergeKey` of the fields with the strategy `merge`.
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_OF_CONTAINERS = {"env": "name", "ports": "containerPort", "volumeMounts": "mountPath"}
_OF_CONTAINERS["volumeDevices"] = "devicePath"
_MERGE_KEYS = {
    **{f"spec.{name}": "name" for name in _CONTAINERS},
    **{f"spec.{n}.*.{part}": key for n in _CONTAINERS for part, key in _OF_CONTAINERS.items()},
    "spec.hostAliases": "ip",
    "spec.imagePullSecrets": "name",
    "spec.resourceClaims": "name",
    "spec.schedulingGates": "name",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.volumes": "name",
}
#: Lists of texts that are merged as sets.
_SETS = frozenset(("metadata.finalizers",))
#: Says what happens to an object or an entry.
DIRECTIVE = "$patch"
_ACTIONS = ("replace", "delete", "merge")


def apply_patch(template: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template with a patch applied. patch: without problems (`patch_problems`)."""
    return _merge_objects(template, patch, "")


def _merge_objects(
    before: Mapping[str, Any], patch: Mapping[str, Any], path: str
) -> dict[str, Any]:
    if patch.get(DIRECTIVE) == "replace":
        replaced: dict[str, Any] = _without_directive(patch)
        return replaced
    merged = dict(before)
    for key, value in patch.items():
        if key == DIRECTIVE:
            continue
        below = f"{path}.{key}" if path else key
        if value is None or (isinstance(value, Mapping) and value.get(DIRECTIVE) == "delete"):
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            known = merged.get(key)
            merged[key] = _merge_objects(known if isinstance(known, Mapping) else {}, value, below)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            known = merged.get(key)
            merged[key] = _merge_lists(known if isinstance(known, list) else [], value, below)
        else:
            merged[key] = value
    return merged


def _merge_lists(before: Sequence[Any], patch: Sequence[Any], path: str) -> list[Any]:
    if path in _SETS:
        return list(dict.fromkeys([*before, *patch]))
    merge_key = _MERGE_KEYS.get(path)
    if merge_key is None:
        return [_without_directive(one) for one in patch]
    given = [one for one in patch if one.get(DIRECTIVE) != "replace" or len(one) > 1]
    if len(given) < len(patch):
        return [_without_directive(one) for one in given]
    merged = {one[merge_key]: one for one in before}
    for one in given:
        name = one[merge_key]
        if one.get(DIRECTIVE) == "delete":
            merged.pop(name, None)
        else:
            merged[name] = _merge_objects(merged.get(name, {}), one, f"{path}.*")
    return list(merged.values())


def _without_directive(value: Any) -> Any:
    """What a patch adds where nothing is to be merged with."""
    if isinstance(value, Mapping):
        kept = {key: one for key, one in value.items() if key != DIRECTIVE and one is not None}
        return {key: _without_directive(one) for key, one in kept.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_directive(one) for one in value]
    return value


def mounted_paths(patch: Mapping[str, Any], container: str) -> frozenset[str]:
    """Where a patch of a pod template mounts volumes in a container. patch: without problems."""
    spec = patch.get("spec") or {}
    found = [
        mount
        for kind in ("containers", "initContainers")
        for one in spec.get(kind) or ()
        if one.get("name") == container
        for mount in one.get("volumeMounts") or ()
        if mount.get("mountPath") and mount.get(DIRECTIVE) != "delete"
    ]
    return frozenset(posixpath.normpath(mount["mountPath"]) for mount in found)


def volume_names(patch: Mapping[str, Any]) -> frozenset[str]:
    """The names of the volumes that a patch adds or changes. patch: without problems."""
    volumes = (patch.get("spec") or {}).get("volumes") or ()
    return frozenset(one["name"] for one in volumes if "name" in one)


def patch_problems(patch: object, path: str) -> Iterator[Problem]:
    """What is wrong with a patch of a pod template. path: its place in the spec or the profile."""
    if not isinstance(patch, Mapping):
        hint = "as in {spec: {hostNetwork: true}}"
        yield Problem(path, f"must be part of a pod template, not {say(patch)}", hint)
        return
    for key in patch:
        if key not in ("metadata", "spec", DIRECTIVE):
            hint = f"fields of pods belong below spec: {{spec: {{{key}: ...}}}}"
            yield Problem(f"{path}.{key}", "is not a field of a pod template", hint)
    known = {key: patch[key] for key in ("metadata", "spec", DIRECTIVE) if key in patch}
    wrong = [*template_problems(known, path)]
    yield from wrong
    if not wrong:
        yield from _object_problems(known, path, "")


def _object_problems(patch: Mapping[Any, Any], path: str, below: str) -> Iterator[Problem]:
    for key, value in patch.items():
        where = f"{path}.{key}"
        if not isinstance(key, str):
            yield Problem(where, f"must have a name that is text, not {say(key)}", f'write "{key}"')
        elif key == DIRECTIVE:
            if value not in _ACTIONS:
                text = f"must be {', '.join(_ACTIONS[:-1])} or {_ACTIONS[-1]}, not {say(value)}"
                yield Problem(where, text)
        elif key.startswith("$"):
            hint = "name the whole list instead"
            yield Problem(where, "is a directive that Muster does not apply", hint)
        elif isinstance(value, Mapping):
            yield from _object_problems(value, where, f"{below}.{key}" if below else key)
        elif isinstance(value, (list, tuple)):
            yield from _list_problems(value, where, f"{below}.{key}" if below else key)


def _list_problems(patch: Sequence[Any], path: str, below: str) -> Iterator[Problem]:
    merge_key = _MERGE_KEYS.get(below)
    for number, one in enumerate(patch):
        where = f"{path}[{number}]"
        if isinstance(one, Mapping):
            is_directive = one.get(DIRECTIVE) == "replace" and len(one) == 1
            if merge_key is not None and one.get(merge_key) is None and not is_directive:
                text = f"has no {merge_key}, by which entries of this list are merged"
                yield Problem(where, text, f"add {merge_key}")
            yield from _object_problems(one, where, f"{below}.*")
        elif isinstance(one, (list, tuple)):
            yield from _list_problems(one, where, f"{below}.*")
