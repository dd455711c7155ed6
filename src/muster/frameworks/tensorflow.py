"""TensorFlow: `TF_CONFIG`, from which tf.distribute's multi-worker strategies know the cluster.

Every node runs the user's program; the name of its node group sets its task. Without parameter
servers, the groups are for MultiWorkerMirroredStrategy, whose workers proceed in step. With
parameter servers, the chief's program drives the others, which serve it and never return
(tf.distribute.Server.join).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Framework, Need, Network, Role, RoleSetup, Setup
from muster.frameworks.ports import port_of
from muster.frameworks.program_source import calls

DEFAULT_PORT = 12345  # ADS's; TensorFlow has no default

#: Makes tf.keras Keras 2 (TensorFlow 2.16 and newer).
_LEGACY = "TF_USE_LEGACY_KERAS"
#: Task in TF_CONFIG -> names of node groups with this task.
_NAMES = {
    "chief": ("chief", "main"),
    "worker": ("worker", "workers"),
    "ps": ("ps", "parameter-server", "parameter-servers"),
    "evaluator": ("evaluator", "evaluators"),
}
_TASKS = {name: task for task, names in _NAMES.items() for name in names}


class TensorFlow(Framework):
    name = "tensorflow"
    summary = "tf.distribute over all nodes: mirrored workers, or parameter servers"
    needs = (
        Need(str(DEFAULT_PORT), "every", "TensorFlow's server, for all other nodes but evaluators"),
        Need("any", "every", "NCCL, between the GPUs of every two nodes"),
    )

    def advice(self, source: str, network: Network, env: Collection[str]) -> tuple[str, ...]:
        """About Keras 3, whose fit does not support MultiWorkerMirroredStrategy."""
        del network
        names = {name for name, _, _ in calls(source)}
        legacy = _LEGACY in env or _LEGACY in source
        if legacy or not {"MultiWorkerMirroredStrategy", "fit"} <= names:
            return ()
        return (
            "Keras 3 cannot fit a model under MultiWorkerMirroredStrategy; Keras 2 can: "
            f"pip install tf_keras, and env: {{{_LEGACY}: 1}}",
        )

    def setup(self, cluster: Cluster) -> Setup:
        """TF_CONFIG for every node.

        Raises InvalidInput if a group's name is not that of a task, if the tasks do not form a
        cluster, or if TF_PORT or WORKER_PORT is not a port.
        """
        problems = list(_problems(cluster))
        try:
            port = port_of(cluster, "server", DEFAULT_PORT, "TF_PORT", "WORKER_PORT", each=True)
        except InvalidInput as error:
            problems += error.problems
        if problems:
            raise InvalidInput(*problems)
        tasks = {_TASKS[role.name]: role for role in cluster.roles}
        served = "ps" in tasks
        defaults = {
            "TF_NUM_INTRAOP_THREADS": "${cpus}",
            "TF_CPP_MIN_LOG_LEVEL": "2",  # only errors; it logs much else at each start
        }
        if served:
            # report a lost worker to the chief instead of waiting for it (TensorFlow's guide to
            # ParameterServerStrategy)
            defaults["GRPC_FAIL_FAST"] = "use_caller"
        return Setup(
            defaults=defaults,
            # its server listens on every address
            ports=(replace(port, wildcard=True),),
            roles={
                role.name: RoleSetup(
                    decides=not served or task in ("chief", "evaluator"),
                    # evaluators are independent; workers that serve reconnect to the chief; the
                    # state of a parameter server would be lost
                    replaceable=task == "evaluator" or (served and task != "ps"),
                    env={"TF_CONFIG": _tf_config(tasks, task)},
                )
                for task, role in tasks.items()
            },
        )


def _tf_config(tasks: Mapping[str, Role], task: str) -> str:
    """Evaluators know the cluster but are not members of it."""
    members = {
        name: [f"${{roster.{rank}.address}}:${{port.server.{rank}}}" for rank in role.ranks]
        for name, role in tasks.items()
        if name != "evaluator"
    }
    cluster = json.dumps(members, separators=(",", ":"))
    return f'{{"cluster":{cluster},"task":{{"type":"{task}","index":${{group.rank}}}}}}'


def _problems(cluster: Cluster) -> Iterator[Problem]:
    if cluster.processes_per_node > 1:
        text = f"TensorFlow runs one process on a node, not {cluster.processes_per_node}"
        yield Problem(
            "processes_per_node", text, "leave it out; one process uses all CPUs and GPUs"
        )
    tasks: dict[str, Role] = {}
    for role in cluster.roles:
        path = f"node_groups[{role.name}]"
        task = _TASKS.get(role.name)
        if task is None:
            text = f"{role.name!r} is not the name of a task of TensorFlow"
            names = ", ".join(" or ".join(names) for names in _NAMES.values())
            yield Problem(f"{path}.name", text, f"use one of the tasks: {names}")
        elif task in tasks:
            text = f"group {tasks[task].name} already has the task {task}"
            yield Problem(f"{path}.name", text, "merge the two groups")
        else:
            tasks[task] = role
    if len(tasks) == len(cluster.roles):
        yield from _missing(tasks)


def _missing(tasks: Mapping[str, Role]) -> Iterator[Problem]:
    """Reasons why the tasks do not form a cluster."""
    chief, ps = tasks.get("chief"), tasks.get("ps")
    if chief is not None and chief.size > 1:
        text = f"a cluster has one chief, not {chief.size}"
        hint = "give it one node, and put the others into a group named workers"
        yield Problem(f"node_groups[{chief.name}].nodes", text, hint)
    if ps is not None:
        if chief is None:
            hint = "add a group named chief, with one node"
            yield Problem("node_groups", "parameter servers need a chief", hint)
        if "worker" not in tasks:
            text = "parameter servers need workers"
            yield Problem("node_groups", text, "add a group named workers")
    elif chief is None and "worker" not in tasks:
        text = "an evaluator needs workers"
        yield Problem("node_groups", text, "add a group named workers")
