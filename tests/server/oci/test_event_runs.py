"""Rules of OCI's Events service whose function is a job: each event starts a job run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from muster.api.notifications import NotificationRequest
from muster.caller import Caller
from muster.errors import InvalidInput
from muster.identity import DEFAULT_PROJECT
from muster.notify.retries import Answer
from muster.server.oci.event_runs import start_for_event
from muster.service.embedded import EmbeddedAPI
from muster.spec.ocids import TENANCY
from muster.store.notification_records import DeliveryState
from support.faults import until
from support.oci_server import OciServer, module_server
from support.outbox_entries import run_entry

oci = pytest.importorskip("oci")
models = oci.events.models

TYPE = "com.oraclecloud.datascience."
TRAIN = """\
import os, pathlib
(pathlib.Path(os.environ["MUSTER_RUN_OUTPUTS"]) / "model.txt").write_text("weights")
"""
SCORE = """\
import json, os, pathlib
event = json.loads(pathlib.Path(os.environ["MUSTER_EVENT"]).read_text())
model = pathlib.Path(os.environ["MUSTER_AFTER_OUTPUTS"]) / "model.txt"
names = ("MUSTER_EVENT_TYPE", "MUSTER_AFTER_RUN", "MUSTER_AFTER_STATE", "STAGE")
print(json.dumps([event, model.read_text(), [os.environ.get(name) for name in names]]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muster.server.deliverer._INTERVAL", 0.05)
        yield from module_server(tmp_path_factory)


@pytest.fixture
def rules(server: OciServer) -> Iterator[Any]:
    client = server.client("events.EventsClient", retry_strategy=oci.retry.NoneRetryStrategy())
    yield client
    for one in client.list_rules(TENANCY).data:
        client.delete_rule(one.id)


def api_of(server: OciServer) -> EmbeddedAPI:
    return EmbeddedAPI(caller=Caller("root", "default"), backend=server.backend)


def create(rules: Any, kind: str, before: Any, then: Any, **more: Any) -> Any:
    """A rule: after events of this kind about job runs of a job, start one of another."""
    data = {"additionalDetails": {"jobId": before.id}}
    action = models.CreateFaaSActionDetails(function_id=then.id, is_enabled=True)
    details = models.CreateRuleDetails(
        display_name="then",
        is_enabled=True,
        condition=json.dumps({"eventType": TYPE + kind, "data": data}),
        compartment_id=TENANCY,
        actions=models.ActionDetailsList(actions=[action]),
        **more,
    )
    return rules.create_rule(details).data


def runs_of(server: OciServer, job: Any) -> list[Any]:
    found: list[Any] = server.science.list_job_runs(TENANCY, job_id=job.id).data
    return found


@pytest.mark.shows("jobs/lifecycle-notifications", "jobs/access-events")
def test_a_job_run_starts_after_another(server: OciServer, rules: Any) -> None:
    train = server.create_job(TRAIN, display_name="train")
    variables = {"STAGE": "after"}
    details = oci.data_science.models.DefaultJobConfigurationDetails
    configuration = details(environment_variables=variables)
    score = server.create_job(SCORE, display_name="score", job_configuration_details=configuration)
    create(rules, "succeededjobrun", train, score)
    tags = {"freeform_tags": {"team": "vision"}, "defined_tags": {"costs": {"center": "7"}}}
    first = server.wait(server.start(train, display_name="train-a", **tags))
    until(lambda: runs_of(server, score), "a job run starts")
    (second,) = runs_of(server, score)
    assert server.wait(second).lifecycle_state == "SUCCEEDED", server.output(second)
    event, model, found = json.loads(server.output(second))
    assert (model, found) == ("weights", ["run.succeeded", "train-1", "SUCCEEDED", "after"])
    assert event["eventType"] == f"{TYPE}succeededjobrun"
    given = event["data"]
    assert (given["resourceId"], given["resourceName"]) == (first.id, "train-a")
    assert given["additionalDetails"]["jobId"] == train.id
    assert given["freeFormTags"] == {"team": "vision"}
    assert given["definedTags"] == {"costs": {"center": "7"}}
    api = api_of(server)

    def left() -> list[tuple[DeliveryState, str]]:
        """What became of events; those that the condition leaves out are dropped."""
        return [(one.state, one.answer) for one in api.deliveries(api.notifications()[0].name)]

    until(lambda: left() == [(DeliveryState.DELIVERED, f"created {second.id}")], "it is noted")


def test_job_runs_do_not_start_each_other_without_end(server: OciServer, rules: Any) -> None:
    ping = server.create_job("print()", display_name="ping")
    pong = server.create_job("print()", display_name="pong")
    create(rules, "succeededjobrun", ping, pong)
    create(rules, "succeededjobrun", pong, ping)
    server.wait(server.start(ping))
    api = api_of(server)

    def given_up() -> list[str]:
        return [one.answer for one in api.failed_deliveries()]

    until(given_up, "the circle is noticed")
    assert given_up() == [
        "no job run was created: they would start each other without end: ping -> pong -> ping"
    ]
    assert [len(runs_of(server, job)) for job in (ping, pong)] == [1, 1]


def test_events_of_a_job(server: OciServer, rules: Any) -> None:
    """A job that is created, changed and deleted reports that, and its job runs' jobs of Muster do
    not."""
    seen = server.create_job("import os; print(open(os.environ['MUSTER_EVENT']).read())")
    rule = models.CreateRuleDetails(
        display_name="jobs",
        is_enabled=True,
        condition=json.dumps(
            {"eventType": [f"{TYPE}createjob", f"{TYPE}updatejob", f"{TYPE}deletejob.end"]}
        ),
        compartment_id=TENANCY,
        actions=models.ActionDetailsList(
            actions=[models.CreateFaaSActionDetails(function_id=seen.id, is_enabled=True)]
        ),
    )
    rules.create_rule(rule)
    job = server.create_job(display_name="short")
    details = oci.data_science.models.UpdateJobDetails(display_name="shorter")
    server.science.update_job(job.id, details)
    server.science.delete_job(job.id)
    until(lambda: len(runs_of(server, seen)) == 3, "three job runs start")
    events = [json.loads(server.output(server.wait(run))) for run in runs_of(server, seen)]
    found = {(one["eventType"].removeprefix(TYPE), one["data"]["resourceName"]) for one in events}
    assert found == {("createjob", "short"), ("updatejob", "shorter"), ("deletejob.end", "shorter")}
    assert {one["data"]["resourceId"] for one in events} == {job.id}


def test_a_job_that_is_not_there(server: OciServer, rules: Any) -> None:
    before, gone = server.create_job("print()"), server.create_job("print()")
    create(rules, "succeededjobrun", before, gone)
    server.science.delete_job(gone.id)
    with pytest.raises(oci.exceptions.ServiceError, match="the job is DELETED"):
        create(rules, "failedjobrun", before, gone)
    gone.id = gone.id[:-1] + ("a" if gone.id[-1] != "a" else "b")
    with pytest.raises(oci.exceptions.ServiceError) as caught:
        create(rules, "failedjobrun", before, gone)
    assert (caught.value.status, caught.value.code) == (404, "NotAuthorizedOrNotFound")
    server.wait(server.start(before))
    until(
        lambda: (
            "no job run was created: The job is DELETED."
            in [one.answer for one in api_of(server).failed_deliveries()]
        ),
        "the event is given up",
    )


def test_an_event_that_is_delivered_again_finds_its_job_run(server: OciServer, rules: Any) -> None:
    """A server may be killed after it has created the job run."""
    before, job = server.create_job("print()"), server.create_job("print('after')")
    create(rules, "failedjobrun", before, job)
    first = server.wait(server.start(before))
    store, state = server.backend.store, server.server.server.state
    (action,) = store.notifications.listing(DEFAULT_PROJECT)
    entry = run_entry(id=first.id.rpartition(".")[2])
    answers = [start_for_event(state, action, entry) for _ in range(2)]
    (run,) = runs_of(server, job)
    assert answers == [Answer(True, f"created {run.id}")] * 2
    assert server.output(server.wait(run)) == "after\n"


def test_only_rules_start_job_runs(server: OciServer, rules: Any) -> None:
    api, job = api_of(server), server.create_job("print()")
    with pytest.raises(InvalidInput, match=r"cannot be a job \(`muster schedules create"):
        api.create_notification(NotificationRequest("mine", f"job:{job.id}", ("run.failed",)))
    create(rules, "failedjobrun", job, job)
    with pytest.raises(InvalidInput, match="also one that is sent to test it"):
        api.test_notification(api.notifications()[0].name)
