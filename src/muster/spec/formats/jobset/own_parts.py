"""What makes a pod a node of its run: the names of these parts, and why a patch may not touch them.

The pod template of a job has them on engine kubernetes. A patch that removes or replaces one would
make pods that Muster does not find, or that run something else.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.errors import Problem
from muster.spec.formats.jobset.patches import DIRECTIVE
from muster.spec.wording import say

#: Labels of all objects of a run. Their selector finds what is left of one.
RUN, PART_OF = "muster.run/id", "app.kubernetes.io/managed-by"
#: The container of the node, and the volume with its folder.
NODE = "node"
#: The volumes of the node program, the keys, and the profile's claim.
PROGRAM_VOLUME, KEY_VOLUME, SHARED_VOLUME = "muster-program", "muster-key", "muster-shared"
#: Where pods see the node program, the key of their node, a volume of their own, and the claim.
PROGRAM, KEY, FOLDER = "/muster/program", "/muster/key", "/muster/node"
SHARED = "/muster/shared"
_VOLUMES = (NODE, PROGRAM_VOLUME, KEY_VOLUME, SHARED_VOLUME)
_PATHS = (PROGRAM, KEY, FOLDER, SHARED)
#: Starts of labels by which Muster, JobSet and the Job controller find pods.
_LABELS = (
    RUN,
    PART_OF,
    "jobset.sigs.k8s.io/",
    "batch.kubernetes.io/",
    "job-name",
    "controller-uid",
)
#: Variables by which a pod finds out which node it is: the start of some, and the name of one.
_VARIABLES, _INDEX = "MUSTER_POD_", "JOB_COMPLETION_INDEX"
_OWN = "is set by Muster"


def own_problems(patch: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """A problem for each part that a patch of a pod template would remove or change. patch: without
    problems of `patches`. path: its place in the spec or the profile."""
    hint = "name the fields to change, one by one"
    yield from _directive(patch, path, hint)
    yield from _whole(patch, path, ("metadata", "spec"), hint)
    metadata, spec = (patch.get(name) or {} for name in ("metadata", "spec"))
    yield from _metadata(metadata, f"{path}.metadata")
    hint = "name the entries to change, one by one"
    yield from _whole(spec, f"{path}.spec", ("containers", "volumes"), hint)
    if spec.get("restartPolicy", "Never") != "Never":
        text = f"must be Never, not {say(spec['restartPolicy'])}"
        hint = "leave it out: programs restart in their pods"
        yield Problem(f"{path}.spec.restartPolicy", text, hint)
    for where, one in _entries(spec, "volumes", f"{path}.spec"):
        if one.get("name") in _VOLUMES:
            text = f"{one['name']} is a volume of Muster"
            yield Problem(where, text, "give yours another name")
    for where, one in _entries(spec, "containers", f"{path}.spec"):
        if one.get("name") == NODE:
            yield from _container(one, where)


def _directive(given: Mapping[str, Any], path: str, hint: str) -> Iterator[Problem]:
    if given.get(DIRECTIVE) in ("replace", "delete"):
        text = f"would {given[DIRECTIVE]} what Muster needs here"
        yield Problem(f"{path}.{DIRECTIVE}", text, hint)


def _whole(
    patch: Mapping[str, Any], path: str, parts: Sequence[str], hint: str
) -> Iterator[Problem]:
    """Problems of a patch that removes or replaces parts as a whole. A list is replaced by an entry
    `$patch: replace`."""
    for part in parts:
        given = patch.get(part, {})
        if given is None:
            yield Problem(f"{path}.{part}", "would delete what Muster needs here", hint)
        elif isinstance(given, Mapping):
            yield from _directive(given, f"{path}.{part}", hint)
        for where, one in _entries(patch, part, path):
            if one.get(DIRECTIVE) == "replace" and len(one) == 1:
                text = "would replace the list, and with it what Muster needs here"
                yield Problem(f"{where}.{DIRECTIVE}", text, hint)


def _metadata(metadata: Mapping[str, Any], path: str) -> Iterator[Problem]:
    yield from _whole(metadata, path, ("labels",), "name the labels to change, one by one")
    for field in sorted({"name", "namespace", "generateName"} & metadata.keys()):
        hint = "use `namespace` of the engine's profile" if field == "namespace" else ""
        yield Problem(f"{path}.{field}", _OWN, hint)
    for key in metadata.get("labels") or {}:
        if key.startswith(_LABELS):
            text = f"{_OWN} or Kubernetes, which find pods by it"
            yield Problem(f"{path}.labels.{key}", text, "leave it out")


def _container(one: Mapping[str, Any], path: str) -> Iterator[Problem]:
    hint = "name the entries to change, one by one"
    yield from _directive(one, path, hint)
    yield from _whole(one, path, ("env", "volumeMounts"), hint)
    for field in sorted({"command", "args"} & one.keys()):
        text = "would replace the node program, which starts the job's command"
        yield Problem(f"{path}.{field}", text, "use `command` and `args` of the job or the group")
    for where, variable in _entries(one, "env", path):
        name = str(variable.get("name"))
        if name.startswith(_VARIABLES) or name == _INDEX:
            text = f"{name} {_OWN}: the pod finds by it which node it is"
            yield Problem(where, text, "give yours another name")
    for where, mount in _entries(one, "volumeMounts", path):
        seen = posixpath.normpath(f"/{str(mount.get('mountPath')).lstrip('/')}")
        if any(f"{own}/".startswith(f"{seen.rstrip('/')}/") for own in _PATHS) or seen.startswith(
            tuple(f"{own}/" for own in _PATHS if own != SHARED)
        ):
            text = f"{seen} is needed by Muster"
            yield Problem(f"{where}.mountPath", text, "mount it at another path")


def _entries(
    holder: Mapping[str, Any], field: str, path: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a list, with their places."""
    given = holder.get(field)
    for number, one in enumerate(given if isinstance(given, (list, tuple)) else ()):
        if isinstance(one, Mapping):
            yield f"{path}.{field}[{number}]", one
