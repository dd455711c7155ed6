"""What each operation needs: nothing works without one of its permissions, and it works with them
alone. Who has which by a role is in `test_rights`, as is what strangers and those without a
signature get.

The cases are those of `support.oci_cases`, for the permissions that the routes name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
from oci.data_science import DataScienceClient
from oci.data_science import models as ds
from oci.events import EventsClient
from oci.events import models as events
from oci.exceptions import ServiceError
from oci.logging import LoggingManagementClient
from oci.logging import models as logging
from oci.loggingingestion import LoggingClient
from oci.loggingingestion import models as ingestion
from oci.loggingsearch import LogSearchClient
from oci.loggingsearch.models import SearchLogsDetails

from muster.permissions import Permission
from muster.server.oci.routes import OciRoute, all_routes
from muster.service.audit import ReadLog
from muster.spec.ocids import ocid
from muster.store.account_records import AuditFilter
from support.faults import until
from support.judged import judge_signers, only
from support.oci_cases import CASES, MARK, World
from support.oci_teams import VISION, OciTeams

ROUTES = {f"{route.verb} {route.path}": route for route in all_routes() if not route.public}
NEEDED = {route: (one.permission, *one.also) for route, one in ROUTES.items() if one.permission}
#: What gives the same: the object of the cases exists; members of a project see each other.
INSTEAD: dict[str, set[Permission]] = {
    "GET /20160918/users/{user_id}": {Permission.MEMBER_INSPECT},
    "GET /20160918/groups/{group_id}": {Permission.MEMBER_INSPECT},
    "GET /20160918/userGroupMemberships/{membership_id}": {Permission.MEMBER_INSPECT},
    **{
        f"{verb} /n/{{namespace}}/b/{{bucket}}/{path}": {Permission.OBJECT_OVERWRITE}
        for verb, path in (
            ("PUT", "o/{object...}"),
            ("POST", "u"),
            ("PUT", "u/{object...}"),
            ("POST", "u/{object...}"),
            ("POST", "actions/copyObject"),
            ("POST", "actions/renameObject"),
        )
    },
}
#: Parameter of a path -> the variable that has it.
VARIABLES = {
    "project_id": "target.project.id",
    "job_id": "target.job.id",
    "job_run_id": "target.job-run.id",
    "schedule_id": "target.schedule.id",
    "rule_id": "target.rule.id",
    "log_group_id": "target.loggroup.id",
    "log_id": "target.log.id",
    "secret_id": "target.secret.name",
    "bucket": "target.bucket.name",
    "object...": "target.object.name",
}
#: Nobody asks for themselves: sam asks about anouk, who has created all there is.
ABOUT_ANOUK = "/20160918/users/{user_id}"


@pytest.fixture(scope="module")
def world(oci: OciTeams) -> Iterator[World]:
    yield World(oci)


def user_for(route: str) -> str:
    return "sam" if ABOUT_ANOUK in route else "anouk"


@pytest.mark.parametrize(
    ("route", "missing"), [(route, one) for route, several in NEEDED.items() for one in several]
)
def test_nothing_works_without_one_of_its_permissions(
    world: World, monkeypatch: pytest.MonkeyPatch, route: str, missing: Permission
) -> None:
    before = world.recorded()
    given = frozenset(Permission) - {missing} - INSTEAD.get(route, set())
    judge_signers(monkeypatch, only(given))
    found = world.request(route, user_for(route), world.names)
    unknown = world.request(route, user_for(route), world.nothing)
    assert found.status_code == unknown.status_code == 404, (found.text, unknown.text)
    assert shown(found, world.names) == shown(unknown, world.nothing)
    assert world.recorded() == before


def shown(reply: requests.Response, names: Mapping[str, str]) -> str:
    """An answer with the same word for each name."""
    text = reply.text
    for name in sorted(names.values(), key=len, reverse=True):
        text = text.replace(name, "NAME")
    return text


def target_of(world: World, route: str) -> dict[str, str]:
    """The variables of the resource that a case is about."""
    found = {}
    for parameter, name in CASES[route].path.items():
        if parameter in VARIABLES:
            value = MARK if parameter == "secret_id" else world.names[name]
            found[VARIABLES[parameter]] = value
    return found


#: List -> the variable, and the name of the one item that is seen.
LISTS = {
    "GET /20190101/projects": ("target.project.id", "project"),
    "GET /20190101/jobs": ("target.job.id", "job"),
    "GET /20190101/jobRuns": ("target.job-run.id", "run"),
    "GET /20190101/schedules": ("target.schedule.id", "schedule"),
    "GET /20200531/logGroups": ("target.loggroup.id", "group"),
    "GET /20200531/logGroups/{log_group_id}/logs": ("target.log.id", "log"),
    "GET /20181201/rules": ("target.rule.id", "rule"),
    "GET /20180608/secrets": ("target.secret.name", "secret"),
    "GET /n/{namespace}/b": ("target.bucket.name", "bucket"),
    "GET /n/{namespace}/b/{bucket}/o": ("target.object.name", "second"),
    "GET /n/{namespace}/b/{bucket}/u": ("target.object.name", "object-sam"),
    "POST /20180409/resources": ("target.job.id", "spare"),
}
#: Those that have one item in the cases.
OF_ONE = {"GET /20190101/schedules", "GET /20181201/rules", "GET /20180608/secrets"}


@pytest.mark.parametrize("route", LISTS)
def test_a_list_has_what_the_caller_sees(
    world: World, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    everything = items(world.request(route, "anouk", world.names))
    assert len(everything) > (0 if route in OF_ONE or route.endswith("/logs") else 1)
    variable, name = LISTS[route]
    value = MARK if variable == "target.secret.name" else world.names[name]
    of_all = frozenset(Permission)

    def judge(permission: Permission, on: Mapping[str, str]) -> bool:
        # the group whose logs are listed is seen, too
        of_group = variable == "target.log.id" and "target.log.id" not in on
        return permission in of_all and (of_group or on.get(variable) == value)

    judge_signers(monkeypatch, judge, by_variables=True)
    found = items(world.request(route, "anouk", world.names))
    assert len(found) == 1
    assert world.names[name] in json.dumps(found[0])
    nothing = only(of_all, {variable: "another"})
    judge_signers(monkeypatch, nothing, by_variables=True)
    reply = world.request(route, "anouk", world.names)
    assert reply.status_code == 404 or items(reply) == []


def items(reply: requests.Response) -> list[Any]:
    assert reply.status_code == 200, reply.text
    found = reply.json()
    if isinstance(found, list):
        return found
    values: list[Any] = found.get("items", found.get("objects"))
    return values


def test_pages_are_full_of_what_is_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.oci.client(DataScienceClient)
    jobs = [job.id for job in client.list_jobs(VISION, limit=1000).data]
    seen = {jobs[1], jobs[-1]}

    def judge(permission: Permission, on: Mapping[str, str]) -> bool:
        return permission == Permission.JOB_INSPECT and on.get("target.job.id") in seen

    judge_signers(monkeypatch, judge, by_variables=True)
    first = client.list_jobs(VISION, limit=1)
    second = client.list_jobs(VISION, limit=1, page=first.headers["opc-next-page"])
    assert [first.data[0].id, second.data[0].id] == [jobs[1], jobs[-1]]
    assert "opc-next-page" not in second.headers


#: What starts a job run in any case.
STARTS = {Permission.JOB_RUN_CREATE, Permission.JOB_READ, Permission.PROJECT_READ}


def status(call: Any) -> int:
    try:
        return int(call().status)
    except ServiceError as error:
        return int(error.status)


def run_of(world: World, job: str, **details: Any) -> ds.CreateJobRunDetails:
    given = {"project_id": world.names["project"], "compartment_id": VISION, "job_id": job}
    return ds.CreateJobRunDetails(**given, **details)


def test_a_job_run_in_a_subnet_attaches_nodes_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.oci.client(DataScienceClient)
    job = ds.CreateJobDetails(
        project_id=world.names["project"],
        compartment_id=VISION,
        job_configuration_details=ds.DefaultJobConfigurationDetails(),
        job_infrastructure_configuration_details=(
            ds.StandaloneJobInfrastructureConfigurationDetails(
                shape_name="VM.Standard2.1",
                block_storage_size_in_gbs=50,
                subnet_id="ocid1.subnet.oc1..a",
            )
        ),
    )
    run = run_of(world, client.create_job(job).data.id)
    judge_signers(monkeypatch, only(STARTS))
    assert status(lambda: client.create_job_run(run)) == 404
    judge_signers(monkeypatch, only(STARTS | {Permission.SUBNET_ATTACH}))
    assert status(lambda: client.create_job_run(run)) == 200


@pytest.mark.parametrize(
    ("logs", "needed"),
    [
        ({"log_id": "log"}, {Permission.LOG_GROUP_READ}),
        (
            {"log_group_id": "group", "enable_auto_log_creation": True},
            {Permission.LOG_GROUP_READ, Permission.LOG_GROUP_CREATE},
        ),
        (
            {"log_group_id": "ocid1.loggroup.oc1..new", "enable_auto_log_creation": True},
            {Permission.LOG_GROUP_READ, Permission.LOG_GROUP_CREATE},
        ),
    ],
)
def test_a_job_run_logs_where_its_creator_may(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    logs: dict[str, Any],
    needed: set[Permission],
) -> None:
    client = world.oci.client(DataScienceClient)
    given = {name: world.names.get(str(value), value) for name, value in logs.items()}
    details = ds.JobLogConfigurationDetails(enable_logging=True, **given)
    run = run_of(world, world.names["job"], job_log_configuration_override_details=details)
    for missing in needed:
        judge_signers(monkeypatch, only(STARTS | needed - {missing}))
        assert status(lambda: client.create_job_run(run)) == 404
    judge_signers(monkeypatch, only(STARTS | needed))
    made = client.create_job_run(run).data
    assert made.lifecycle_state != "FAILED", made.lifecycle_details


def test_a_search_finds_what_is_in_logs_that_are_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, runs = world.oci.client(LogSearchClient), world.oci.client(DataScienceClient)
    group, log = world.names["group"], world.names["log"]
    details = ds.JobLogConfigurationDetails(enable_logging=True, log_id=log)
    run = run_of(world, world.names["job"], job_log_configuration_override_details=details)
    made = runs.create_job_run(run).data.id
    until(lambda: runs.get_job_run(made).data.lifecycle_state == "SUCCEEDED", "it succeeds")
    entry = ingestion.LogEntry(data="what was put")
    batch = ingestion.LogEntryBatch(entries=[entry], source=made, type="t")
    puts = ingestion.PutLogsDetails(specversion="1.0", log_entry_batches=[batch])
    world.oci.client(LoggingClient).put_logs(log, puts)

    def found(scope: str) -> Any:
        now = datetime.now(UTC)
        wanted = SearchLogsDetails(
            time_start=now - timedelta(hours=1),
            time_end=now + timedelta(hours=1),
            search_query=f"search \"{scope}\" | where source = '{made}'",
        )
        try:
            return client.search_logs(wanted).data.summary.result_count
        except ServiceError as error:
            return error.status

    reads = {Permission.LOG_CONTENT_READ}
    for on, results in (
        ({}, (2, 2, 2)),
        ({"target.log.id": log}, (2, 404, 2)),
        ({"target.loggroup.id": group}, (2, 2, 2)),
        ({"target.loggroup.id": ocid("loggroup", "other")}, (0, 404, 404)),
    ):
        judge_signers(monkeypatch, only(reads, on), by_variables=True)
        scopes = (VISION, f"{VISION}/{group}", f"{VISION}/{group}/{log}")
        assert tuple(found(scope) for scope in scopes) == results, on


def test_a_new_log_is_created_in_a_group_that_the_caller_may_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.oci.client(LoggingManagementClient)
    creates = {Permission.LOG_GROUP_CREATE}
    details = logging.CreateLogDetails(display_name="conditional", log_type="CUSTOM")
    given = {name: world.names[name] for name in ("group", "empty_group")}
    judge_signers(monkeypatch, only(creates, {"target.loggroup.id": given["group"]}))
    assert status(lambda: client.create_log(given["empty_group"], details)) == 404
    assert status(lambda: client.create_log(given["group"], details)) == 202


def test_who_submits_deletes_schedules_of_its_own(world: World) -> None:
    sam, anouk = (world.oci.client(DataScienceClient, user) for user in ("sam", "anouk"))
    given = anouk.get_schedule(world.names["schedule"]).data
    made = sam.create_schedule(
        ds.CreateScheduleDetails(
            project_id=given.project_id,
            compartment_id=VISION,
            trigger=given.trigger,
            action=given.action,
        )
    ).data.id
    assert status(lambda: sam.delete_schedule(given.id)) == 404
    assert status(lambda: sam.delete_schedule(made)) == 202


def test_each_refusal_is_recorded_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = world.oci.teams.backend.store.audit
    judge_signers(monkeypatch, only(()))
    for route, permission, variable in (
        ("GET /20190101/jobs/{job_id}", Permission.JOB_READ, "target.job.name"),
        ("PUT /20190101/jobs/{job_id}", Permission.JOB_UPDATE, "target.job.name"),
        ("GET /20190101/jobs", Permission.JOB_INSPECT, ""),
        *(
            (f"{one}", Permission.SECRET_BUNDLE_READ, "target.secret.name")
            for one in (
                "GET /20190301/secretbundles/{secret_id}",
                "POST /20190301/secretbundles/actions/getByName",
            )
        ),
        (
            *("PUT /n/{namespace}/b/{bucket}/o/{object...}", Permission.OBJECT_CREATE),
            "target.object.name",
        ),
        ("GET /n/{namespace}/b/{bucket}/o", Permission.OBJECT_INSPECT, ""),
    ):
        before = len(audit.listing(AuditFilter(limit=1000)))
        assert world.request(route, "anouk", world.names).status_code == 404
        found = audit.listing(AuditFilter(limit=1000))
        assert len(found) == before + 1, route
        (entry,) = (one for one in found[:1])
        assert (entry.allowed, entry.permission, entry.project) == (False, permission, "vision")
        assert not variable or MARK in entry.attributes[variable]


def test_lists_by_condition_and_writes_are_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit, given = world.oci.teams.backend.store.audit, {Permission.JOB_INSPECT}
    job = {"target.job.id": world.names["job"]}
    judge_signers(monkeypatch, only(given, job), by_variables=True)
    monkeypatch.setattr(world.oci.teams.backend, "reads", ReadLog())
    assert len(items(world.request("GET /20190101/jobs", "anouk", world.names))) == 1
    newest = audit.listing(AuditFilter())[0]
    assert (newest.allowed, newest.permission) == (True, Permission.JOB_INSPECT)
    judge_signers(monkeypatch, only({Permission.OBJECT_OVERWRITE}))
    route = "PUT /n/{namespace}/b/{bucket}/o/{object...}"
    assert world.request(route, "anouk", world.names).status_code == 200
    newest = audit.listing(AuditFilter())[0]
    assert (newest.action, newest.permission) == ("oci.put_object", Permission.OBJECT_OVERWRITE)


def test_a_route_that_asks_for_nothing_answers_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = property(lambda _: False, lambda *_: None)
    monkeypatch.setattr("muster.server.oci.actor.Actor.has_asked", never, raising=False)
    found = world.request("GET /20190101/jobs", "anouk", world.names)
    assert found.status_code == 500
    assert "list_jobs needs DATA_SCIENCE_JOB_INSPECT" in world.oci.teams.log.getvalue()


def test_the_creator_alone_changes_what_a_schedule_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_signers(monkeypatch, only(frozenset(Permission)))
    client = world.oci.client(DataScienceClient, "sam")
    action = client.get_schedule(world.names["schedule"]).data.action
    change = ds.UpdateScheduleDetails(action=action)
    with pytest.raises(ServiceError, match="only anouk may do that") as refused:
        client.update_schedule(world.names["schedule"], change)
    assert (refused.value.status, refused.value.code) == (403, "NotAllowed")
    newest = world.oci.teams.backend.store.audit.listing(AuditFilter())[0]
    assert (newest.user, newest.allowed, newest.action) == ("sam", False, "oci.update_schedule")
    renamed = ds.UpdateScheduleDetails(display_name=MARK)
    assert client.update_schedule(world.names["schedule"], renamed).status == 202


def test_the_creator_alone_has_a_rule_start_job_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_signers(monkeypatch, only(frozenset(Permission)))
    action = events.CreateFaaSActionDetails(function_id=world.names["job"], is_enabled=True)
    made = world.oci.client(EventsClient).create_rule(
        events.CreateRuleDetails(
            display_name=MARK,
            compartment_id=VISION,
            condition='{"eventType": "com.oraclecloud.datascience.never"}',
            is_enabled=True,
            actions=events.ActionDetailsList(actions=[action]),
        )
    )
    sam, rule = world.oci.client(EventsClient, "sam"), made.data.id
    renamed = events.UpdateRuleDetails(display_name=f"{MARK}-renamed")
    move = events.ChangeRuleCompartmentDetails(compartment_id=VISION)
    assert status(lambda: sam.update_rule(rule, renamed)) == 403
    assert status(lambda: sam.change_rule_compartment(rule, move)) == 403
    disabled = events.UpdateRuleDetails(is_enabled=False)
    assert status(lambda: sam.update_rule(rule, disabled)) == 200
    assert status(lambda: sam.update_rule(rule, renamed)) == 200, "it starts nothing"
    enabled = events.UpdateRuleDetails(is_enabled=True)
    assert status(lambda: sam.update_rule(rule, enabled)) == 403
    assert status(lambda: sam.delete_rule(rule)) == 204


def test_a_namespace_of_metrics_by_condition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, mine = "POST /20180401/metrics", {"target.metrics.namespace": "mine"}
    judge_signers(monkeypatch, only({Permission.METRIC_WRITE}, mine))
    assert world.request(metrics, "anouk", world.names).status_code == 200
    listed = "POST /20180401/metrics/actions/listMetrics"
    for namespace, several in (("mine", True), ("other", False)):
        on = {"target.metrics.namespace": namespace}
        judge_signers(monkeypatch, only({Permission.METRIC_INSPECT}, on), by_variables=True)
        assert bool(items(world.request(listed, "anouk", world.names))) is several


def test_users_and_groups_by_condition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    on = {"target.user.name": "anouk"}
    judge_signers(monkeypatch, only({Permission.USER_UPDATE}, on))
    route = "PUT /20160918/users/{user_id}"
    assert world.request(route, "sam", world.names).status_code == 200
    on = {"target.group.name": MARK}
    judge_signers(monkeypatch, only({Permission.GROUP_INSPECT}, on), by_variables=True)
    found = items(world.request("GET /20160918/groups", "sam", world.names))
    assert [one["name"] for one in found] == [MARK]


# it changes the project, so it is the last one
def test_each_operation_works_with_its_permissions_alone(world: World) -> None:
    """They are given for the one resource that the request names, if it names one."""
    wrong = {}
    for route, case in CASES.items():
        if route == "POST /20160918/users/{user_id}/apiKeys":
            continue  # a key gives what its user may do: `iam.grants.check_acts_as`
        one: OciRoute = ROUTES[route]
        instead, target = INSTEAD.get(route, set()), target_of(world, route)

        def judge(
            permission: Permission,
            on: Mapping[str, str],
            own: Any = ({one.permission} | instead, target),
            also: Any = one.also,
        ) -> bool:
            if permission in own[0]:
                return bool(own[1].items() <= on.items())
            return permission in also

        with pytest.MonkeyPatch.context() as patch:
            judge_signers(patch, judge, by_variables=True)
            found = world.request(route, user_for(route), world.names)
        if found.status_code != case.status:
            wrong[route] = (found.status_code, found.text[:300])
    assert not wrong, "\n".join(f"{route}: {found}" for route, found in wrong.items())
