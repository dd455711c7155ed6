"""What a run finds of the event that has started it: variables, tags, and files.

The files are mounts of its plan and not of its spec: they are no settings, and paths of a server's
folders are not for users to name.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.lifecycle.trigger import Event
from muster.plan.model import FilePlan, MountPlan, RunPlan
from muster.spec.values import AFTER_TAG, EVENT_TAG
from muster.storage.owners import account_of_run
from muster.unix_account import acting_as

if TYPE_CHECKING:
    from muster.storage.home import Home
    from muster.unix_account import UnixAccount

#: The variable with the path of a file: the event as JSON or, of a webhook, what was sent.
EVENT_VARIABLE = "MUSTER_EVENT"
#: The variable with the path of the outputs of the run that has ended.
OUTPUTS_VARIABLE = "MUSTER_AFTER_OUTPUTS"
_EVENT_FILE = "event.json"
_VARIABLES = (EVENT_VARIABLE, OUTPUTS_VARIABLE)


class Inputs(Struct, frozen=True):
    """What a run finds, of an event or of a run before it."""

    mounts: tuple[MountPlan, ...] = ()
    notes: tuple[str, ...] = ()
    """On what it does not find."""


def variables_of(event: Event) -> dict[str, str]:
    """Variables of the nodes."""
    found = {"MUSTER_EVENT_ID": event.id, "MUSTER_EVENT_TYPE": event.type}
    data = event.data
    if event.type.startswith("run."):
        found |= {
            "MUSTER_AFTER_RUN": str(data.get("name", "")),
            "MUSTER_AFTER_RUN_ID": str(data.get("id", "")),
            "MUSTER_AFTER_STATE": str(data.get("state", "")),
        }
    if event.type.startswith("object."):
        found |= {
            "MUSTER_OBJECT_BUCKET": str(data.get("bucket", "")),
            "MUSTER_OBJECT_NAME": str(data.get("name", "")),
        }
    return found


def tags_of(event: Event) -> dict[str, str]:
    """Tags of the run."""
    after = {AFTER_TAG: str(event.data["name"])} if event.type.startswith("run.") else {}
    return {EVENT_TAG: event.id, **after}


def event_mount(event: Event) -> MountPlan:
    """The file of an event. A webhook's is the body of the request, as it was sent."""
    if "body" in event.data:
        content = str(event.data["body"])
    else:
        content = b64encode(msgspec.json.encode(event)).decode()
    path = f"/mnt/muster-event/{_EVENT_FILE}"
    return MountPlan(
        source=f"files:{path}",
        kind="files",
        path=path,
        variable=EVENT_VARIABLE,
        read_only=True,
        # in base64 nothing looks like a placeholder
        files=(FilePlan(_EVENT_FILE, content, 0o444, is_base64=True),),
        sub_path=_EVENT_FILE,
    )


def inputs_of_event(
    home: Home, event: Event, account: UnixAccount | None, refused: str = ""
) -> Inputs:
    """What a run whose nodes have an account finds of an event. refused: why who starts it may not
    read the outputs of the run that the event is about."""
    found = event_mount(event)
    if not event.type.startswith("run."):
        return Inputs((found,))
    outputs = (
        no_outputs(refused)
        if refused
        else inputs_of_run(home, str(event.data["id"]), event.subject, account)
    )
    return Inputs((found, *outputs.mounts), outputs.notes)


def inputs_of_run(home: Home, run_id: str, name: str, account: UnixAccount | None) -> Inputs:
    """The outputs of a run with this name, to be read by nodes with an account: not if the run was
    deleted, or its files belong to another account."""
    folder = home.run_dir(run_id)
    if not folder.path.is_dir():
        return no_outputs(f"{name} was deleted")
    if account_of_run(folder) != account:
        text = f"the outputs of {name} are another user's"
        return no_outputs(f"{text}, whose runs have a Unix account of their own")
    with acting_as(account):
        folder.outputs.mkdir(mode=0o700, exist_ok=True)  # its nodes may not have started yet
    mount = MountPlan(
        source=str(folder.outputs),
        kind="directory",
        path="/mnt/muster-after",
        variable=OUTPUTS_VARIABLE,
        read_only=True,
    )
    return Inputs((mount,))


def no_outputs(why: str) -> Inputs:
    """That a run does not find the outputs of the one before it."""
    return Inputs(notes=(f"{OUTPUTS_VARIABLE} is not set: {why}",))


def with_inputs(plan: RunPlan, inputs: tuple[MountPlan, ...]) -> RunPlan:
    """A plan whose nodes find these mounts, too."""
    if not inputs:
        return plan
    groups = (replace(group, mounts=(*group.mounts, *inputs)) for group in plan.groups)
    return replace(plan, groups=tuple(groups))


def inputs_of(plan: RunPlan) -> tuple[MountPlan, ...]:
    """What `with_inputs` has given to the nodes of a run, and is still there."""
    mounts: Mapping[str, MountPlan] = {
        mount.variable: mount for group in plan.groups for mount in group.mounts
    }
    found = (mounts[name] for name in _VARIABLES if name in mounts)
    return tuple(one for one in found if one.kind == "files" or os.path.isdir(one.source))
