"""The bodies of the calls that create the other containers of a node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from muster.engines.container import bodies
from muster.engines.container.bodies import Machine
from muster.engines.container.record import Image
from muster.plan.model import ExtraContainerPlan, RunPlan
from muster.secrets import hidden_words, hide

#: Variables that every container has, and what they are.
_VARIABLES = {
    "HOSTNAME": "${hostname}",
    "MUSTER_RUN_ID": "${run.id}",
    "MUSTER_RUN_NAME": "${run.name}",
    "MUSTER_RUN_REPLICA": "${run.replica}",
    "MUSTER_RUN_RESTARTS": "${run.restarts}",
    "MUSTER_ATTEMPT": "${attempt}",
    "MUSTER_RANK": "${rank}",
    "MUSTER_GROUP": "${group}",
    "MUSTER_REPLICA": "${replica}",
    "MUSTER_INDEX": "${index}",
    "MUSTER_HOSTNAME": "${hostname}",
    "MUSTER_NODE_ADDRESS": "${address}",
}


def extra_name(run_id: str, slot: int, name: str) -> str:
    """The name of another container of a slot."""
    return f"{bodies.container_name(run_id, slot)}-{name}"


def extra_binds(
    plan: RunPlan, slot: int, one: ExtraContainerPlan, machine: Machine
) -> Sequence[Mapping[str, Any]]:
    """All that it has of this machine."""
    own = bodies.binds_of(one.mounts, plan, slot, machine)
    return bodies.in_order([*bodies.profile_binds(machine), *own])


def extra_body(
    plan: RunPlan,
    slot: int,
    one: ExtraContainerPlan,
    image: Image,
    machine: Machine,
    fill: Callable[[str], str],
    number: int,
) -> dict[str, Any]:
    """Of POST /containers/create. fill: fills placeholders. number: of the incarnation."""
    entrypoint, command = _program(one, image)
    user, namespace = bodies.user_of(one.container.user or image.user, machine)
    node = bodies.container_name(plan.run_id, slot)
    env = {name: fill(text) for name, text in {**_VARIABLES, **one.node_env}.items()}
    body: dict[str, Any] = {
        "Image": image.id,
        "User": user,
        "Env": [f"{name}={text}" for name, text in {**env, **one.env}.items()],
        "Entrypoint": entrypoint,
        "Cmd": [*command, *map(fill, one.node_args)],
        "WorkingDir": one.working_dir or image.working_dir or "/",
        "Labels": {
            **bodies.run_labels(plan.run_id),
            bodies.SLOT: str(slot),
            bodies.NAME: one.name,
            bodies.INCARNATION: str(number),
        },
        "HostConfig": {
            "NetworkMode": f"container:{node}" if bodies.has_network(plan) else "host",
            "IpcMode": f"container:{node}",
            "Mounts": extra_binds(plan, slot, one, machine),
            "Ulimits": bodies.ulimits_of(one.container),
            **bodies.security_of(one.container),
            **bodies.limits_of(bodies.usable(one.resources, machine)),
        },
    }
    if namespace:
        body["HostConfig"]["UsernsMode"] = f"container:{node}"
    if not bodies.has_network(plan):  # else its files are those of the node
        body["HostConfig"]["ExtraHosts"] = bodies.extra_hosts(plan)
    return body


def _program(one: ExtraContainerPlan, image: Image) -> tuple[list[str], list[str]]:
    """ENTRYPOINT and CMD. Kubernetes: a command replaces both, args only CMD."""
    if one.command is not None:
        return list(one.command), list(one.args or ())
    return list(image.entrypoint), list(image.command if one.args is None else one.args)


def shown_body(plan: RunPlan, slot: int, one: ExtraContainerPlan, machine: Machine) -> Any:
    """The body for people, before the node has started. Its placeholders are not filled."""
    image = Image(one.image)
    env = {name: hide(name, text) for name, text in one.env.items()}
    node_env = {name: hide(name, text) for name, text in one.node_env.items()}
    one = replace(one, env=env, node_env=node_env)
    body = extra_body(plan, slot, one, image, machine, lambda text: text, 0)
    for name in ("Entrypoint", "Cmd"):
        body[name] = hidden_words(body[name])
    if one.command is None:  # the image's own
        del body["Entrypoint"]
    if one.command is None and one.args is None:
        del body["Cmd"]
    if one.working_dir is None:
        del body["WorkingDir"]
    return body
