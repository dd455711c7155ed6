"""The policy of each new database: what runs may do. The migrations that add the table of policies
insert it, and administrators may change it. A released text is changed by a new migration only.

A run may do what a job needs, in its own compartment: read, write objects, logs and metrics, create
jobs and runs, and change those of its user. It makes nothing that would outlast it in the name of
its user, such as schedules.
"""

from __future__ import annotations

import json

#: The last part of its OCID, the same in each database, its name and its description.
ID, NAME = "z1ygbzrrz5", "job-runs"
DESCRIPTION = "What runs may do in their own compartment"

_OWN = "request.principal.compartment.id = target.compartment.id"
_RUN = f"request.principal.type = 'datasciencejobrun', {_OWN}"
_KEEPS = "request.permission != /*_DELETE/, request.permission != /*_MOVE/"
_MINE = (
    "any {request.permission = /*_CREATE/, target.resource.createdBy = request.principal.createdBy}"
)

#: (What a run may do, and further conditions).
_GRANTS = (
    ("read data-science-family", ""),
    ("manage data-science-job-runs", f"{_KEEPS}, {_MINE}"),
    ("manage data-science-jobs", f"{_KEEPS}, {_MINE}"),
    ("manage data-science-projects", f"{_KEEPS}, {_MINE}"),
    ("manage objects", ""),
    ("read buckets", ""),
    ("manage log-groups", "request.permission != /*_DELETE/"),
    ("use log-content", ""),
    ("use metrics", ""),
    ("read secret-bundles", ""),
    ("read secrets", ""),
    ("use virtual-network-family", ""),
    ("use repos", ""),
    ("use engines", ""),
    ("read compartments", ""),
    ("inspect tenancies", ""),
    ("inspect project-members", ""),
    ("read cloudevents-rules", ""),
)
STATEMENTS = tuple(
    f"Allow any-user to {what} in tenancy where all {{{_RUN}{f', {more}' if more else ''}}}"
    for what, more in _GRANTS
)


def sql_text(text: str) -> str:
    """A text as a literal of SQL."""
    return "'{}'".format(text.replace("'", "''"))


#: The statements as their column has them, as a literal of SQL.
STATEMENTS_SQL = sql_text(json.dumps(STATEMENTS))
