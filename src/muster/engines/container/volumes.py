"""Where this machine has what is mounted in the containers of a slot.

Containers see mounts at the paths of the job. Scratch folders of a node, and files with given
content, are in folders of the slot that stay for as long as its container: they are emptied or
written again, and never replaced, as a mounted folder has to stay the same. What is given may be
secret, so it is in memory. Containers see each of them by itself: nothing that they do leads the
supervisor, which writes there as well, elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.engines.container.bodies import FILES, SCRATCH, Machine, slot_folder, source_of
from muster.node import folder_access, given_files
from muster.node.files import empty_folder, remove_tree
from muster.node.launch_message import GivenFile
from muster.plan.model import MountPlan, RunPlan
from muster.spec.placeholders import placeholders
from muster.storage.home import Home
from muster.storage.mount_sources import named_source

#: File systems in memory.
_MEMORY = "/dev/shm"
_SCRATCH = "scratch"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Owner of a scratch folder -> the folder it is in, below _SCRATCH, and its mode.
_OWNERS = {"node": 0o777, "incarnation": 0o1777}


def memory_folder(run_id: str) -> Path:
    """The folder for given files of a run, which only the submitter may enter."""
    return Path(_MEMORY, f"muster-{run_id}")


def files_folder(run_id: str, slot: int) -> Path:
    """The folder for given files of a slot, which its containers mount."""
    return memory_folder(run_id) / str(slot)


def own_folder(home: Home, run_id: str, slot: int) -> Path:
    """The folder of a slot of which its containers see parts only."""
    folder = slot_folder(home, run_id, slot)
    return folder.with_name(f"{folder.name}-own")


def writable(
    mounts: Sequence[MountPlan], plan: RunPlan, slot: int, machine: Machine
) -> dict[str, str]:
    """What the container of a node has besides at the paths of mounts: where -> what."""
    return {
        _seen_at(mount, ""): whole_source(mount, plan, slot, machine)
        for mount in mounts
        if _owner(mount) or mount.kind == "files"
    }


def whole_source(mount: MountPlan, plan: RunPlan, slot: int, machine: Machine) -> str:
    """The directory of this machine of which a mount shows all, or a part; "" if nodes get it in
    their folder: copies of what is at a URL, and what no scratch folder is known for."""
    if owner := _owner(mount):
        folder = own_folder(machine.home, plan.run_id, slot) / _SCRATCH / owner
        return str(folder / named_source(mount.source).name)
    if mount.kind == "files":
        return str(files_folder(plan.run_id, slot) / mount.variable)
    return source_of(mount, plan, machine)


def source_at_path(mount: MountPlan, plan: RunPlan, slot: int, machine: Machine) -> str:
    """What containers have at the path of a mount; "" if they do not have it there."""
    whole = whole_source(mount, plan, slot, machine)
    if not whole or mount.sub_path is None:
        return whole
    # a part that differs between attempts, or nodes, is known when a program starts
    return "" if placeholders(mount.sub_path) else os.path.join(whole, mount.sub_path)


def mounted(plan: RunPlan, slot: int, machine: Machine) -> dict[str, str]:
    """See `remote.hosts.Host.mounted`. Of a directory of which the container has only parts at
    their paths, it is one of these."""
    mounts = plan.group_for(plan.nodes[slot]).mounts
    there = at_paths(plan, slot, machine)
    elsewhere = {mount.source for mount in mounts if mount.path not in there}
    found = dict[str, str]()
    for mount in sorted(mounts, key=lambda one: one.sub_path is not None):
        if seen := _seen_at(mount, whole_source(mount, plan, slot, machine)):
            found.setdefault(mount.source, seen)
        elif mount.path in there and mount.source not in elsewhere:
            found.setdefault(mount.source, mount.path)
    return found


def at_paths(plan: RunPlan, slot: int, machine: Machine) -> frozenset[str]:
    """See `remote.hosts.Host.at_paths`."""
    mounts = plan.group_for(plan.nodes[slot]).mounts
    return frozenset(one.path for one in mounts if source_at_path(one, plan, slot, machine))


def _seen_at(mount: MountPlan, whole: str) -> str:
    """Where the server of a node has all of a mount; "": nowhere."""
    if owner := _owner(mount):
        return f"{SCRATCH}/{owner}/{named_source(mount.source).name}"
    if mount.kind == "files":
        return f"{FILES}/{mount.variable}"
    return mount.path if whole and mount.sub_path is None else ""


def _owner(mount: MountPlan) -> str:
    """The owner of a scratch folder that each slot has: a key of _OWNERS; "" for other mounts."""
    owner = named_source(mount.source).of if mount.kind == "scratch" else ""
    return owner if owner in _OWNERS else ""


def provide(mounts: Sequence[MountPlan], plan: RunPlan, slot: int, machine: Machine) -> None:
    """Make what the containers of a slot mount. Raises OSError."""
    own = own_folder(machine.home, plan.run_id, slot)
    if os.path.lexists(own):
        remove_tree(str(own))
    own.mkdir()
    scratch = own / _SCRATCH
    for mount in mounts:
        whole = whole_source(mount, plan, slot, machine)
        if owner := _owner(mount):
            (scratch / owner).mkdir(parents=True, exist_ok=True)
            _make_folder(whole, _OWNERS[owner])
        elif mount.kind == "files":
            _make_private(memory_folder(plan.run_id))
            _make_folder(str(files_folder(plan.run_id, slot)))
            _make_folder(whole)
        if mount.sub_path is not None and (part := source_at_path(mount, plan, slot, machine)):
            _make_part(part, whole, is_file=mount.sub_path in [file.path for file in mount.files])


def _make_private(folder: Path) -> None:
    """Make a folder where every user may. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))


def _make_folder(path: str, mode: int = 0o777) -> None:
    """Make a folder in which the user of any image may write."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, mode)


def _make_part(part: str, whole: str, *, is_file: bool) -> None:
    """Make what is mounted of a volume, if it is missing. Kubernetes: it is a folder then. is_file:
    whether it is a file, which nodes write. Raises OSError, also if a link leads out of the
    volume."""
    real, inside = check_inside(part, whole), os.path.realpath(whole)
    if os.path.lexists(real):
        return
    names = os.path.relpath(real, inside).split("/")
    folder = _make_below(inside, names[:-1] if is_file else names, 0o777)
    try:
        if is_file:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            with open(os.open(names[-1], flags, 0o600, dir_fd=folder), "wb") as file:
                os.fchmod(file.fileno(), 0o666)
    finally:
        os.close(folder)


def _make_below(root: str, names: Sequence[str], mode: int) -> int:
    """Open a folder below another one, and make what is missing on the way. Containers may write
    there, so no link is followed. Raises OSError."""
    folder = os.open(root, _FOLDER)
    for name in names:
        try:
            is_new = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
                is_new = True
            below = os.open(name, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
        if is_new:
            os.fchmod(folder, mode)
    return folder


def empty(part: str, whole: str, keep: Collection[str]) -> None:
    """Empty what is mounted of a volume, as `empty_folder` does. Raises OSError, also if a link
    leads out of the volume."""
    real, inside = check_inside(part, whole), os.path.realpath(whole)
    folder = folder_access.descend(inside, os.path.relpath(real, inside))
    try:
        empty_folder(f"/proc/self/fd/{folder}", keep)
    finally:
        os.close(folder)


def write_files(root: Path, files: Sequence[GivenFile], owner: tuple[int, int] | None) -> None:
    """Write given files in the folder of a slot, in place. owner: user and group that get them;
    None: this process's. Containers may write in the folders of the files, so no link is followed.
    Raises OSError."""
    for file in files:
        *names, name = os.path.relpath(file.path, root).split("/")
        folder = _make_below(str(root), names, 0o755)
        try:
            with open(_open_to_write(name, folder), "wb") as opened:
                opened.truncate()
                opened.write(given_files.content_of(file))
                with contextlib.suppress(PermissionError):  # another user's, who lets all write
                    os.fchmod(opened.fileno(), file.mode)
                if owner is not None:
                    os.fchown(opened.fileno(), *owner)
        finally:
            os.close(folder)


def _open_to_write(name: str, folder: int) -> int:
    """Open a regular file in an opened folder, or create it. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        there = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            if stat.S_ISREG(os.fstat(there).st_mode):  # its owner may not be allowed to write
                os.chmod(f"/proc/self/fd/{there}", 0o600)
        finally:
            os.close(there)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    found = os.open(name, flags, 0o600, dir_fd=folder)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise OSError(errno.EINVAL, "it is no regular file", name)


def nested(path: str, binds: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names in a mounted folder below which others are mounted. To remove these here would
    unmount them in a container that runs."""
    start = f"{path.rstrip('/')}/"
    targets = (str(bind["Target"]) for bind in binds)
    return {target[len(start) :].split("/")[0] for target in targets if target.startswith(start)}


def check_inside(part: str, whole: str) -> str:
    """The real path of what is mounted of a volume. Raises OSError if a link leads out of it."""
    real, inside = os.path.realpath(part), os.path.realpath(whole)
    if not f"{real}/".startswith(f"{inside}/"):
        raise PermissionError(errno.EPERM, "a link leads out of what is mounted", part)
    return real


def remove_files(run_id: str, slot: int | None = None) -> None:
    """Remove the given files of a slot, or of all. Raises OSError."""
    folder = memory_folder(run_id) if slot is None else files_folder(run_id, slot)
    if os.path.lexists(folder):
        remove_tree(str(folder))
