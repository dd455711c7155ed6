"""The results of a program: the file `metrics.json`, in its output directory or, if that is the
node's own, its working directory."""

from __future__ import annotations

import json
import os
from typing import Dict, Iterator, Mapping, Tuple

from muster.node.files import is_within, read_regular

#: The file that a program may write, an object of JSON.
FILE = "metrics.json"
#: Bytes. Of larger files only the size is recorded: there may be thousands.
_LONGEST = 16 << 10
#: The key that says why a file was not recorded.
PROBLEM = "metrics.json"


#: Path -> what changes when a file is written or replaced.
Versions = Dict[str, Tuple[int, int, int]]


def versions(output_folder: str, cwd: str) -> Versions:
    """The files that exist before the program starts: an earlier incarnation has written them, or
    they belong to the code."""
    return dict(_versions(output_folder, cwd))


def _versions(*folders: str) -> Iterator[Tuple[str, Tuple[int, int, int]]]:
    for folder in folders:
        path = os.path.join(folder, FILE)
        try:
            found = os.lstat(path)
        except OSError:
            continue
        yield path, (found.st_ino, found.st_size, found.st_mtime_ns)


def read(
    output_folder: str, cwd: str, folder: str, before: Mapping[str, Tuple[int, int, int]]
) -> str:
    """The program's results as JSON text; "" if it left none.

    output_folder: that of the node. cwd: where the program runs; a file there counts if that is
    within `folder`, which is the node's own: elsewhere another node may have written it, and the
    results say only that. before:
    `versions` before the program started.
    """
    for path, version in _versions(output_folder, cwd):
        if before.get(path) == version:
            continue
        if os.path.dirname(path) != output_folder and not is_within(cwd, folder):
            return _problem("it is in a directory that is not the node's own; use $MUSTER_OUTPUTS")
        try:
            data = read_regular(path, _LONGEST + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            return _problem(error.strerror or str(error))
        return _checked(data)
    return ""


def _checked(data: bytes) -> str:
    if len(data) > _LONGEST:
        return _problem("it has more than %d KiB" % (_LONGEST >> 10))
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        return _problem("it is not JSON: %s" % error)
    if not isinstance(found, dict):
        return _problem("it is not an object")
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    # half of a surrogate pair is valid in JSON's escapes, and nowhere else
    return text.encode("utf-8", "replace").decode()


def _problem(text: str) -> str:
    return json.dumps({PROBLEM: text})
