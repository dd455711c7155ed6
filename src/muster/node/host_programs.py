"""What programs on a node's host need of it: its environment, and the modules of this package."""

from __future__ import annotations

import contextlib
import os
from typing import Dict, Mapping

from muster.node.files import read_regular, replace_file

#: Variables that belong to the connection, or the session of a terminal, from which a node server
#: was started, and end before it does; and Muster's own, which each node gets.
_OF_CONNECTION = frozenset(
    (
        *("_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLUMNS", "LINES", "TMUX", "TMUX_PANE", "STY"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"),
        *("XDG_RUNTIME_DIR", "XDG_SEAT", "XDG_VTNR"),
    )
)
#: Variables of a step of Slurm: programs and MPI would take them for those of their own ranks.
_OF_STEP = ("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_")
_KEPT = frozenset(
    (
        *("SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOB_NAME"),
        *("SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS", "SLURMD_NODENAME"),
    )
)
_PREFIXES = ("SSH_", "MUSTER_", "XDG_SESSION_", *_OF_STEP)
#: The part of a server's folder with the modules, if they cannot be used where they are.
_MODULES = "modules"
#: The file with the path of the link to it.
_SHORT = "short"
#: The most bytes of a path below which programs can have sockets: theirs has at most 107.
_MAX_SHORT = 30


def inherited(environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables that programs of a node inherit. environ: the environment of its server."""
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT or (name not in _OF_CONNECTION and not name.startswith(_PREFIXES))
    }


def provide_modules(folder: str, version: str) -> str:
    """The folder from which any Python can import `muster.node`, and in which nothing else can be
    imported: that of the unpacked node program, or a part of the node server's folder. Raises
    OSError.

    version: Muster's.
    """
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.isfile(os.path.join(top, "__main__.py")):  # its folder; none is in a zip archive
        return top
    from importlib.resources import files  # it takes its time

    package = files("muster.node")
    place = os.path.join(folder, _MODULES)
    copies = os.path.join(place, "muster", "node")
    os.makedirs(copies, exist_ok=True)
    about = "__version__ = %r\n" % version
    replace_file(os.path.join(place, "muster", "__init__.py"), about.encode())
    for module in package.iterdir():  # of a zip archive, or of an installed Muster
        if module.name.endswith(".py"):
            replace_file(os.path.join(copies, module.name), module.read_bytes())
    return place


def provide_short(folder: str) -> str:
    """A path of a node server's folder that is short enough for Unix sockets below it: its own, or
    a link to it in /tmp, which `remove_short` removes. Raises OSError."""
    if len(os.fsencode(folder)) <= _MAX_SHORT:
        return folder
    note = os.path.join(folder, _SHORT)
    with contextlib.suppress(OSError):
        known = read_regular(note).decode()
        if os.readlink(known) == folder:
            return known
    path = "/tmp/muster-%s" % os.urandom(4).hex()
    replace_file(note, path.encode(), 0o600)
    os.symlink(folder, path)
    return path


def remove_short(folder: str) -> None:
    """Remove the link to a node server's folder, if there is one."""
    with contextlib.suppress(OSError):
        known = read_regular(os.path.join(folder, _SHORT)).decode()
        if os.readlink(known) == folder:
            os.unlink(known)
