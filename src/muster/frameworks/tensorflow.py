"""TensorFlow: `TF_CONFIG`, by which tf.distribute's multi-worker strategies find each other.

Every node runs the owner's program, which is told its part by the name of its node group. Groups
without parameter servers are those of MultiWorkerMirroredStrategy: they work in step, all or none.
With parameter servers, the chief's program drives those of the others, which serve it and never
return (tf.distribute.Server.join).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Framework, Need, Network, Role, RoleSetup, Setup
from muster.frameworks.ports import port_of
from muster.frameworks.program_source import calls

DEFAULT_PORT = 12345  # ADS's; TensorFlow itself has none

#: With it, tf.keras is Keras 2 (TensorFlow 2.16 and newer).
_LEGACY = "TF_USE_LEGACY_KERAS"
#: What TF_CONFIG calls a task -> what a group of such nodes may be called.
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
        """Of Keras 3, whose fit does not know this strategy."""
        del network
        names = {name for name, _, _ in calls(source)}
        told = _LEGACY in env or _LEGACY in source
        if told or not {"MultiWorkerMirroredStrategy", "fit"} <= names:
            return ()
        return (
            "Keras 3 cannot fit a model under MultiWorkerMirroredStrategy; Keras 2 can: "
            f"pip install tf_keras, and env: {{{_LEGACY}: 1}}",
        )

    def setup(self, cluster: Cluster) -> Setup:
        """TF_CONFIG for every node.

        Raises InvalidInput if a group has a name that stands for no task, if the tasks make no
        cluster, or if TF_PORT or WORKER_PORT is set to something that is no port.
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
            "TF_CPP_MIN_LOG_LEVEL": "2",  # errors; of the rest it has much, on every start
        }
        if served:
            # the chief hears of a lost worker instead of waiting for it (TensorFlow's guide to
            # ParameterServerStrategy)
            defaults["GRPC_FAIL_FAST"] = "use_caller"
        return Setup(
            defaults=defaults,
            # its server listens on every address, whichever it is given
            ports=(replace(port, wildcard=True),),
            roles={
                role.name: RoleSetup(
                    decides=not served or task in ("chief", "evaluator"),
                    # nobody is in step with an evaluator; and where the workers serve, they and
                    # the chief find each other again. What a parameter server held is lost
                    replaceable=task == "evaluator" or (served and task != "ps"),
                    env={"TF_CONFIG": _tf_config(tasks, task)},
                )
                for task, role in tasks.items()
            },
        )


def _tf_config(tasks: Mapping[str, Role], task: str) -> str:
    """An evaluator knows the cluster and is not of it."""
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
        yield Problem("processes_per_node", text, "leave it out: one uses all CPUs and GPUs")
    tasks: dict[str, Role] = {}
    for role in cluster.roles:
        path = f"node_groups[{role.name}]"
        task = _TASKS.get(role.name)
        if task is None:
            text = f"TensorFlow knows no task for a group called {role.name!r}"
            names = ", ".join(" or ".join(names) for names in _NAMES.values())
            yield Problem(f"{path}.name", text, f"call it by what it does: {names}")
        elif task in tasks:
            text = f"the nodes of {tasks[task].name} have the task {task} already"
            yield Problem(f"{path}.name", text, "make one group of the two")
        else:
            tasks[task] = role
    if len(tasks) == len(cluster.roles):
        yield from _missing(tasks)


def _missing(tasks: Mapping[str, Role]) -> Iterator[Problem]:
    """What keeps the tasks from being a cluster."""
    chief, ps = tasks.get("chief"), tasks.get("ps")
    if chief is not None and chief.size > 1:
        text = f"a cluster has one chief, not {chief.size}"
        hint = "give it one node, and the others to a group called workers"
        yield Problem(f"node_groups[{chief.name}].nodes", text, hint)
    if ps is not None:
        if chief is None:
            hint = "add a group called chief, with one node"
            yield Problem("node_groups", "parameter servers need a chief that drives them", hint)
        if "worker" not in tasks:
            text = "parameter servers need workers that train"
            yield Problem("node_groups", text, "add a group called workers")
    elif chief is None and "worker" not in tasks:
        text = "an evaluator needs somebody who trains"
        yield Problem("node_groups", text, "add a group called workers")
