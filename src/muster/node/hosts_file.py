"""Add the names of nodes to a hosts file that is a node's own, as that of a pod.

What made the file keeps the lines above ours, and may write it again at any time, as the kubelet
does when a container of the pod starts: so the names are added before each start of a program.
Where only another user may write it, nodes are found by their addresses only.
"""

from __future__ import annotations

import os
import sys
from typing import Iterable, NamedTuple, Sequence, Tuple

from muster.node.files import read_regular

_MARK = b"# nodes of the run, by Muster"
#: How a line of the node program begins that says nothing of its end.
NOTE = "muster-node: note: "


class HostsFile(NamedTuple):
    """A hosts file, and the file with the lines that are added to it."""

    path: str
    names: str

    def update(self) -> None:
        """Add the names as they are now, instead of those that were added before. It is written in
        place: in a container, it is mounted by itself."""
        try:
            names = read_regular(self.names)
            with open(self.path, "r+b") as file:
                found = file.read()
                above = found.partition(b"\n" + _MARK)[0].rstrip(b"\n")
                wanted = above + b"\n\n" + _MARK + b"\n" + names
                if found != wanted:
                    file.seek(0)
                    file.write(wanted)
                    file.truncate()
        except OSError as error:
            text = "%snames of nodes do not resolve: %s cannot be written by user %d: %s\n"
            sys.stderr.write(text % (NOTE, self.path, os.geteuid(), error.strerror))


def names_beside(folder: str) -> str:
    """The file with the lines, in the folder of a node server."""
    return os.path.join(folder, "cluster", "names")


def encode_names(entries: Iterable[Tuple[str, Sequence[str]]]) -> str:
    """The lines for addresses and their names."""
    return "".join("%s %s\n" % (address, " ".join(names)) for address, names in entries)
