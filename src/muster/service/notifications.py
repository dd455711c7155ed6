"""Add, change and test notifications. A server sends their events: see `server.deliverer`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from muster.api.notifications import (
    ChangedNotification,
    NotificationChange,
    NotificationRequest,
    TestAnswer,
)
from muster.caller import Caller
from muster.errors import InvalidInput, Problem
from muster.iam.names import check_name
from muster.identity import new_id
from muster.notify.formats import TEST_TYPE, Format
from muster.notify.oci_events import OciNames
from muster.notify.sending import Route, send
from muster.notify.settings import NotificationSettings, read_settings
from muster.notify.signatures import new_key
from muster.notify.targets import OF_THE_SERVER, Target, TargetKind, parse_target
from muster.permissions import Permission
from muster.service.context import Context
from muster.service.creators import current_caller
from muster.spec.ocids import compartment_ocid
from muster.spec.wording import suggestion
from muster.storage.home import Home
from muster.storage.private_addresses import private_sources
from muster.storage.sealing import seal, unseal
from muster.store.notification_records import NotificationRecord
from muster.store.outbox_records import EVENT_TYPES, OutboxEntry, matching_types

if TYPE_CHECKING:
    from muster.iam.current_policies import CurrentPolicies
    from muster.store.protocols.accounts import Accounts

_START_RUNS = "`muster schedules create NAME JOB --after OTHER` starts runs after others"


def create(
    context: Context, request: NotificationRequest, *, condition: Mapping[str, Any] | None = None
) -> ChangedNotification:
    """Record a notification. condition: of OCI's Events service. Raises InvalidInput with every
    problem, Forbidden for targets on the server's machine."""
    problems: list[Problem] = []
    try:
        check_name("notification", request.name)
    except InvalidInput as error:
        problems += error.problems
    is_rule = condition is not None
    target = _checked_target(context, request.target, problems, is_rule=is_rule)
    problems += _problems(request.on, request.format)
    if problems or target is None:
        raise InvalidInput(*problems)
    key, now = new_key(), round(time.time(), 6)
    made = context.store.notifications.insert(
        NotificationRecord(
            id=context.submission.created_id or new_id(),
            name=request.name,
            project=context.project,
            kind=str(target.kind),
            target=target.shown,
            on=request.on,
            job=request.job,
            tags=request.tags,
            format=request.format or str(_default_format(target)),
            condition=condition,
            created_by=context.caller.user,
            created_at=now,
            updated_at=now,
            local=context.submission.has_files,
            sealed=_sealed(context.home, target, key),
        )
    )
    return ChangedNotification(shown(made), key)


def edit(
    context: Context, record: NotificationRecord, change: NotificationChange
) -> ChangedNotification:
    """Change a notification. Raises InvalidInput with every problem, Conflict if it was changed
    meanwhile, Forbidden as `create`."""
    problems: list[Problem] = []
    given: dict[str, Any] = {
        name: value
        for name in ("on", "job", "tags", "format")
        if (value := getattr(change, name)) is not None
    }
    problems += _problems(given.get("on", record.on), change.format)
    target = None
    if change.target is not None:
        if record.local and not context.submission.has_files:
            text = f"change where notification {record.name} of the server's own user sends events"
            context.caller.require(Permission.SERVER_MANAGE, text)
        is_rule = record.condition is not None
        target = _checked_target(context, change.target, problems, is_rule=is_rule)
    if problems:
        raise InvalidInput(*problems)
    key = new_key() if change.new_key else ""
    if target is not None or key:
        before, old_key = opened(context.home, record)
        target = target or before
        given |= {"kind": str(target.kind), "target": target.shown}
        given["sealed"] = _sealed(context.home, target, key or old_key)
    changed = replace(record, **given, updated_at=time.time())
    return ChangedNotification(shown(context.store.notifications.update(record, changed)), key)


def set_paused(context: Context, record: NotificationRecord, paused: bool) -> NotificationRecord:
    """Send nothing more, or send again. No effect if that is so already. Raises Conflict."""
    if record.paused == paused:
        return shown(record)
    changed = replace(record, paused=paused, updated_at=time.time())
    return shown(context.store.notifications.update(record, changed))


def test(context: Context, record: NotificationRecord) -> TestAnswer:
    """Send an event now, from this process, and tell what came of it. Raises InvalidInput."""
    if record.kind == TargetKind.JOB:
        text = "an event of this rule starts a job run, also one that is sent to test it"
        raise InvalidInput(Problem("", text, "start a job run of the job instead"))
    if record.kind in OF_THE_SERVER and not context.submission.has_files:
        text = f"use the {record.kind} of the server's machine"
        context.caller.require(Permission.SERVER_MANAGE, text)
    allowed = record.local or context.submission.allow_private_addresses
    route = route_of(context.home, record, allow_private=allowed)
    data = {"notification": record.name, "by": context.caller.user}
    subject = f"notifications/{record.id}"
    entry = OutboxEntry(
        0, new_id() + new_id(), time.time(), record.project, TEST_TYPE, subject, data
    )
    answer = send(route, entry)
    return TestAnswer(answer.delivered, answer.text)


def route_of(
    home: Home,
    record: NotificationRecord,
    *,
    allow_private: bool,
    compartment: Callable[[str], str] | None = None,
) -> Route:
    """How events of a notification are sent. compartment: the OCID of a project, where it is not
    that of Muster. Raises InvalidInput if the key of its secrets is missing, or server.toml is not
    valid."""
    target, key = opened(home, record)
    settings = read_settings(home)
    return Route(
        target=target,
        format=Format(record.format),
        key=key,
        settings=settings,
        folders=_folders(home, settings),
        names=names_in_oci(record.project, compartment),
        allow_private=allow_private,
    )


def names_in_oci(project: str, compartment: Callable[[str], str] | None = None) -> OciNames:
    """What a project is in OCI. compartment: see `route_of`."""
    own = compartment_ocid(project)
    return OciNames(own if compartment is None else compartment(project), project)


def creator_of(accounts: Accounts, policies: CurrentPolicies, record: NotificationRecord) -> Caller:
    """Whose rights a notification has, as they are now. Raises Forbidden if they are not enough."""
    what = f"notification {record.name}"
    given = (accounts, policies, record.created_by, record.project)
    caller = current_caller(*given, local=record.local, what=what)
    caller.require(Permission.JOB_RUN_READ, "see runs")
    if record.kind in OF_THE_SERVER:
        caller.require(Permission.SERVER_MANAGE, f"use the {record.kind} of the server's machine")
    return caller


def opened(home: Home, record: NotificationRecord) -> tuple[Target, str]:
    """The target, and the key of its signatures. Raises InvalidInput if they cannot be
    decrypted."""
    found = unseal(home, dict(record.sealed), f"notification {record.name}")
    return parse_target(found["target"]), found["key"]


def shown(record: NotificationRecord) -> NotificationRecord:
    """A notification without its secrets, not even encrypted."""
    return replace(record, sealed={})


def _sealed(home: Home, target: Target, key: str) -> Mapping[str, str]:
    # `seal` encrypts all values of a field with this name
    sealed: Mapping[str, str] = seal(home, {"secrets": {"target": target.text, "key": key}})[
        "secrets"
    ]
    return sealed


def _folders(home: Home, settings: NotificationSettings) -> tuple[Path, ...]:
    return (home.root / "events", *map(Path, settings.folders))


def _default_format(target: Target) -> Format:
    if target.kind == TargetKind.EMAIL:
        return Format.TEXT
    host = target.url.hostname if target.kind == TargetKind.WEBHOOK else None
    return Format.SLACK if host == "hooks.slack.com" else Format.CLOUDEVENTS


def _problems(on: tuple[str, ...], form: str | None) -> list[Problem]:
    problems = []
    if not on:
        problems.append(Problem("on", "names no event", "such as run.failed, or run.*"))
    for pattern in on:
        if not matching_types([pattern]):
            near = suggestion(pattern, EVENT_TYPES)
            problems.append(Problem("on", f"there is no event {pattern!r}", near))
    if form is not None and form not in tuple(Format):
        text = f"must be one of {', '.join(Format)}, not {form!r}"
        problems.append(Problem("format", text))
    return problems


def _checked_target(
    context: Context, text: str, problems: list[Problem], *, is_rule: bool
) -> Target | None:
    """The target, if the caller may use it; None with a problem. is_rule: of OCI's Events service.
    Raises Forbidden."""
    try:
        target = parse_target(text)
        settings = read_settings(context.home)
    except InvalidInput as error:
        problems += error.problems
        return None
    if target.kind == TargetKind.JOB and not is_rule:
        problems.append(Problem("target", "cannot be a job", _START_RUNS))
    if target.kind in OF_THE_SERVER and not context.submission.has_files:
        what = f"send events to a {target.kind} of the server's machine"
        context.caller.require(Permission.SERVER_MANAGE, what)
    if target.kind == TargetKind.WEBHOOK and not context.submission.allow_private_addresses:
        if target.url.scheme.lower() != "https":
            problems.append(Problem("target", "has to be an https URL", "events are not public"))
        problems += [
            problem._replace(message=f"{target.shown}: {problem.message.partition(': ')[2]}")
            for problem in private_sources({target.address: "target"})
        ]
    problems += _missing(context.home, target, settings)
    return target


def missing_notifications(context: Context, named: Mapping[str, str]) -> Iterator[Problem]:
    """A problem for each name in the `notify` of a spec that the project does not have."""
    records = context.store.notifications.listing(context.project)
    known = [one.name for one in records if one.condition is None]  # rules say themselves when
    for name in named:
        if name not in known:
            text = f"project {context.project} has no notification {name!r}"
            hint = suggestion(name, known) or f"`muster notify add {name} TARGET` adds it"
            yield Problem(f"notify.{name}", text, hint)


def _missing(home: Home, target: Target, settings: NotificationSettings) -> list[Problem]:
    """What server.toml would need to have for a target."""
    if target.kind == TargetKind.COMMAND and target.address not in settings.commands:
        near = suggestion(target.address, settings.commands)
        text = f"{home.server} allows no command {target.address}"
        return [Problem("target", text, near or "add it to [notifications.commands]")]
    if target.kind == TargetKind.EMAIL:
        if settings.smtp is None:
            text = f"{home.server} has no [notifications.smtp]"
            return [Problem("target", text, "add host and sender")]
        if refused := settings.smtp.refused(target.addresses):
            return [Problem("target", f"{home.server} allows no mail to {', '.join(refused)}")]
    if target.kind == TargetKind.FILE:
        folders = _folders(home, settings)
        real = Path(target.address).parent.resolve()
        if not any(real.is_relative_to(folder.resolve()) for folder in folders):
            text = f"{target.address!r} is not below {' or '.join(map(str, folders))}"
            hint = f"add its folder to folders of [notifications] in {home.server}"
            return [Problem("target", text, hint)]
    return []
