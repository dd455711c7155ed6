"""Muster runs multi-node jobs on this machine.

    import muster

    run = muster.run("train.py", nodes=2, framework="pytorch", args=["--epochs", "3"])
    run.wait().state          # "SUCCEEDED"
    for record in run.logs():
        print(record.rank, record.message)

Everything public is listed in `__all__`; each name is imported when first used, so that
`import muster` is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than running this module
if TYPE_CHECKING:
    from typing import Any

    from muster.client.accounts import (
        Accounts,
        AuditEntry,
        Caller,
        Member,
        NewToken,
        Project,
        Secret,
        Token,
        User,
    )
    from muster.client.api import (
        cluster,
        create_job,
        create_notification,
        create_schedule,
        get_job,
        get_notification,
        get_run,
        get_schedule,
        jobs,
        notifications,
        prune,
        run,
        runs,
        schedules,
    )
    from muster.client.client import Client
    from muster.client.cluster import Cluster
    from muster.client.events import Event
    from muster.client.function import FunctionJob, FunctionRun, job
    from muster.client.job import Job, JobEvent
    from muster.client.log_records import LogRecord
    from muster.client.node import Node
    from muster.client.notification import Delivery, Notification
    from muster.client.outputs import Output, Outputs
    from muster.client.policies import (
        Compartment,
        DynamicGroup,
        Policies,
        Policy,
        PolicyVersion,
        UserGroup,
    )
    from muster.client.run import JobRun
    from muster.client.run_facts import Setting
    from muster.client.schedule import Firing, Schedule
    from muster.client.suggesting import suggest_policy
    from muster.client.table import Table
    from muster.errors import InvalidInput, MusterError, NotFound, Problem, RunFailed

__version__ = "0.1.0"

__all__ = [
    "Accounts",
    "AuditEntry",
    "Caller",
    "Client",
    "Cluster",
    "Compartment",
    "Delivery",
    "DynamicGroup",
    "Event",
    "Firing",
    "FunctionJob",
    "FunctionRun",
    "InvalidInput",
    "Job",
    "JobEvent",
    "JobRun",
    "LogRecord",
    "Member",
    "MusterError",
    "NewToken",
    "Node",
    "NotFound",
    "Notification",
    "Output",
    "Outputs",
    "Policies",
    "Policy",
    "PolicyVersion",
    "Problem",
    "Project",
    "RunFailed",
    "Schedule",
    "Secret",
    "Setting",
    "Table",
    "Token",
    "User",
    "UserGroup",
    "cluster",
    "create_job",
    "create_notification",
    "create_schedule",
    "get_job",
    "get_notification",
    "get_run",
    "get_schedule",
    "job",
    "jobs",
    "notifications",
    "prune",
    "run",
    "runs",
    "schedules",
    "suggest_policy",
]

#: Public name -> its module; others are in `muster.client.api`.
_MODULES = {
    "Accounts": "muster.client.accounts",
    "AuditEntry": "muster.client.accounts",
    "Caller": "muster.client.accounts",
    "Member": "muster.client.accounts",
    "NewToken": "muster.client.accounts",
    "Project": "muster.client.accounts",
    "Secret": "muster.client.accounts",
    "Token": "muster.client.accounts",
    "User": "muster.client.accounts",
    "InvalidInput": "muster.errors",
    "MusterError": "muster.errors",
    "NotFound": "muster.errors",
    "Problem": "muster.errors",
    "RunFailed": "muster.errors",
    "FunctionJob": "muster.client.function",
    "FunctionRun": "muster.client.function",
    "job": "muster.client.function",
    "LogRecord": "muster.client.log_records",
    "Client": "muster.client.client",
    "Cluster": "muster.client.cluster",
    "Event": "muster.client.events",
    "Job": "muster.client.job",
    "JobEvent": "muster.client.job",
    "JobRun": "muster.client.run",
    "Node": "muster.client.node",
    "Delivery": "muster.client.notification",
    "Notification": "muster.client.notification",
    "Output": "muster.client.outputs",
    "Outputs": "muster.client.outputs",
    "Compartment": "muster.client.policies",
    "DynamicGroup": "muster.client.policies",
    "Policies": "muster.client.policies",
    "Policy": "muster.client.policies",
    "PolicyVersion": "muster.client.policies",
    "UserGroup": "muster.client.policies",
    "Firing": "muster.client.schedule",
    "Schedule": "muster.client.schedule",
    "Setting": "muster.client.run_facts",
    "suggest_policy": "muster.client.suggesting",
    "Table": "muster.client.table",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_MODULES.get(name, "muster.client.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
