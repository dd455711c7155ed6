"""The environment variables of a node before the run has started: what is known, and descriptions
of the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable

from muster.plan.environment import (
    EngineValues,
    Environment,
    NodeValues,
    Origin,
    ProcessValues,
    Setting,
    environments,
    has_code_parent,
    has_tmpdir,
)
from muster.plan.model import GroupPlan, RunPlan
from muster.spec.oci_variables import ENTRYPOINT


def overridden(plan: RunPlan, group: GroupPlan) -> dict[str, Setting]:
    """The variables of `env` and `node_env` of a group that have other values.

    Except those that Muster follows and then sets to what they chose: the entry point and ports.
    """
    followed = {port.variable.removeprefix("env.") for port in plan.ports if port.fixed}
    own = {**group.env, **group.node_env}
    env = _planned_environment(plan, group, lambda template: template)
    names = own.keys() - followed - {ENTRYPOINT}
    settings = {name: env.setting(name) for name in names if env.values[name] != own[name]}
    chosen = (Origin.ENV, Origin.NODE_ENV)
    return {name: each for name, each in settings.items() if each.origin not in chosen}


def explained_environment(
    plan: RunPlan, group: GroupPlan, fill: Callable[[str], str]
) -> dict[str, Setting]:
    """The variables of a group's first process that the job or the framework sets, in that order,
    as they are known before the run has started. fill: shows placeholders for people."""
    env = _planned_environment(plan, group, fill)
    sources = (group.env, group.node_env, group.framework_defaults, group.framework_env)
    return {name: env.setting(name) for source in sources for name in source}


def _planned_environment(
    plan: RunPlan, group: GroupPlan, fill: Callable[[str], str]
) -> Environment:
    process = ProcessValues(fill, error_file="(a file of the process)")
    node = plan.first_node(group)
    (env,) = environments(plan, node, describe_values(plan, group), [process])
    return env


def describe_values(plan: RunPlan, group: GroupPlan) -> NodeValues:
    """The values of a group's first node before the run has started, as far as they are known;
    descriptions in parentheses of the others.

    Mounts are where nodes with namespaces see them.
    """
    quiet = plan.quiet is not None and group.first_rank == 0
    engine = EngineValues(
        token="(the run's token)",
        interface="(the node's interface)" if plan.own_interfaces else None,
        gpus="(the node's GPUs)" if group.resources.gpus else None,
    )
    return NodeValues(
        engine,
        environ={},
        python_folder="(the interpreter's folder)",
        cluster_file="(the cluster metadata file)",
        principal="(the folder of the run's credentials)",
        outputs="(the node's output directory)",
        run_outputs="(the run's output directory)",
        checkpoint="(the node's checkpoint file)",
        attempt="(the attempt)",
        incarnation="(the incarnation)",
        run_restarts="(the run's restarts)",
        run_started="(the run's first start)",
        tmpdir="(the node's folder for temporary files)" if has_tmpdir(plan, group) else None,
        code_parent="(the folder above the code)" if has_code_parent(plan) else None,
        quiet="(how to see whether the cluster is used)" if quiet else None,
    )
