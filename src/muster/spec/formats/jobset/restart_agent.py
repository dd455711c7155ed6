"""Find a pod's main container, and remove JobSet's in-place restart agent.

Muster restarts programs in place itself. The agent is either the only container, which runs the
worker as a child, or a sidecar (an init container that does not end).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import Problem
from muster.spec.formats.jobset.kubernetes import Container, PodSpec

NAME = "in-place-restart-agent"
WORKER_COMMAND = "WORKER_COMMAND"
#: Variables of the agent, which the worker does not get.
_AGENT_VARIABLES = (
    "JOBSET_NAME",
    "POD_NAME",
    "STARTUP_PROBE_PATH",
    "STARTUP_PROBE_PORT",
    "IN_PLACE_RESTART_EXIT_CODE",
)


class Main(Struct, frozen=True):
    """The container whose program Muster runs."""

    container: Container
    #: Its place in the manifest.
    path: str
    #: Whether the pod has an in-place restart agent.
    agent: bool = False


def is_agent(container: Container) -> bool:
    """Whether a container is JobSet's agent, by its name or its image."""
    return NAME in container.name or NAME in container.image


def main_container(
    pod: PodSpec, path: str, problems: list[Problem], *, single: bool
) -> Main | None:
    """The first container, which is that of the program. single: whether the Job is not a
    JobSet's."""
    agents = [c for c in pod.init_containers if is_agent(c)]
    if not pod.containers:
        problems.append(Problem(f"{path}.containers", "is empty", "give it a container"))
        return None
    main, where = pod.containers[0], f"{path}.containers[0]"
    if is_agent(main) and not main.command:
        return Main(_worker(main, where, problems), where, agent=True)
    if not agents:
        _check_restart_policy(main, where, problems, single=single)
    return Main(main, where, bool(agents))


def _worker(agent: Container, path: str, problems: list[Problem]) -> Container:
    """The agent's worker: a shell command in the agent's environment."""
    worker = next((var for var in agent.env if var.name == WORKER_COMMAND), None)
    if worker is None or not worker.value:
        text = f"{agent.name} has no {WORKER_COMMAND}, so there is nothing to run"
        problems.append(Problem(f"{path}.env", text, f"give it {WORKER_COMMAND}"))
    shell = next((var.value for var in agent.env if var.name == "SHELL" and var.value), "bash")
    env = tuple(var for var in agent.env if var.name not in (*_AGENT_VARIABLES, WORKER_COMMAND))
    # Kubernetes expands the variable's value before the shell runs it
    script = worker.value if worker is not None and worker.value else ""
    command = (shell, "-c", script)
    return replace(agent, image="", command=command, args=(), env=env, startup_probe=None)


def _check_restart_policy(
    main: Container, path: str, problems: list[Problem], *, single: bool
) -> None:
    if not (main.restart_policy or main.restart_policy_rules):
        return
    name = "restartPolicy" if main.restart_policy else "restartPolicyRules"
    text = "Muster does not restart single containers of a pod"
    hint = "set it for the pod, one level up" + ("" if single else ", or in spec.failurePolicy")
    problems.append(Problem(f"{path}.{name}", text, hint))
