"""The HTTP operation of each method of `MusterAPI`: the server answers it, the client requests it.

Parameters of a method are in the path where it names them, in the JSON body where the operation
lists them, and else in the query. There, the fields of a Struct are parameters of their own, each
item of a collection is given by itself, and items of a mapping are `KEY=VALUE`, or `KEY` for None.
Fields at their default are left out.

Methods about code that only the client has are not in the table: see `submissions`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct, to_builtins

#: Precedes every path.
PREFIX = "/v1"
#: How an answer is sent: as JSON, as a JSON line for each item of a stream, as server-sent events,
#: or as the bytes themselves.
Form = Literal["json", "lines", "events", "bytes"]


class Operation(Struct, frozen=True):
    """An operation of the API."""

    verb: str
    #: Below `PREFIX`, with parameters in braces.
    path: str
    #: The parameters in the JSON body.
    body: tuple[str, ...] = ()
    form: Form = "json"

    def url(self, given: Mapping[str, Any]) -> str:
        """The path with its parameters filled in, and the query. given: all parameters."""
        words = [
            _quoted(str(given[word[1:-1]])) if word.startswith("{") else word
            for word in self.path.split("/")
        ]
        query = [
            f"{name}={_quoted(text)}"
            for parameter, value in given.items()
            if parameter not in self.body and f"{{{parameter}}}" not in self.path
            for name, text in query_of(parameter, value)
        ]
        return f"{PREFIX}{'/'.join(words)}" + (f"?{'&'.join(query)}" if query else "")


def _quoted(text: str) -> str:
    """Text in a URL. An argument of a command line that is not UTF-8 is sent as the bytes it is."""
    return quote(text, safe="", errors="surrogateescape")


def query_of(name: str, value: Any) -> list[tuple[str, str]]:
    """A parameter in a query: names and texts."""
    if value is None:
        return []
    if isinstance(value, Struct):
        defaults = _defaults(type(value))
        return [
            pair
            for field, default in defaults.items()
            if (given := getattr(value, field)) != default
            for pair in query_of(field, given)
        ]
    if isinstance(value, Mapping):
        return [(name, key if text is None else f"{key}={text}") for key, text in value.items()]
    if isinstance(value, Collection) and not isinstance(value, (str, bytes)):
        # nothing is not everything: an empty collection is sent as such
        return [(name, _text(item)) for item in value] or [(name, "")]
    return [(name, _text(value))]


def _defaults(kind: type[Struct]) -> dict[str, Any]:
    fields = msgspec.structs.fields(kind)
    return {
        field.name: field.default_factory()
        if field.default_factory is not msgspec.NODEFAULT
        else field.default
        for field in fields
    }


def _text(value: Any) -> str:
    plain = to_builtins(value)
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def _get(path: str, form: Form = "json") -> Operation:
    return Operation("GET", path, form=form)


def _post(path: str, *body: str) -> Operation:
    return Operation("POST", path, body)


_RUN, _SCHEDULE = "/runs/{run_id}", "/schedules/{schedule_id}"
_NOTIFICATION = "/notifications/{notification_id}"
#: Method of `MusterAPI` -> its operation.
OPERATIONS: Mapping[str, Operation] = {
    "caller": _get("/caller"),
    "space_warning": _get("/space-warning"),
    "shapes": _get("/shapes"),
    "shape": _get("/shapes/{name}"),
    "engines": _get("/engines"),
    "check_engine": _post("/engines/{name}/check"),
    # jobs
    "jobs": _get("/jobs"),
    "job": _get("/jobs/{text}"),
    "job_events": _get("/jobs/{job_id}/events"),
    "job_spec": _get("/jobs/{job_id}/spec"),
    "code_size": _get("/jobs/{job_id}/code-size"),
    "edit_job": Operation("PATCH", "/jobs/{job_id}", ("changes",)),
    "check_deletable": _post("/jobs/check-deletable", "job_ids"),
    "delete_job": Operation("DELETE", "/jobs/{job_id}"),
    "delete_unused_job": Operation("DELETE", "/jobs/{job_id}/if-unused"),
    # schedules
    "schedules": _get("/schedules"),
    "schedule": _get("/schedules/{text}"),
    "firings": _get(f"{_SCHEDULE}/firings"),
    "edit_schedule": Operation("PATCH", _SCHEDULE, ("change",)),
    "pause_schedule": _post(f"{_SCHEDULE}/pause"),
    "resume_schedule": _post(f"{_SCHEDULE}/resume"),
    "delete_schedule": Operation("DELETE", _SCHEDULE),
    "webhook": _get(f"{_SCHEDULE}/webhook"),
    "rotate_webhook": _post(f"{_SCHEDULE}/webhook"),
    # notifications
    "create_notification": _post("/notifications", "request"),
    "notifications": _get("/notifications"),
    "notification": _get("/notifications/{text}"),
    "edit_notification": Operation("PATCH", _NOTIFICATION, ("change",)),
    "pause_notification": _post(f"{_NOTIFICATION}/pause"),
    "resume_notification": _post(f"{_NOTIFICATION}/resume"),
    "delete_notification": Operation("DELETE", _NOTIFICATION),
    "test_notification": _post(f"{_NOTIFICATION}/test"),
    "deliveries": _get(f"{_NOTIFICATION}/deliveries"),
    "failed_deliveries": _get("/failed-deliveries"),
    "retry_deliveries": _post("/failed-deliveries/retry", "notification"),
    # runs
    "review": _post("/specs/review", "written", "changes", "found"),
    "runs": _get("/runs"),
    "run_records": _get("/run-records"),
    "replica_table": _post("/runs/replica-table", "run_ids", "query"),
    "run": _get("/runs/{text}"),
    "find_run": _get("/runs/{text}/summary"),
    "nodes": _get(f"{_RUN}/nodes"),
    "shown_nodes": _get(f"{_RUN}/shown-nodes"),
    "restarts": _get(f"{_RUN}/restarts"),
    "why": _get(f"{_RUN}/why"),
    "waiting_for": _get(f"{_RUN}/waiting-for"),
    "replicas": _get(f"{_RUN}/replicas"),
    "limits": _get(f"{_RUN}/limits"),
    "endpoints": _get(f"{_RUN}/endpoints"),
    "cluster_access": _get(f"{_RUN}/cluster-access"),
    "usage": _get(f"{_RUN}/usage"),
    "counters": _get(f"{_RUN}/counters"),
    "stacks": _get(f"{_RUN}/stacks"),
    "cancel": _post(f"{_RUN}/cancel", "why", "force", "keep"),
    "adopt": _post(f"{_RUN}/adopt"),
    "suspend": _post(f"{_RUN}/suspend", "why"),
    "prepare_resume": _post(f"{_RUN}/resume/preview", "changes"),
    "resume": _post(f"{_RUN}/resume", "overrides", "environ"),
    "scale": _post(f"{_RUN}/scale", "group", "replicas", "why"),
    "delete": Operation("DELETE", _RUN),
    # follow runs
    "events": _get(f"{_RUN}/events"),
    "last_event": _get(f"{_RUN}/events/last"),
    "follow_events": _get(f"{_RUN}/events/stream", "events"),
    "watch": _get(f"{_RUN}/watch", "lines"),
    "log": _get(f"{_RUN}/log", "lines"),
    # files of runs
    "log_folder": _get(f"{_RUN}/log-folder"),
    "outputs": _get(f"{_RUN}/outputs"),
    "output": _get(f"{_RUN}/output"),
    "read_output": _get(f"{_RUN}/output/content", "bytes"),
    "ranks_with_result": _get(f"{_RUN}/results"),
    "result": _get(f"{_RUN}/results/{{rank}}", "bytes"),
    # disk
    "disk": _get("/disk"),
    "prune": _post("/prune", "keep", "older_than", "dry_run"),
}
