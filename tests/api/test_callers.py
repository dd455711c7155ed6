"""Every method works for its caller: within the project, and with the rights that it needs.

The cases are generated from the interface, so that no method can be forgotten.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from muster.api.answers import CallerInfo
from muster.api.interface import MusterAPI
from muster.api.node_access import NodeAccess, NodeCommand, Stdio
from muster.api.notifications import NotificationChange, NotificationRequest
from muster.api.replica_table import TableQuery
from muster.api.retry import Retry
from muster.api.schedules import ScheduleChange, ScheduleRequest
from muster.api.streams import Selection
from muster.api.submissions import (
    JobSource,
    PreviewRequest,
    RerunSource,
    RetrySource,
    RunRequest,
    SpecSource,
    StartRequest,
)
from muster.caller import ALL_RIGHTS, CREATED_BY, Caller, NotPermitted, Only, Variables
from muster.errors import Forbidden, MusterError, NotFound
from muster.lifecycle.schedule import Timing
from muster.permissions import Decision, Permission, Right
from muster.service.audit import Origin
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import changes_from_mapping
from muster.spec.reader import parse_spec, spec_from_mapping
from muster.storage.home import Home
from muster.store.account_records import AuditEntry, AuditFilter
from muster.store.records import RunFilter
from support.api_runs import prepare, start, wait
from support.authorities import OwnOnly, caller_with
from support.json_api import METHODS

#: Methods that anybody may call.
FREE = {"caller", "location", "close", "space_warning"}
_ACCESS = [name for name, _ in inspect.getmembers(NodeAccess, inspect.isfunction) if name[0] != "_"]
#: Methods that get the id of a run, of both interfaces.
OF_RUNS = [
    *(name for name, method in METHODS.items() if {"run_id", "run_ids"} & method.parameters.keys()),
    *(f"node_access.{name}" for name in _ACCESS if name != "copy"),
]


def as_caller(
    api: EmbeddedAPI,
    project: str = "default",
    rights: frozenset[Right] = ALL_RIGHTS,
    origin: Origin | None = None,
) -> EmbeddedAPI:
    caller = caller_with("someone", project, rights)
    return EmbeddedAPI(caller=caller, backend=api.context.backend, origin=origin)


class World:
    """A run, a Job and a prepared run, and arguments for every method about them."""

    def __init__(self, api: EmbeddedAPI) -> None:
        self.home = api.home.root
        run = start(api, "true", suspend=True)
        self.job = api.job(run.job_id)
        self.prepared = prepare(api, "echo new")
        timing = Timing(cron="0 3 * * *")
        schedule = api.create_schedule("nightly", timing, prepare(api, "echo nightly"))
        target = f"file:{api.home.root}/events/all"
        request = NotificationRequest("hook", target)
        notification = api.create_notification(request).notification
        self.arguments: dict[str, Any] = {
            "run_id": run.id,
            "job_id": run.job_id,
            "job_ids": [run.job_id],
            "job": self.prepared.job,
            "prepared": self.prepared,
            "plan": self.prepared.plan,
            "spec": spec_from_mapping({"command": ["true"]}),
            "overrides": RunOverrides(),
            "written": parse_spec({"command": ["true"]}),
            "changes": changes_from_mapping({}),
            "chosen": RunFilter(),
            "run_ids": [run.id],
            "query": TableQuery(),
            "schedule_id": schedule.id,
            "notification_id": notification.id,
            "request": NotificationRequest("other", target),
            "timing": timing,
            "change": ScheduleChange(every=60.0),
            "retry": Retry(),
            "selection": Selection(),
            "environ": {},
            "arguments": b"",
            "text": run.id,
            "name": "local",
            "rank": 0,
            "ranks": [],
            "path": "file",
            "group": "workers",
            "replicas": 1,
            "keep": 1000,
            "older_than": None,
            "command": NodeCommand(("true",)),
            "stdio": Stdio(sys.stdin, sys.stdout, sys.stderr),
            "hosts": ["127.0.0.1"],
            "port": 80,
            "listener": None,
            "engine": "local",
            "reference": "jobset/train",
        }

    def _given(self, name: str, needed: list[str]) -> dict[str, Any]:
        """The arguments of a method."""
        given = {one: self.arguments[one] for one in needed}
        if name in ("job", "schedule", "notification"):
            given["text"] = self.arguments[f"{name}_id"]
        if name == "prepare_run":
            given["job"] = self.job
        if name == "edit_job":
            given["changes"] = ["description=other"]
        if name == "edit_notification":
            given["change"] = NotificationChange(on=("run.failed",))
        return given

    def call(self, api: EmbeddedAPI, name: str) -> Any:
        """Call a method with the arguments that it needs, and take the first item of a stream."""
        where: Any = MusterAPI
        target: Any = api
        if name.startswith("node_access."):
            name, where, target = name.partition(".")[2], NodeAccess, api.node_access
        parameters = inspect.signature(getattr(where, name)).parameters
        needed = [
            one.name
            for one in parameters.values()
            if one.name != "self" and one.default is inspect.Parameter.empty
        ]
        return getattr(target, name)(**self._given(name, needed))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world whose home is copied for each test, which takes a tenth of the time."""
    with closing(Backend(Home(tmp_path_factory.mktemp("made") / "home"))) as backend:
        return World(EmbeddedAPI(backend=backend))


@pytest.fixture
def world(made: World, own_home: Path, backend_api: EmbeddedAPI) -> World:
    shutil.copytree(made.home, own_home, symlinks=True, dirs_exist_ok=True)
    world = copy(made)
    world.arguments = {**made.arguments}
    return world


def recorded(api: EmbeddedAPI) -> Any:
    """All that is recorded of Jobs and runs."""
    runs, jobs = api.run_records(RunFilter()), api.jobs(deleted=True)
    events = [api.events(run.id) for run in runs]
    schedules = [(one, api.firings(one.id)) for one in api.schedules()]
    notifications = api.notifications()
    return runs, jobs, events, [api.job_events(job.id) for job in jobs], schedules, notifications


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_run_of_another_project_does_not_exist(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    other = as_caller(backend_api, "other")
    before = recorded(backend_api)
    with pytest.raises(NotFound) as caught:
        world.call(other, name)
    missing = world.arguments["run_id"] = "0" * 10
    world.arguments["run_ids"] = [missing]
    with pytest.raises(NotFound) as unknown:
        world.call(other, name)
    run_id = before[0][0].id
    assert str(unknown.value) == str(caught.value).replace(run_id, missing)
    assert recorded(backend_api) == before


OF_JOBS = [
    name for name, method in METHODS.items() if {"job_id", "job_ids"} & method.parameters.keys()
]


@pytest.mark.parametrize("name", OF_JOBS)
def test_a_job_of_another_project_does_not_exist(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    before = recorded(backend_api)
    with pytest.raises(NotFound):
        world.call(as_caller(backend_api, "other"), name)
    assert recorded(backend_api) == before


OF_SCHEDULES = [name for name, method in METHODS.items() if "schedule_id" in method.parameters]


@pytest.mark.parametrize("name", OF_SCHEDULES)
def test_a_schedule_of_another_project_does_not_exist(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    before = recorded(backend_api)
    with pytest.raises(NotFound):
        world.call(as_caller(backend_api, "other"), name)
    assert recorded(backend_api) == before


PREPARED = [
    *("create_job", "discard", "prepare_run", "start", "start_function", "create_schedule"),
]


@pytest.mark.parametrize("name", PREPARED)
def test_a_prepared_job_of_another_project_is_refused(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    before = recorded(backend_api)
    with pytest.raises(NotFound):
        world.call(as_caller(backend_api, "other"), name)
    assert recorded(backend_api) == before


@pytest.mark.parametrize("text", ["last", "demo-1", "demo", "id", "prefix"])
def test_names_do_not_cross_projects(backend_api: EmbeddedAPI, world: World, text: str) -> None:
    other, run_id = as_caller(backend_api, "other"), world.arguments["run_id"]
    text = {"id": run_id, "prefix": run_id[:5]}.get(text, text)
    for find in (other.run, other.find_run, other.job):
        with pytest.raises(NotFound):
            find(text)


def test_projects_have_names_numbers_and_content_of_their_own(backend_api: EmbeddedAPI) -> None:
    other = as_caller(backend_api, "other")
    runs = [start(api, "true", suspend=True) for api in (backend_api, other, other)]
    assert [(run.name, run.project) for run in runs] == [
        ("demo-1", "default"),
        ("demo-1", "other"),
        ("demo-2", "other"),
    ]
    assert len({run.job_id for run in runs}) == 2, "the same content is reused within a project"
    assert backend_api.run("last").id == runs[0].id
    assert other.run("last").id == runs[2].id
    assert [run.id for run in other.runs(RunFilter())] == [runs[2].id, runs[1].id]
    assert [run.id for run in other.run_records(RunFilter(job="demo"))] == [runs[2].id, runs[1].id]
    assert [job.id for job in other.jobs()] == [runs[1].job_id]
    assert other.caller() == CallerInfo("someone", "other", ALL_RIGHTS)
    assert runs[1].created_by == "someone"
    for api in (backend_api, other):
        for run in api.runs(RunFilter()):
            api.cancel(run.id)


def test_disk_and_prune_are_of_the_project(backend_api: EmbeddedAPI) -> None:
    other = as_caller(backend_api, "other")
    run = start(backend_api, "true", suspend=True)
    backend_api.cancel(run.id)
    wait(backend_api, run.id)
    assert {item.kind: item.count for item in other.disk()}["runs"] == 0
    assert other.prune(0, None).runs == ()
    assert backend_api.run(run.id).state == "CANCELED"


NEED_RIGHTS = [*(name for name in METHODS if name not in FREE), *OF_RUNS[-len(_ACCESS) + 1 :]]


@pytest.mark.parametrize("name", NEED_RIGHTS)
def test_each_method_requires_permissions(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    backend = backend_api.context.backend
    before, needed = recorded(backend_api), []
    while True:
        caller = Caller("someone", authority=Only(*needed))
        try:
            world.call(EmbeddedAPI(caller=caller, backend=backend), name)
        except NotPermitted as error:
            assert error.permission not in needed
            start = f"someone may not .+ in project default: this takes {error.permission}"
            assert re.fullmatch(rf"{start}; ask an admin of the project for .+", str(error))
            needed.append(error.permission)
            assert recorded(backend_api) == before
        except MusterError:
            break  # these arguments fit most methods, not all
        else:
            break
    assert 0 < len(needed) < 4
    for one in needed[:-1]:  # the others are not enough
        caller = Caller("someone", authority=Only(*(set(Permission) - {one})))
        with pytest.raises(NotPermitted, match=f"this takes {one}"):
            world.call(EmbeddedAPI(caller=caller, backend=backend), name)


#: Methods that change or enter a run: they need one more right for runs of others.
CHANGES = [
    *("cancel", "adopt", "suspend", "prepare_resume", "resume", "scale", "delete"),
    *("cluster_access", *OF_RUNS[-len(_ACCESS) + 1 :]),
]


@pytest.mark.parametrize("name", OF_RUNS)
def test_runs_of_others_are_changed_with_a_right_of_its_own(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    rights = ALL_RIGHTS - {Right.OPERATE}
    before = recorded(backend_api)
    if name in CHANGES:
        with pytest.raises(
            Forbidden, match=r"of others in .+, such as this one of .+: this takes "
        ):
            world.call(as_caller(backend_api, rights=rights), name)
        assert recorded(backend_api) == before
    owner = backend_api.caller().user
    own = EmbeddedAPI(caller=caller_with(owner, rights=rights), backend=backend_api.context.backend)
    for api in (own, *(() if name in CHANGES else [as_caller(backend_api, rights=rights)])):
        try:
            world.call(api, name)
        except Forbidden:
            raise
        except MusterError:
            pass  # these arguments fit most methods, not all


#: Methods that only list, measure, remove, or create what is one's own.
_OWN = {
    *("jobs", "runs", "run_records", "schedules", "notifications", "retry_deliveries"),
    *("prepare_job", "create_job", "discard", "create_schedule", "create_notification"),
    *("review", "check_framework", "plan_limits", "dry_run", "packed_files", "start"),
    *("start_function", "check_may_upload", "failed_deliveries"),
}


def own_only(api: EmbeddedAPI, user: str = "someone") -> EmbeddedAPI:
    caller = Caller(user, authority=OwnOnly(user))
    return EmbeddedAPI(caller=caller, backend=api.context.backend, origin=ORIGIN)


@pytest.mark.parametrize("name", NEED_RIGHTS)
def test_who_has_rights_over_own_things_has_none_over_others(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    before = recorded(backend_api)
    if name not in _OWN:
        with pytest.raises(NotPermitted):
            world.call(own_only(backend_api), name)
        assert recorded(backend_api) == before
        assert [entry.why for entry in entries(backend_api) if not entry.allowed]
    owner = own_only(backend_api, backend_api.caller().user)
    try:
        world.call(owner, name)
    except NotPermitted as error:
        assert CREATED_BY not in error.on, "it is the caller's own"
    except MusterError:
        pass  # these arguments fit most methods, not all


def _sources(api: EmbeddedAPI, world: World) -> dict[str, Callable[[EmbeddedAPI], Any]]:
    """Calls of methods that start from a Job or run."""
    given = world.arguments
    job, run = given["job_id"], given["run_id"]
    sources = [JobSource(job), JobSource(job, copy=True), RerunSource(run), RetrySource(run)]
    calls: dict[str, Callable[[EmbeddedAPI], Any]] = {}
    for number, source in enumerate(sources):
        request = RunRequest(source)
        schedule = ScheduleRequest("mine", given["timing"], request)
        calls |= {
            f"submit {number}": lambda api, it=request: api.submit(StartRequest(it)),
            f"preview {number}": lambda api, it=request: api.preview(PreviewRequest(it)),
            f"submit_schedule {number}": lambda api, it=schedule: api.submit_schedule(it),
        }
        if isinstance(source, JobSource):
            calls |= {
                f"submit_job {number}": lambda api, it=source: api.submit_job(it),
                f"preview_job {number}": lambda api, it=source: api.preview_job(it),
            }
    after = RunRequest(SpecSource({"command": ["true"]}), {"after": [run]})
    record = api.job(job)
    return calls | {
        "after": lambda api: api.submit(StartRequest(after)),
        "copy_job": lambda api: api.copy_job(job),
        "prepare_run": lambda api: api.prepare_run(record, RunOverrides()),
        "prepare_rerun": lambda api: api.prepare_rerun(run, changes_from_mapping({})),
        "prepare_retry": lambda api: api.prepare_retry(run, Retry()),
        "trigger_schedule": lambda api: api.trigger_schedule(given["schedule_id"]),
        "check_deletable": lambda api: api.check_deletable([job]),
    }


def test_nothing_starts_from_what_the_caller_may_not_read(
    backend_api: EmbeddedAPI, world: World
) -> None:
    before = recorded(backend_api)
    for name, call in _sources(backend_api, world).items():
        with pytest.raises(NotPermitted) as caught:
            call(own_only(backend_api))
        read = {Permission.JOB_READ, Permission.JOB_RUN_READ, Permission.SCHEDULE_READ}
        assert caught.value.permission in read, name
    assert recorded(backend_api) == before


def test_a_job_of_the_same_content_is_not_anothers_that_cannot_be_read(
    backend_api: EmbeddedAPI,
) -> None:
    source = SpecSource({"name": "same", "command": ["true"]})
    theirs = backend_api.submit_job(source)
    api = own_only(backend_api)
    own = api.submit_job(source)
    assert own.created_by == "someone"
    assert own.id != theirs.id
    assert api.submit_job(source).id == own.id
    assert backend_api.submit_job(source).id == theirs.id


def test_who_changes_what_anothers_schedule_runs_may_enter_its_nodes(
    backend_api: EmbeddedAPI, world: World
) -> None:
    backend, schedule_id = backend_api.context.backend, world.arguments["schedule_id"]
    change = ScheduleChange(job=world.arguments["job_id"])
    some = {Permission.SCHEDULE_UPDATE, Permission.JOB_READ, Permission.JOB_UPDATE}
    without = EmbeddedAPI(caller=Caller("someone", authority=Only(*some)), backend=backend)
    with pytest.raises(NotPermitted, match="this takes DATA_SCIENCE_JOB_RUN_NODE_ENTER"):
        without.edit_schedule(schedule_id, change)
    with pytest.raises(NotPermitted, match="this takes DATA_SCIENCE_JOB_RUN_NODE_ENTER"):
        without.edit_job(backend_api.schedule(schedule_id).job_id, ["description=other"])
    assert without.edit_schedule(schedule_id, ScheduleChange(cron="0 4 * * *"))


def test_who_resumes_anothers_run_with_changes_may_enter_its_nodes(
    backend_api: EmbeddedAPI, world: World
) -> None:
    run_id, some = world.arguments["run_id"], {Permission.JOB_RUN_UPDATE}
    backend = backend_api.context.backend
    without = EmbeddedAPI(caller=Caller("someone", authority=Only(*some)), backend=backend)
    for call in (
        lambda: without.resume(run_id, RunOverrides(env={"A": "b"})),
        lambda: without.resume(run_id, environ={"LC_ALL": "C"}),
        lambda: without.prepare_resume(run_id, changes_from_mapping({})),
    ):
        with pytest.raises(NotPermitted, match="this takes DATA_SCIENCE_JOB_RUN_NODE_ENTER"):
            call()


class _Counted(OwnOnly):
    """Counts decisions."""

    count = 0

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        self.count += 1
        return super().decide(permission, project, on)


def test_one_decision_is_made_of_one_resource(backend_api: EmbeddedAPI, world: World) -> None:
    user, given = backend_api.caller().user, world.arguments
    authority = _Counted(user)
    caller = Caller(user, authority=authority)
    api = EmbeddedAPI(caller=caller, backend=backend_api.context.backend)
    calls = [
        lambda: api.run(given["run_id"]),
        lambda: api.nodes(given["run_id"]),
        lambda: api.job(given["job_id"]),
        lambda: api.schedule("nightly"),
        lambda: api.notification("hook"),
    ]
    for number, call in enumerate(calls, start=1):
        call()
        assert authority.count == number


# --- the audit log

ORIGIN = Origin("192.0.2.7", "request-1")
#: Methods that change records, files or nodes, and what they are called in the audit log.
ACTIONS = {
    "create_job": "jobs.create",
    "delete_unused_job": "jobs.delete",
    "edit_job": "jobs.edit",
    "delete_job": "jobs.delete",
    "start": "runs.start",
    "start_function": "runs.start",
    "cluster_access": "runs.connect",
    "cancel": "runs.cancel",
    "adopt": "runs.adopt",
    "suspend": "runs.suspend",
    "resume": "runs.resume",
    "scale": "runs.scale",
    "delete": "runs.delete",
    "prune": "runs.prune",
    "node_access.execute": "runs.exec",
    "node_access.forward": "runs.forward",
    "create_schedule": "schedules.create",
    "edit_schedule": "schedules.edit",
    "rotate_webhook": "schedules.rotate_webhook",
    "pause_schedule": "schedules.pause",
    "resume_schedule": "schedules.resume",
    "delete_schedule": "schedules.delete",
    "trigger_schedule": "schedules.trigger",
    "create_notification": "notifications.create",
    "edit_notification": "notifications.edit",
    "pause_notification": "notifications.pause",
    "resume_notification": "notifications.resume",
    "delete_notification": "notifications.delete",
    "test_notification": "notifications.test",
    "retry_deliveries": "notifications.retry",
}

#: Those that record a new Job besides, which has an entry of its own.
WITH_JOBS = {"start", "start_function", "create_schedule"}


def entries(api: EmbeddedAPI) -> list[AuditEntry]:
    return api.store.audit.listing(AuditFilter())


@pytest.mark.parametrize("name", NEED_RIGHTS)
def test_what_is_refused_is_in_the_audit_log(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    with pytest.raises(Forbidden) as caught:
        world.call(as_caller(backend_api, rights=frozenset(), origin=ORIGIN), name)
    (entry,) = entries(backend_api)
    assert (entry.user, entry.project, entry.allowed) == ("someone", "default", False)
    assert (entry.address, entry.request_id) == ("192.0.2.7", "request-1")
    assert entry.why == str(caught.value)
    if name in ACTIONS:
        assert entry.action == ACTIONS[name]
    if name in OF_RUNS and "run_id" in METHODS.get(name, METHODS["run"]).parameters:
        assert entry.object.partition(":")[0] == "demo-1"


@pytest.mark.parametrize("name", NEED_RIGHTS)
def test_what_changes_anything_is_in_the_audit_log(
    backend_api: EmbeddedAPI, world: World, name: str
) -> None:
    before = recorded(backend_api)
    try:
        world.call(as_caller(backend_api, origin=ORIGIN), name)
        error = ""
    except MusterError as problem:
        error = str(problem)
    found = entries(backend_api)
    if name not in ACTIONS:
        assert found == []
        assert recorded(backend_api) == before
        return
    if name in WITH_JOBS:
        (of_job,) = [entry for entry in found if entry.action == "jobs.create"]
        assert (of_job.allowed, of_job.object) == (True, world.prepared.job.name)
        found.remove(of_job)
    assert {entry.action for entry in found} == {ACTIONS[name]}
    assert all(entry.allowed for entry in found)
    assert [entry.why for entry in reversed(found)] == ["", *([error] if error else [])]
    assert found[0].object or name in ("prune", "retry_deliveries")


def test_the_user_of_this_process_is_not_audited(backend_api: EmbeddedAPI, world: World) -> None:
    with pytest.raises(Forbidden):
        world.call(as_caller(backend_api, rights=frozenset()), "delete")
    world.call(backend_api, "cancel")
    assert entries(backend_api) == []
