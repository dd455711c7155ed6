"""What a node finds in its output directories: files of the nodes before it, which were collected
from other machines, and files that other nodes have written for all of them.

They arrive as archives (`node.code`), with the files that the node's folder lacks. What was
unpacked counts as sent (`node.tree_streams`): a file comes back only if it changes.
"""

from __future__ import annotations

import os
from typing import Dict, List

from muster.node.code import archive
from muster.node.messages import Outputs
from muster.node.transfer import receive
from muster.node.tree_streams import Version, add_notes, read_notes, version_at


def unpack(outputs: Outputs, archives: str, sent: str) -> None:
    """Unpack the files that a node lacks. archives: the folder of archives; sent: that of the notes
    of `tree_streams`. Raises OSError.

    A file here stays if it is newer and has changed since it was last sent: what a node wrote last
    may never have been collected.
    """
    for below, sha256 in outputs.archives.items():
        _unpack(outputs.folder, below, archive(archives, sha256), sent)


def _unpack(folder: str, below: str, path: str, sent: str) -> None:
    """Unpack one archive. below: the path in the folder. path: the archive's."""
    known = read_notes(sent, folder)
    unpacked: List[str] = []
    left_out: List[str] = []

    def wanted(name: str, modified: float) -> bool:
        place = os.path.normpath(os.path.join(below, name))
        if _is_newer(version_at(folder, place), known.get(place), modified):
            return False
        unpacked.append(place)
        return True

    target = os.path.join(folder, below)
    os.makedirs(target, 0o700, exist_ok=True)
    try:
        with open(path, "rb") as file:
            receive(target, file, left_out.append, wanted)
    finally:
        add_notes(sent, folder, _versions(folder, unpacked))
    if left_out:
        raise OSError("the archive of its outputs has %s" % left_out[0])


def _is_newer(now: Version | None, sent: Version | None, modified: float) -> bool:
    """Whether a file that was not sent as it is now was modified later than another one."""
    # an archive has times that are exact to less than a microsecond
    return now is not None and now != sent and now[2] > modified * 1e9 + 1000


def _versions(folder: str, places: List[str]) -> Dict[str, Version]:
    found = {place: version_at(folder, place) for place in places}
    return {place: now for place, now in found.items() if now is not None}
