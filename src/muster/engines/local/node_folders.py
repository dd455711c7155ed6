"""The folders of one node: its own in the run's folder, which may be a disk image, and OCI's
/home/datascience, with the cluster metadata file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from muster.engines.local import namespaces
from muster.engines.local.mounts import SCRATCH, make_mountpoint, make_scratch
from muster.errors import EngineError
from muster.file_locks import flock
from muster.node.files import empty_folder, open_or_replace, remove_tree
from muster.plan.model import MountPlan, RunPlan

# --- the node's own folder

#: The subfolders that are on the node's disk image, if it has one. The others are read by others.
_ON_DISK_IMAGE = ("work", "tmp", *(name for name, _ in SCRATCH.values()))
#: The smallest disk image that a file system can be created in (bytes).
MIN_DISK_IMAGE = 16 << 20


def lock(folder: Path) -> int:
    """Wait until no other agent has locked the node's folder, then lock it until the returned
    descriptor is closed, or this process ends.

    Without namespaces, a supervisor that recovers a run may start nodes while agents of its killed
    predecessor are still ending their programs.
    """
    place = folder / "place"
    descriptor = open_or_replace(place, os.O_RDWR, 0o600)
    flock(descriptor, fcntl.LOCK_EX, place)
    return descriptor


def clear(folder: Path, work: Path) -> None:
    """Remove what programs left in the working directory, TMPDIR and the node's scratch folders.
    The scratch folders themselves stay, empty."""
    for old in (str(work), f"{folder}/tmp", f"{folder}/overlay"):
        if os.path.exists(old):
            remove_tree(old)
    for name, mode in SCRATCH.values():
        parent = f"{folder}/{name}"
        if os.path.isdir(parent):
            with os.scandir(parent) as entries:
                found = list(entries)
            for entry in found:
                _empty_scratch(entry, mode)


def _empty_scratch(entry: os.DirEntry[str], mode: int) -> None:
    found = entry.stat(follow_symlinks=False)
    if (found.st_mode, found.st_uid) == (stat.S_IFDIR | mode, os.geteuid()):
        empty_folder(entry.path)  # takes a quarter of the time of making it again
    else:  # a program has changed or replaced it
        remove_tree(entry.path)
        make_scratch(entry.path, mode)


def make_private(folder: Path) -> None:
    """Create an empty folder that only this user can access, replacing one of an earlier node.

    Raises PermissionError if the parent folder belongs to another user. In /tmp, which everybody
    can write to, another user may have created it first and could read and replace what is in it.
    """
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    if folder.parent.lstat().st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "it belongs to another user", str(folder.parent))
    if folder.exists():
        remove_tree(str(folder))
    folder.mkdir(mode=0o700)


# --- disk images


def disk_image_unavailable() -> tuple[str, str] | None:
    """Why nodes cannot have disk images on this machine, and what to do; None if they can."""
    if reason := namespaces.unavailable_reason():
        return reason, "unset it" if namespaces.AVAILABLE else "use Linux"
    if os.geteuid() != 0:
        return "only root may mount one", "run muster as root"
    from shutil import which  # rarely needed

    if which("mkfs.ext4") is None:
        return "mkfs.ext4 is not installed", "apt-get install e2fsprogs"
    if not os.path.exists("/dev/loop-control"):
        return "this machine has no loop devices", "modprobe loop"
    return None


def mount_disk_image(folder: Path, size: int) -> None:
    """Put the node's working directory, TMPDIR and scratch folders on a file system of `size`
    bytes, in the calling process's mount namespace. Raises EngineError, OSError.

    The file that holds it is unlinked once it is mounted. When the last process of the node ends,
    however it ends, the kernel unmounts it and frees the loop device and the space.
    """
    image, disk = folder / "disk.img", folder / "disk"
    image.unlink(missing_ok=True)
    disk.mkdir(exist_ok=True)
    with open(image, "xb") as file:
        file.truncate(size)
    try:
        # no blocks reserved for root; no journal for a file system that is never mounted again
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image))
        _run("mount", "-t", "ext4", "-o", "loop,noatime", str(image), str(disk))
    finally:
        image.unlink()
    (disk / "lost+found").rmdir()
    for name in _ON_DISK_IMAGE:
        for place in (folder / name, disk / name):
            place.mkdir(mode=0o700, exist_ok=True)
        namespaces.bind(str(disk / name), str(folder / name))


def _run(*argv: str) -> None:
    import subprocess  # few runs need it

    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise EngineError(f"the node's disk image cannot be created: {argv[0]}: {reason}")


# --- the OCI folder
#
# On OCI every node has /home/datascience/job_run_cluster_metadata.json, and
# CLUSTER_NODES_METADATA_FILE names it. Here it is a symbolic link to the run's file. A bind mount
# would not do: the run's file is replaced whenever a node joins or leaves, and a mount would keep
# showing the old one.

METADATA_VARIABLE = "CLUSTER_NODES_METADATA_FILE"
OCI_FOLDER = Path("/home/datascience")
METADATA_FILE = OCI_FOLDER / "job_run_cluster_metadata.json"
#: Each node has its own folder there, as in OCI: programs written for OCI also write to it.
_OCI_MOUNT = MountPlan("scratch:node/.datascience", "scratch", str(OCI_FOLDER), "")
#: Showing the folder in /home takes one more mount for each entry of /home; more than this many
#: entries would take too long.
_MAX_HOME_ENTRIES = 200
_MOUNTS = Path("/proc/self/mounts")
_EMPTIED = re.compile("scratch:(incarnation|life)/")


def metadata_obstacle(mounts: Iterable[MountPlan]) -> str:
    """Why the file cannot be at its path on a node with these mounts; "" if it can."""
    covering = [mount for mount in mounts if METADATA_FILE.is_relative_to(mount.path)]
    for mount in covering:
        # the link would be missing in a folder emptied at each start, or where something else is
        emptied = mount.kind != "scratch" or _EMPTIED.match(mount.source)
        if emptied or Path(mount.path) == METADATA_FILE:
            return f"{mount.source} is mounted at {mount.path}"
    if covering:
        return ""
    # mounting over a folder that programs write to would keep their files from its owner, and
    # would not let them replace files in it
    if os.path.lexists(OCI_FOLDER):  # Path.exists raises PermissionError
        return "this machine has that folder"
    return _overlay_obstacle(OCI_FOLDER.parent)


def _overlay_obstacle(parent: Path) -> str:
    """Why no folder can be added to `parent` by mounts; "" if one can."""
    if not os.path.isdir(parent):
        return ""
    try:
        if len(list(parent.iterdir())) > _MAX_HOME_ENTRIES:
            return f"{parent} has more than {_MAX_HOME_ENTRIES} entries"
        mounted = _MOUNTS.read_text()
    except OSError as error:
        return f"{parent}: {error.strerror}"
    on_demand = any(line.split()[1:3] == [str(parent), "autofs"] for line in mounted.splitlines())
    return f"folders in {parent} are mounted on demand" if on_demand else ""


def metadata_notes(plan: RunPlan, namespaces: str) -> list[str]:
    """Notes about groups whose nodes have no metadata file at OCI's path. namespaces: why nodes
    have no namespaces, "" if they have."""
    reasons = [namespaces or metadata_obstacle(group.mounts) for group in plan.groups]
    where = f"the metadata file is not at {METADATA_FILE}, only where {METADATA_VARIABLE} says"
    return [f"{where}: {reason}" for reason in dict.fromkeys(reasons) if reason]


def documented(plan: RunPlan, _folder: Path) -> frozenset[str]:
    """The names of the groups whose nodes get the file: each makes the mount point for itself
    (`bind_mounts`)."""
    return frozenset(group.name for group in plan.groups if not metadata_obstacle(group.mounts))


def prepare_oci_folder(plan: RunPlan, folder: Path) -> frozenset[str]:
    """As `documented`, with OCI_FOLDER as a mount point in the supervisor's mount namespace, which
    all nodes inherit. folder: the run's."""
    groups = documented(plan, folder)
    if not groups or not os.path.isdir(OCI_FOLDER.parent):
        return groups  # without /home, each node gets a root directory with one (`bind_mounts`)
    try:
        make_mountpoint(str(OCI_FOLDER), folder, set())
    except OSError as error:
        print(f"{OCI_FOLDER} cannot be made: {error}", file=sys.stderr)  # noqa: T201  supervisor.log
        return frozenset()
    return groups


def with_oci_folder(mounts: Sequence[MountPlan]) -> tuple[MountPlan, ...]:
    """A node's mounts and OCI_FOLDER, unless one of them is mounted there."""
    taken = any(Path(mount.path) == OCI_FOLDER for mount in mounts)
    return (*mounts,) if taken else (*mounts, _OCI_MOUNT)


def link_metadata(cluster_file: Path) -> None:
    """Create the link to the run's metadata file. Called in a node, after `bind_mounts`."""
    with contextlib.suppress(FileExistsError):  # in a kept or shared scratch folder
        os.symlink(cluster_file, METADATA_FILE)
