"""The cluster metadata file where OCI has it, on the nodes and nowhere else.

OCI: every node has /home/datascience/job_run_cluster_metadata.json, and
CLUSTER_NODES_METADATA_FILE names it. What is there is a link to the run's file: that is replaced
whenever a node comes or goes, and a file that is mounted would not follow.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from muster.engines.local.mounting import make_mountpoint
from muster.plan.model import MountPlan, RunPlan

VARIABLE = "CLUSTER_NODES_METADATA_FILE"
FOLDER = Path("/home/datascience")
FILE = FOLDER / "job_run_cluster_metadata.json"
#: A folder of the node's own, as in OCI: programs that were written for it write there, too.
_OWN = MountPlan("scratch:node/.datascience", "scratch", str(FOLDER), "")
#: To show a folder beside others, those have to be mounted again, one by one.
_MOST_HOMES = 200
_MOUNTS = Path("/proc/self/mounts")
_EMPTIED = re.compile("scratch:life/")


def obstacle(mounts: Iterable[MountPlan]) -> str:
    """Why the file cannot be at its place on a node with these mounts; "" if it can."""
    over = [mount for mount in mounts if FILE.is_relative_to(mount.path)]
    for mount in over:
        # a folder that is emptied at every start, or a place that is taken, would not have the link
        if mount.kind != "scratch" or _EMPTIED.match(mount.source) or Path(mount.path) == FILE:
            return f"{mount.source} is mounted at {mount.path}"
    if over:
        return ""
    # to lay anything over a folder that programs write to would take what they write from its
    # owner, and forbid them to replace the files in it
    if os.path.lexists(FOLDER):  # Path.exists raises where we may not look
        return "this machine has that folder"
    return _cannot_be_remade(FOLDER.parent)


def _cannot_be_remade(parent: Path) -> str:
    if not os.path.isdir(parent):
        return ""
    try:
        if len(list(parent.iterdir())) > _MOST_HOMES:
            return f"there is too much in {parent}"
        mounted = _MOUNTS.read_text()
    except OSError as error:
        return f"{parent}: {error.strerror}"
    on_demand = any(line.split()[1:3] == [str(parent), "autofs"] for line in mounted.splitlines())
    return f"what is in {parent} is mounted on demand" if on_demand else ""


def notes(plan: RunPlan, namespaces: str) -> list[str]:
    """What the owner of a run of several nodes should know. namespaces: why there are none."""
    if len(plan.nodes) == 1:
        return []
    reasons = [namespaces or obstacle(group.mounts) for group in plan.groups]
    where = f"the metadata file is not at {FILE}, only where {VARIABLE} says"
    return [f"{where}: {reason}" for reason in dict.fromkeys(reasons) if reason]


def prepare(plan: RunPlan, folder: Path) -> frozenset[str]:
    """Once, in the supervisor's mount namespace: have the folder, empty, beside what is there.
    Returns the groups whose nodes are to have the file. folder: the run's own."""
    groups = frozenset(group.name for group in plan.groups if not obstacle(group.mounts))
    if not groups or not os.path.isdir(FOLDER.parent):
        return groups  # in the second case, each node has a root directory of its own for it
    try:
        make_mountpoint(FOLDER, folder, set())
    except OSError as error:
        print(f"{FOLDER} cannot be made: {error}", file=sys.stderr)  # noqa: T201  supervisor.log
        return frozenset()
    return groups


def with_folder(mounts: Sequence[MountPlan]) -> tuple[MountPlan, ...]:
    """A node's mounts, and the folder, unless one of them is it."""
    taken = any(Path(mount.path) == FOLDER for mount in mounts)
    return (*mounts,) if taken else (*mounts, _OWN)


def place_link(cluster_file: Path) -> None:
    """In a node, once its mounts are there: put the file at its place."""
    with contextlib.suppress(FileExistsError):  # from before, or by another node, in its scratch
        FILE.symlink_to(cluster_file)
