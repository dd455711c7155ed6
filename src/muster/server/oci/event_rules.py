"""Rules of OCI's Events service: which events lead to which actions (OCI: Rule).

Each action is a notification of the project, so that its events are sent, tried again and shown as
all others are. Job runs start in the name of who has created the rule: nobody else changes one that
starts them. A topic is the notification that has its name, or the end of its OCID; a function is
a URL, or a job of which each event starts a job run (`event_runs`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from muster.api.notifications import NotificationRequest
from muster.errors import Conflict, InvalidInput, NotFound
from muster.identity import new_id
from muster.notify.conditions import condition_problem, types_of
from muster.notify.settings import read_settings
from muster.notify.targets import TargetKind
from muster.permissions import Permission
from muster.server.answers import Answer
from muster.server.oci.errors import invalid, missing, not_found
from muster.server.oci.listings import listing
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    change,
    check_match,
    common,
    create,
    find,
    labels,
    moved,
    shown,
    target_of,
)
from muster.server.oci.routes import OciRoute
from muster.service.notifications import create as create_notification
from muster.service.notifications import opened
from muster.spec.formats.oci.event_rules import (
    Action,
    CreateRule,
    FunctionAction,
    NotificationAction,
    UpdateRule,
)
from muster.spec.formats.oci.model import plain
from muster.spec.ocids import ocid, split_ocid
from muster.store.resource_records import JOB, RULE, ResourceRecord
from muster.type_info import decode_json

KIND = RULE
_PATH, _ONE = "/20181201/rules", "/20181201/rules/{rule_id}"
_STATES = ("CREATING", "ACTIVE", "INACTIVE", "UPDATING", "DELETING", "DELETED", "FAILED")
#: OCI: 1 to 10.
_MOST_ACTIONS = 10


def create_rule(request: OciRequest) -> Answer:
    """POST /rules"""
    given = request.read(CreateRule)
    project = request.project_with(given.compartment_id, request.permission)
    request.require_user(project, "create a rule")
    if not given.display_name:
        raise missing("displayName")
    name, actions, now = given.display_name, given.actions.actions, time.time()
    _condition(given.condition)
    targets = _targets(request, project, actions)
    data = {
        **labels(given),
        "condition": given.condition,
        "isEnabled": given.is_enabled,
        "actions": _shown_actions(actions),
    }

    def record(identifier: str) -> ResourceRecord:
        return ResourceRecord(
            *(KIND, identifier, project, name, _state(given.is_enabled)),
            *(request.principal.user, now, now),
            data=data,
        )

    made, new = create(request, record, KIND, request.permission, "oci.rules.create")
    if new:
        try:
            _set_actions(request, made, targets)
        except Exception:
            _remove_actions(request, made)
            request.store.resources.delete(KIND, made.id)
            raise
    return shown(made, _shown(request, made))


def list_rules(request: OciRequest) -> Answer:
    """GET /rules"""

    def show(record: ResourceRecord) -> Mapping[str, Any]:
        facts = _shown(request, record)
        return {name: facts[name] for name in facts if name not in ("actions", "lifecycleMessage")}

    return listing(request, KIND, show, states=_STATES)


def get_rule(request: OciRequest) -> Answer:
    """GET /rules/{rule_id}"""
    record = _find(request)
    return shown(record, _shown(request, record))


def update_rule(request: OciRequest) -> Answer:
    """PUT /rules/{rule_id}"""
    record, given = _find(request), request.read(UpdateRule)
    changes = {
        "condition": given.condition,
        "isEnabled": given.is_enabled,
    }
    data = {
        **record.data,
        **labels(given),
        **{name: value for name, value in changes.items() if value is not None},
    }
    _condition(data["condition"])
    if given.actions is not None:
        data["actions"] = _shown_actions(given.actions.actions)
    if given.actions is not None or data["isEnabled"]:  # whoever disables one sets no action
        _check_editor(request, record, _actions_of(data))
    targets = _targets(request, record.project, _actions_of(data))
    after = change(
        request,
        record,
        "oci.rules.update",
        name=given.display_name or record.name,
        state=_state(data["isEnabled"]),
        data=data,
    )
    _set_actions(request, after, targets)
    return shown(after, _shown(request, after))


def delete_rule(request: OciRequest) -> Answer:
    """DELETE /rules/{rule_id}"""
    record = _find(request)
    check_match(request, record)

    def delete() -> None:
        _remove_actions(request, record)
        request.store.resources.delete(KIND, record.id)

    request.act(
        *(record.project, request.permission, "oci.rules.delete", record.name, delete),
        target_of(request, record),
    )
    return Answer(status=204)


def change_rule_compartment(request: OciRequest) -> Answer:
    """POST /rules/{rule_id}/actions/changeCompartment"""
    record = _find(request)
    changes = moved(request, record, Permission.EVENT_RULE_CREATE)
    _check_editor(request, record, _actions_of(record.data))
    targets = _targets(request, changes["project"], _actions_of(record.data))
    after = change(request, record, "oci.rules.move", **changes)
    _remove_actions(request, record)
    _set_actions(request, after, targets)
    return Answer(status=204)


def _find(request: OciRequest) -> ResourceRecord:
    return find(request, KIND, request.path["rule_id"], request.permission)


def _check_editor(request: OciRequest, rule: ResourceRecord, actions: list[Action]) -> None:
    """Raises OciError if actions that start job runs would do it in the name of another user than
    who sets them for a rule."""
    functions = (one.function_id for one in actions if isinstance(one, FunctionAction))
    if any(_is_job(one) for one in functions):
        what = f"change rule {rule.name}, which starts job runs"
        request.require_user(rule.project, what, rule.created_by)


# Conditions and actions


def _condition(text: str) -> Mapping[str, Any]:
    """Raises OciError unless the text is a condition."""
    try:
        found: Any = decode_json(text, Any)
    except msgspec.DecodeError:
        raise invalid("condition is not valid JSON") from None
    if problem := condition_problem(found):
        raise invalid(f"condition: {problem}")
    return dict(found)


def _targets(request: OciRequest, project: str, actions: list[Action]) -> list[str]:
    """The targets of the notifications for actions, before anything is changed. Raises OciError."""
    if not 1 <= len(actions) <= _MOST_ACTIONS:
        raise invalid(f"actions has to have 1 to {_MOST_ACTIONS} actions")
    return [_target(request, project, action) for action in actions]


def _target(request: OciRequest, project: str, action: Action) -> str:
    """The target of a notification for an action. Raises OciError if there is none."""
    home = request.state.backend.home
    if isinstance(action, FunctionAction):
        known = read_settings(home).functions
        if (url := known.get(action.function_id)) is not None:
            return url
        if action.function_id.startswith("https://"):
            return action.function_id
        if _is_job(action.function_id):
            job = find(request, JOB, action.function_id, Permission.JOB_READ)
            request.require(job.project, Permission.JOB_RUN_CREATE)
            if job.state != "ACTIVE":
                raise invalid(f"functionId: the job is {job.state}")
            return f"{TargetKind.JOB}:{action.function_id}"
        text = f"functionId {action.function_id} has no URL in functions of [notifications]"
        raise invalid(f"{text} in server.toml, and is no job")
    if isinstance(action, NotificationAction):
        name = action.topic_id
        if name.startswith("ocid1."):
            name = name.rpartition(".")[2]
        try:
            topic = request.store.notifications.find(project, name)
        except NotFound:
            raise invalid(f"topicId: there is no notification {name}") from None
        return opened(home, topic)[0].text
    raise invalid("actions of the type OSS are not possible here: use ONS or FAAS")


def _is_job(function: str) -> bool:
    return (split_ocid(function) or ("",))[0] == JOB


def _set_actions(request: OciRequest, record: ResourceRecord, targets: list[str]) -> None:
    """Have the notifications of a rule be what its actions are now. Raises OciError."""
    _remove_actions(request, record)
    if not record.data["isEnabled"]:
        return
    context = request.api(record.project).context
    condition = _condition(record.data["condition"])
    if not (types := types_of(condition)):
        return  # it is about other services
    for number, (action, target) in enumerate(zip(_actions_of(record.data), targets, strict=True)):
        if not action.is_enabled:
            continue
        name = f"oci-rule-{record.id}-{number}"
        wanted = NotificationRequest(name, target, types, format="oci")
        try:
            create_notification(context, wanted, condition=condition)
        except InvalidInput as error:
            raise invalid(f"actions[{number}]: {error}") from None
        except Conflict:  # another request changes the rule, too
            raise not_found() from None


def _remove_actions(request: OciRequest, record: ResourceRecord) -> None:
    notifications = request.store.notifications
    for number in range(_MOST_ACTIONS):
        try:
            found = notifications.find(record.project, f"oci-rule-{record.id}-{number}")
        except NotFound:
            continue
        notifications.delete(found.id)


def _shown_actions(actions: list[Action]) -> list[dict[str, Any]]:
    return [
        {
            **plain(action),
            "id": ocid("eventaction", new_id()),
            "lifecycleState": _state(action.is_enabled),
            "lifecycleMessage": "",
        }
        for action in actions
    ]


def _actions_of(data: Mapping[str, Any]) -> list[Action]:
    return [msgspec.convert(one, Action) for one in data["actions"]]


def _state(is_enabled: bool) -> str:
    return "ACTIVE" if is_enabled else "INACTIVE"


def _shown(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    data, facts = record.data, common(request, record)
    del facts["createdBy"]  # OCI does not tell whose a rule is
    return facts | {
        "description": data.get("description") or "",
        "condition": data["condition"],
        "isEnabled": data["isEnabled"],
        "actions": {"actions": data["actions"]},
        "lifecycleMessage": "",
    }


ROUTES = (
    OciRoute("create_rule", "POST", _PATH, create_rule, Permission.EVENT_RULE_CREATE),
    OciRoute("list_rules", "GET", _PATH, list_rules, Permission.EVENT_RULE_INSPECT),
    OciRoute("get_rule", "GET", _ONE, get_rule, Permission.EVENT_RULE_READ),
    OciRoute("update_rule", "PUT", _ONE, update_rule, Permission.EVENT_RULE_UPDATE),
    OciRoute("delete_rule", "DELETE", _ONE, delete_rule, Permission.EVENT_RULE_DELETE),
    OciRoute(
        "change_rule_compartment",
        *("POST", f"{_ONE}/actions/changeCompartment", change_rule_compartment),
        permission=Permission.EVENT_RULE_UPDATE,
        also=(Permission.EVENT_RULE_CREATE,),
    ),
)
