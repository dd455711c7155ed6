"""Output files of the ranks that a launcher starts on its node: where the agent says they are.

They are appended to, so what a rank wrote before it was restarted stays.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, MutableMapping, NamedTuple, Tuple

from muster.node.files import open_own

VARIABLE = "MUSTER_RANKS"


class RankOutputs(NamedTuple):
    """files: (stdout, stderr) of each local rank. error_file: where the launcher notes why the rank
    at fault has failed (see `error_file`)."""

    files: List[Tuple[str, str]]
    error_file: str


def announce(launch: Mapping[str, Any]) -> Dict[str, str]:
    """For the launcher's environment; empty where its ranks write to its own files."""
    if not launch["ranks"]:
        return {}
    files = [(rank["stdout"], rank["stderr"]) for rank in launch["ranks"]]
    return {VARIABLE: json.dumps([files, launch["processes"][0]["error_file"]])}


def take(environ: MutableMapping[str, str]) -> RankOutputs | None:
    """What the agent announced, if it did; removed so that ranks do not inherit it."""
    announced = environ.pop(VARIABLE, None)
    if announced is None:
        return None
    files, error_file = json.loads(announced)
    return RankOutputs([(stdout, stderr) for stdout, stderr in files], error_file)


def open_output(path: str) -> int:
    """A descriptor for a rank to inherit. A program may have put a pipe there, which is removed.
    Raises OSError."""
    descriptor = open_own(path, os.O_WRONLY | os.O_APPEND, 0o644)
    os.set_blocking(descriptor, True)
    return descriptor
