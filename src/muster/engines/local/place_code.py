"""Put stored code into a node's working directory, without copying where that is possible.

The node may change its files: neither the stored code nor another node sees that. Small code is
copied. Files of large code share their blocks with the stored ones where the file system can
(reflinks). Elsewhere the stored folder is the lower layer of an overlay file system that only the
node sees, and the working directory is the upper one: outside the node it has what the node wrote.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path

from muster.engines.base import RunContext
from muster.engines.local import namespaces
from muster.engines.local.mounts import hold
from muster.node.files import remove_tree
from muster.plan.model import GroupPlan
from muster.storage.artifacts import ArtifactRef, entry_command, place_artifact
from muster.storage.home import Home

#: Code with fewer bytes is always copied, which takes next to no time; each file takes as long to
#: copy as about this many bytes.
LARGE, COST_OF_A_FILE = 16 << 20, 16 << 10
_ALL_USERS = ["0", "0", "4294967295"]


def prepare_code(
    context: RunContext, group: GroupPlan, work: Path, *, mountable: bool
) -> list[str]:
    """Put the code into the working directory; returns the program's command line, empty if the
    group runs services only. mountable: see `place_code`. Raises MusterError, OSError."""
    plan = context.plan
    command = group.command
    if plan.artifact is not None:
        code = plan.artifact
        ref = ArtifactRef(code.sha256, code.file_name, code.kind, code.size)
        place_code(context.home, ref, work, mountable=mountable)
        command = command or entry_command(
            ref,
            plan.entrypoint_of(group),
            context.python,
            work,
            from_elsewhere=group.working_dir is not None,
        )
    if not group.role.program:
        return []
    assert command is not None, "the spec was checked: without an artifact there is a command"
    return [*command, *group.args]


def place_code(home: Home, ref: ArtifactRef, work: Path, *, mountable: bool) -> None:
    """Put the code into the working directory. mountable: this process has a mount namespace of its
    own, and the working directory is not limited in size. Raises MusterError."""
    if not (mountable and _mount_stored(home, ref, work)):
        place_artifact(home, ref, work)


def _mount_stored(home: Home, ref: ArtifactRef, work: Path) -> bool:
    """Show the stored code in the working directory if that is better than a copy."""
    if ref.kind != "archive" or ref.size < LARGE // 16:
        return False
    from muster.storage.code_trees import code_folder, extent_of, shares_blocks

    code = code_folder(home, ref.sha256)
    extent = None if code is None else extent_of(code)
    if code is None or extent is None or extent.size + extent.files * COST_OF_A_FILE < LARGE:
        return False
    return not shares_blocks(code, work) and _mount_overlay(code, work)


def _mount_overlay(code: Path, work: Path) -> bool:
    """Mount an overlay file system at its upper layer, the working directory. False if the kernel
    refuses: this file system cannot be a layer, or user namespaces must not mount one."""
    layer = overlay_folder(work)
    with ExitStack() as opened:
        try:
            layer.mkdir(mode=0o700)
            # by descriptor: a path with a comma or a colon would be read as several
            held = [hold(str(path), opened) for path in (code, work, layer)]
            options = "lowerdir={},upperdir={},workdir={}".format(*held)
            namespaces.mount("overlay", str(work), "overlay", 0, f"{options},{_variant()}")
        except OSError:
            remove_tree(str(layer))
            return False
    # the kernel makes it inaccessible, also for the one who removes the run
    with suppress(OSError):
        os.chmod(layer / "work", 0o700)
    return True


def overlay_folder(work: Path) -> Path:
    """A folder that the kernel needs next to the upper layer."""
    return work.parent.parent / "overlay"


def _variant() -> str:
    """The options that depend on the user namespace: in one that does not have all users, the
    kernel keeps its notes in other attributes, and cannot rename folders of the lower layer."""
    with open("/proc/self/uid_map") as file:
        return "redirect_dir=on" if file.read().split() == _ALL_USERS else "userxattr"
