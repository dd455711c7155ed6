"""Examples for the description of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SPEC = {
    "name": "hello",
    "command": ["sh", "-c", "echo rank $NODE_RANK of $NODE_COUNT"],
    "nodes": 2,
}
#: Operation, or operation and `answer` -> an example.
EXAMPLES: Mapping[str, Any] = {
    "post /runs": {"run": {"source": {"type": "spec", "spec": _SPEC}}},
    "post /runs/preview": {
        "run": {"source": {"type": "job", "job": "hello"}, "overrides": {"nodes": 4}},
        "limits": True,
    },
    "post /jobs": {"type": "spec", "spec": _SPEC},
    "post /jobs/preview": {"type": "spec", "spec": _SPEC},
    "post /schedules": {
        "name": "nightly",
        "timing": {"cron": "0 3 * * *", "time_zone": "Europe/Rome"},
        "run": {"source": {"type": "job", "job": "hello"}},
    },
    "edit_schedule": {"change": {"every": 21600.0, "missed": "run_once"}},
    "create_notification": {
        "request": {
            "name": "failures",
            "target": "https://hooks.example.com/muster",
            "on": ["run.failed"],
        }
    },
    "edit_notification": {"change": {"on": ["run.*"], "job": "train"}},
    "retry_deliveries": {"notification": "failures"},
    "post /uploads/{digest}": {"file_name": "train.py", "kind": "file"},
    "cancel": {"why": "not needed any more"},
    "suspend": {"why": "maintenance"},
    "scale": {"group": "workers", "replicas": 4},
    "edit_job": {"changes": ["description=the nightly training"]},
    "create_user": {"user": {"name": "ana", "kind": "person"}},
    "create_project": {"name": "vision", "description": "Models of images"},
    "set_member": {"role": "submitter"},
    "create_token": {"name": "laptop", "scopes": ["read", "submit"]},
    "set_secret": {"value": "the value"},
    "problem": {
        "type": "muster:InvalidInput",
        "title": "invalid input",
        "status": 422,
        "detail": "nodes: must be at least 1, not 0",
        "instance": "x8k2m4n6p0",
        "problems": [["nodes", "must be at least 1, not 0", "", "", ""]],
        "kinds": ["MusterError"],
    },
}
