"""A node's own disk: a file system of the size it asked for, in a file.

It is mounted in the node's own mount namespace, and its file has no name any more then. So the
kernel unmounts it, frees the loop device and the space when the last process of the node is gone,
however it ended.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from muster.engines.local import isolation, linux
from muster.engines.local.clearing import SCRATCH
from muster.errors import EngineError

#: What of a node's folder is on its disk: the rest is for others to see.
_PLACES = ("work", "tmp", *(name for name, _ in SCRATCH.values()))
#: The least that a file system can be made in (bytes).
LEAST = 16 << 20


def impossible() -> tuple[str, str] | None:
    """Why there is none here, and what to do; None if there can be."""
    if why := isolation.impossible():
        return why, "unset it" if linux.AVAILABLE else "use Linux"
    if os.geteuid() != 0:
        return "only root may mount one", "run muster as root"
    if shutil.which("mkfs.ext4") is None:
        return "mkfs.ext4 is not installed", "apt-get install e2fsprogs"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices", "modprobe loop"
    return None


def lay(folder: Path, size: int) -> None:
    """Have what is the node's own in its folder on a disk of `size` bytes. To be called in its
    mount namespace. Raises EngineError, OSError."""
    image, disk = folder / "disk.img", folder / "disk"
    image.unlink(missing_ok=True)
    disk.mkdir(exist_ok=True)
    with open(image, "xb") as file:
        file.truncate(size)
    try:
        # nothing is reserved for root, and no journal is needed of what nobody mounts again
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image))
        _run("mount", "-t", "ext4", "-o", "loop,noatime", str(image), str(disk))
    finally:
        image.unlink()
    (disk / "lost+found").rmdir()
    for name in _PLACES:
        for place in (folder / name, disk / name):
            place.mkdir(mode=0o700, exist_ok=True)
        linux.bind(str(disk / name), str(folder / name))


def _run(*argv: str) -> None:
    import subprocess  # hardly any run needs it

    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise EngineError(f"the node's disk cannot be made: {argv[0]}: {said}")
