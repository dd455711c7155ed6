"""The artifact of a job: the node program, with a description of the job's nodes in it.

The service unpacks it and runs its `__main__.py`; for a job with an image it only places the file,
which Python runs as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from muster.engines.node_program import packed, program_files
from muster.engines.oci.details import node_groups
from muster.engines.remote.dialing import Dialing
from muster.engines.remote.resources import amounts_of
from muster.node.job_run import DESCRIPTION
from muster.plan.model import RunPlan

#: Read by the oldest of interpreters, so that they can say what is wrong.
_MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("muster: Python 3.9 or newer is required; %s is %d.%d"
             % ((sys.executable or "this interpreter",) + tuple(sys.version_info[:2])))

from muster import __version__
from muster.node.job_run import main

sys.exit(main(__version__))
"""


def description(
    plan: RunPlan,
    slots: Iterable[int],
    number: int,
    folder: str,
    dialing: Dialing,
    *,
    copy_log: bool,
) -> dict[str, Any]:
    """What the nodes of a job get: the fields of `node.job_run.Description`.

    slots: all for which it was made. number: of the allocation. folder: where nodes have their
    files. copy_log: see `node.serve.Settings`.
    """
    groups = node_groups(plan, slots)
    every = [slot for own in groups.values() for slot in own]
    common = {**dialing.settings(every[0], folder), "copy_log": copy_log}

    def own_settings(slot: int, group: str) -> dict[str, Any]:
        amounts = amounts_of(plan.group(group).resources)
        # the service limits what its machines have
        return {"rank": slot, "amounts": amounts._replace(required=[])._asdict()}

    return {
        "number": number,
        "folder": folder,
        "settings": common,
        "groups": groups,
        "nodes": {slot: own_settings(slot, name) for name, own in groups.items() for slot in own},
        "tokens": {slot: dialing.token(slot, number) for slot in every},
    }


def artifact(described: dict[str, Any]) -> bytes:
    """The content of the artifact. Raises OSError."""
    files = program_files()
    files["__main__.py"] = _MAIN.encode()
    files[f"muster/node/{DESCRIPTION}"] = json.dumps(described).encode()
    return packed(files)
