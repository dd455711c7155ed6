"""What a node that has ended has left on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from muster.errors import InvalidInput, Problem
from muster.node.folder_access import Walk, descend, open_below, walk
from muster.storage.entrypoint import folder_name
from muster.storage.layers import Layers, open_place
from muster.storage.owners import account_of_run
from muster.storage.run_files import slot_of
from muster.storage.sealing import unseal
from muster.store.run_columns import StoredPlan
from muster.unix_account import acting_as

if TYPE_CHECKING:
    from muster.api.node_paths import NodePath
    from muster.service.embedded import EmbeddedAPI
    from muster.store.records import NodeRecord, RunSummary


class Saved(NamedTuple):
    """An opened file or folder of a node that has ended."""

    descriptor: int
    walk: Walk = walk
    #: What is not part of it any more.
    lacks: str = ""


def open_saved(api: EmbeddedAPI, place: NodePath, run: RunSummary, node: NodeRecord) -> Saved:
    """Open what a node that has ended has left on the disk: its outputs, those of the run, and its
    working directory. Links that lead elsewhere are not followed. Raises InvalidInput."""
    with acting_as(account_of_run(api.home.run_dir(run.id))):
        return _open_saved(api, place, run, node)


def _open_saved(api: EmbeddedAPI, place: NodePath, run: RunSummary, node: NodeRecord) -> Saved:
    run_dir = api.home.run_dir(run.id)
    plan = StoredPlan(api.run(run.id))
    own = run_dir.output(node.rank, own=plan.node_outputs())
    outputs = {"MUSTER_OUTPUTS": own, "MUSTER_RUN_OUTPUTS": run_dir.outputs}
    path = Template(place.path).safe_substitute(outputs)
    code, start = _start_folder(plan, node.group)
    start = unseal(api.home, start, f"run {run.name}")
    slot = slot_of(run_dir, node.rank)
    work = run_dir.work(node.rank if slot is None else slot)
    real = os.path.realpath(work / code / start / path)
    layers = None if slot is None else _layers(api, plan, run.id, slot, work / code)
    roots = [run_dir.outputs, *([] if layers is None else [layers.upper])]
    roots += [] if slot is None else [work]
    # programs may replace these folders themselves by links, but not the run's folder
    trusted = os.path.realpath(run_dir.path)
    for folder in roots:
        root = os.path.join(trusted, folder.relative_to(run_dir.path))
        if os.path.commonpath((root, real)) != root:
            continue
        below = os.path.relpath(real, root)
        layered = layers is not None and folder == layers.upper
        lacks = ""
        if layered and layers is not None and not layers.lower.is_dir():
            lacks = "the code that the node did not change was deleted with its job"
        try:
            if layered and layers is not None:
                upper = descend(trusted, os.path.relpath(root, trusted))
                return Saved(*open_place(layers, upper, below), lacks)
            return Saved(open_below(trusted, os.path.relpath(real, trusted)))
        except OSError as error:
            text = f"{error.strerror}; node-{node.rank} of {run.name} is {node.state}"
            text += f", and {lacks}" if lacks else ""
            raise InvalidInput(Problem(str(place), text, _hint(run, node))) from None
    text = f"node-{node.rank} of {run.name} is {node.state}"
    if slot is None:
        others = "its working directory has been reused by another replica; "
        is_array = any(one.name == node.group for one in plan.arrays())
        text += f": {others if is_array else ''}only its outputs are kept"
    else:
        text += ": of its files, only its outputs and its working directory are kept"
    raise InvalidInput(Problem(str(place), text, _hint(run, node)))


def _layers(
    api: EmbeddedAPI, plan: StoredPlan, run_id: str, slot: int, upper: Path
) -> Layers | None:
    """The layers of a node's code; None if its working directory has all of it."""
    if not api.home.run_dir(run_id).overlay(slot).is_dir():
        return None
    sha256 = plan.get("artifact")["sha256"]
    return Layers(upper, api.home.artifact(sha256) / "code")


def _hint(run: RunSummary, node: NodeRecord) -> str:
    return f"`muster outputs {run.name} --rank {node.rank}` lists its outputs"


def _start_folder(plan: StoredPlan, group: str) -> tuple[str, str]:
    """The folder of the code in `RunDir.work`, and where the programs of a group started in it."""
    artifact = plan.get("artifact")
    code = folder_name(artifact["kind"], artifact["file_name"]) if artifact else ""
    (working_dir,) = [g.get("working_dir") for g in plan.get("groups") if g["name"] == group]
    return code, working_dir or ""
