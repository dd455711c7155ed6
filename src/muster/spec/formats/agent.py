"""JobSet's in-place restart agent: recognised, and replaced by Muster's own way to restart.

The agent is either the only container and runs the worker itself, or stands beside it as an init
container that never ends.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import Problem
from muster.spec.formats.kubernetes import Container, PodSpec

NAME = "in-place-restart-agent"
WORKER_COMMAND = "WORKER_COMMAND"
#: What the agent itself is told; not meant for the worker.
_ITS_OWN = (
    "JOBSET_NAME",
    "POD_NAME",
    "STARTUP_PROBE_PATH",
    "STARTUP_PROBE_PORT",
    "IN_PLACE_RESTART_EXIT_CODE",
)


class Main(Struct, frozen=True):
    """The container whose program Muster runs. path: where it stands; agent: whether the pod had
    one."""

    container: Container
    path: str
    agent: bool = False


def is_agent(container: Container) -> bool:
    """Whether a container is JobSet's agent, by its name or its image's."""
    return NAME in container.name or NAME in container.image


def main_container(pod: PodSpec, path: str, problems: list[Problem]) -> Main | None:
    """The one container that is left when the agent is gone."""
    agents = [c for c in pod.init_containers if is_agent(c)]
    for number, container in enumerate(pod.init_containers):
        if container not in agents:
            hint = (
                "do its work first in the command, or in a replicated Job that this one dependsOn"
            )
            text = f"Muster runs no init containers, and {container.name} is one"
            if container.restart_policy == "Always":
                text = f"Muster runs no sidecars, and {container.name} is one"
                hint = "start it in the command, or make it a replicated Job of its own"
            problems.append(Problem(f"{path}.initContainers[{number}]", text, hint))
    if not pod.containers:
        problems.append(Problem(f"{path}.containers", "is empty", "give it a container"))
        return None
    for number, container in enumerate(pod.containers[1:], 1):
        text = f"Muster runs one container of a pod, and {container.name} is another"
        hint = "make it a replicated Job of its own"
        problems.append(Problem(f"{path}.containers[{number}]", text, hint))
    main, where = pod.containers[0], f"{path}.containers[0]"
    if is_agent(main) and not main.command:
        return Main(_worker(main, where, problems), where, agent=True)
    _own_restarts(main, where, bool(agents), problems)
    return Main(main, where, bool(agents))


def _worker(agent: Container, path: str, problems: list[Problem]) -> Container:
    """What the agent would run: a command for a shell, in its own environment."""
    said = next((var for var in agent.env if var.name == WORKER_COMMAND), None)
    if said is None or not said.value:
        text = f"{agent.name} has no {WORKER_COMMAND}, so there is nothing to run"
        problems.append(Problem(f"{path}.env", text, f"give it {WORKER_COMMAND}"))
    shell = next((var.value for var in agent.env if var.name == "SHELL" and var.value), "bash")
    env = tuple(var for var in agent.env if var.name not in (*_ITS_OWN, WORKER_COMMAND))
    # Kubernetes expands the variable's value, which is then the shell's
    script = said.value if said is not None and said.value else ""
    command = (shell, "-c", script)
    return replace(agent, image="", command=command, args=(), env=env, startup_probe=None)


def _own_restarts(main: Container, path: str, agent: bool, problems: list[Problem]) -> None:
    if agent or not (main.restart_policy or main.restart_policy_rules):
        return
    name = "restartPolicy" if main.restart_policy else "restartPolicyRules"
    text = "Muster has no restarts of a container by itself"
    hint = "say it for the pod, one level up, or in spec.failurePolicy"
    problems.append(Problem(f"{path}.{name}", text, hint))
