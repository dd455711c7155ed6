"""Rules of OCI's Events service, with OCI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from muster.caller import Role
from muster.spec.ocids import compartment_ocid
from muster.store.account_records import UserKind, UserRecord
from support.api_runs import start, wait
from support.faults import until
from support.keys import public_pem
from support.oci_config import config_of
from support.receivers import Receiver, receiving
from support.server_thread import ONE_USER
from support.teams import Teams, serving_teams

oci = pytest.importorskip("oci")
models = oci.events.models

VISION, SOUND = compartment_ocid("vision"), compartment_ocid("sound")
TYPE = "com.oraclecloud.datascience."
FUNCTION = "ocid1.fnfunc.oc1..aaaa"


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams(ONE_USER) as made:
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.server.deliverer._INTERVAL", 0.05)


@pytest.fixture
def receiver(teams: Teams) -> Iterator[Receiver]:
    with receiving() as made:
        text = f'[notifications.functions]\n"{FUNCTION}" = "{made.url}"\n'
        (teams.backend.home.root / "server.toml").write_text(text)
        yield made


def client_of(teams: Teams, user: str, number: int = 0) -> Any:
    """The client of a user, who has the key with this number."""
    for key in teams.accounts.keys(user):
        teams.accounts.delete_key(key.fingerprint)
    teams.accounts.add_key(user, public_pem(number))
    config = config_of(user, number)
    return oci.events.EventsClient(config, service_endpoint=f"http://127.0.0.1:{teams.port}")


@pytest.fixture
def client(teams: Teams) -> Iterator[Any]:
    """The client of a submitter of project vision, whose rules are deleted afterwards."""
    made = client_of(teams, "sam")
    yield made
    for one in made.list_rules(VISION).data:
        made.delete_rule(one.id)
    for left in teams.api("anouk").notifications():
        teams.backend.store.notifications.delete(left.id)


def rule(condition: Any, *actions: Any, **more: Any) -> Any:
    details = {
        "display_name": "failed runs",
        "is_enabled": True,
        "condition": condition if isinstance(condition, str) else json.dumps(condition),
        "compartment_id": VISION,
        "actions": models.ActionDetailsList(actions=list(actions)),
    }
    return models.CreateRuleDetails(**{**details, **more})


def function(function_id: str = FUNCTION, **more: Any) -> Any:
    return models.CreateFaaSActionDetails(function_id=function_id, is_enabled=True, **more)


def refused(status: int, code: str, call: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(oci.exceptions.ServiceError) as caught:
        call(*args, **named, retry_strategy=oci.retry.NoneRetryStrategy())
    assert (caught.value.status, caught.value.code) == (status, code), caught.value
    return str(caught.value.message)


@pytest.mark.shows("jobs/lifecycle-notifications")
def test_a_function_is_called_for_the_events_of_a_condition(
    teams: Teams, client: Any, receiver: Receiver
) -> None:
    condition = {
        "eventType": [f"{TYPE}failedjobrun", f"{TYPE}createjobrun.*"],
        "data": {"resourceName": "wanted*"},
    }
    made = client.create_rule(rule(condition, function(description="x"))).data
    api = teams.api("anouk")
    runs = [
        start(api, command, name=name).id
        for command, name in (("exit 3", "wanted"), ("true", "wanted"), ("exit 3", "other"))
    ]
    for run in runs:
        wait(api, run)
    until(lambda: len(receiver.received) == 5, "five events arrive")
    events = [one.json for one in receiver.received]

    def types(run: str) -> list[str]:
        return [
            one["eventType"].removeprefix(TYPE)
            for one in events
            if one["data"]["resourceId"].endswith(run)
        ]

    assert types(runs[0]) == ["createjobrun.begin", "createjobrun.end", "failedjobrun"]
    assert types(runs[1]) == ["createjobrun.begin", "createjobrun.end"]
    assert {one["data"]["compartmentId"] for one in events} == {VISION}
    failed = next(one for one in events if one["eventType"] == f"{TYPE}failedjobrun")
    assert failed["data"]["additionalDetails"]["exitCode"] == 3
    client.delete_rule(made.id)
    assert api.notifications() == []


def test_a_topic_is_a_notification_of_the_project(
    teams: Teams, client: Any, receiver: Receiver
) -> None:
    from muster.api.notifications import NotificationRequest

    api = teams.api("anouk")
    topic = api.create_notification(
        NotificationRequest("alarms", receiver.url, ("object.deleted",))
    ).notification
    for topic_id in ("alarms", f"ocid1.onstopic.oc1.iad.{topic.id}"):
        action = models.CreateNotificationServiceActionDetails(topic_id=topic_id, is_enabled=True)
        made = client.create_rule(rule({"eventType": f"{TYPE}succeededjobrun"}, action)).data
        receiver.received.clear()
        wait(api, start(api, "true").id)
        until(lambda: len(receiver.received) == 1, "an event arrives")
        assert receiver.received[0].json["eventType"] == f"{TYPE}succeededjobrun"
        client.delete_rule(made.id)
    api.delete_notification("alarms")


def test_a_rule_from_its_creation_to_its_end(teams: Teams, client: Any, receiver: Receiver) -> None:
    api = teams.api("anouk")
    condition = json.dumps({"eventType": f"{TYPE}failedjobrun"})
    given = rule(condition, function(), freeform_tags={"a": "b"}, description="why")
    made = client.create_rule(given, opc_retry_token="token-1").data
    assert client.create_rule(given, opc_retry_token="token-1").data.id == made.id
    assert made.id.startswith("ocid1.eventrule.muster.local..")
    assert (made.display_name, made.description, made.condition) == (
        *("failed runs", "why", condition),
    )
    assert (made.lifecycle_state, made.is_enabled, made.compartment_id) == ("ACTIVE", True, VISION)
    (action,) = made.actions.actions
    assert (action.action_type, action.function_id, action.lifecycle_state) == (
        *("FAAS", FUNCTION, "ACTIVE"),
    )
    assert client.get_rule(made.id).data == made
    listed = client.list_rules(
        VISION, display_name="failed runs", sort_by="TIME_CREATED", lifecycle_state="ACTIVE"
    ).data
    assert [one.id for one in listed] == [made.id]
    assert len(api.notifications()) == 1
    off = models.UpdateRuleDetails(is_enabled=False, display_name="off")
    changed = client.update_rule(made.id, off).data
    assert (changed.lifecycle_state, changed.display_name, changed.condition) == (
        *("INACTIVE", "off", condition),
    )
    assert api.notifications() == []
    two = models.ActionDetailsList(actions=[function(), function(description="second")])
    client.update_rule(made.id, models.UpdateRuleDetails(is_enabled=True, actions=two))
    assert [one.format for one in api.notifications()] == ["oci", "oci"]
    client.delete_rule(made.id)
    refused(404, "NotAuthorizedOrNotFound", client.get_rule, made.id)
    assert client.list_rules(VISION).data == []


def test_many_rules_have_pages(teams: Teams, client: Any, receiver: Receiver) -> None:
    made = [
        client.create_rule(rule({}, function(), display_name=f"rule {n}")).data.id for n in range(5)
    ]
    pages = oci.pagination.list_call_get_all_results(client.list_rules, VISION, limit=2)
    assert {one.id for one in pages.data} == set(made)
    for one in made:
        client.delete_rule(one)


def test_a_rule_about_other_services_never_fires(
    teams: Teams, client: Any, receiver: Receiver
) -> None:
    condition = {"eventType": "com.oraclecloud.computeapi.launchinstance.end"}
    made = client.create_rule(rule(condition, function())).data
    assert made.lifecycle_state == "ACTIVE"
    assert teams.api("anouk").notifications() == []


@pytest.mark.parametrize(
    ("condition", "actions", "message"),
    [
        ("{", [function()], "condition is not valid JSON"),
        ("[]", [function()], "condition: the condition has to be a JSON object"),
        ("{}", [], "actions has to have 1 to 10 actions"),
        (
            "{}",
            [function("ocid1.fnfunc.oc1..bbbb")],
            "fnfunc.oc1..bbbb has no URL",
        ),
        (
            "{}",
            [models.CreateNotificationServiceActionDetails(topic_id="nothing", is_enabled=True)],
            "topicId: there is no notification nothing",
        ),
        (
            "{}",
            [models.CreateStreamingServiceActionDetails(stream_id="x", is_enabled=True)],
            "OSS are not possible here",
        ),
    ],
)
def test_bad_input(
    teams: Teams, client: Any, receiver: Receiver, condition: str, actions: Any, message: str
) -> None:
    details = rule(condition, *actions)
    assert message in refused(400, "InvalidParameter", client.create_rule, details)
    assert client.list_rules(VISION).data == []
    assert teams.api("anouk").notifications() == []


def test_rules_of_others_do_not_exist(teams: Teams, client: Any, receiver: Receiver) -> None:
    gone = (404, "NotAuthorizedOrNotFound")
    refused(*gone, client.create_rule, rule({}, function(), compartment_id=SOUND))
    refused(*gone, client.list_rules, SOUND)
    made = client.create_rule(rule({}, function())).data
    change = models.ChangeRuleCompartmentDetails(compartment_id=SOUND)
    refused(*gone, client.change_rule_compartment, made.id, change)
    teams.accounts.create_user(UserRecord("vic", UserKind.PERSON, 0.0))
    teams.accounts.set_member("vision", "vic", Role.VIEWER)
    viewer = client_of(teams, "vic", 1)
    assert viewer.get_rule(made.id).data.id == made.id
    off = models.UpdateRuleDetails(is_enabled=False)
    refused(*gone, viewer.update_rule, made.id, off)
    refused(*gone, viewer.delete_rule, made.id)
    teams.accounts.set_member("vision", "vic", Role.SUBMITTER)
    refused(*gone, client_of(teams, "vic", 2).update_rule, made.id, off)
    stale = {"if_match": "other"}
    refused(412, "NoEtagMatch", client.delete_rule, made.id, **stale)
    client.delete_rule(made.id, if_match=client.get_rule(made.id).headers["etag"])


def test_a_change_that_is_refused_changes_nothing(
    teams: Teams, client: Any, receiver: Receiver
) -> None:
    made = client.create_rule(rule({}, function())).data
    before = [one.name for one in teams.api("anouk").notifications()]
    assert before
    many = models.UpdateRuleDetails(
        actions=models.ActionDetailsList(actions=[function() for _ in range(11)])
    )
    text = refused(400, "InvalidParameter", client.update_rule, made.id, many)
    assert text == "actions has to have 1 to 10 actions"
    move = models.ChangeRuleCompartmentDetails(compartment_id=VISION)
    refused(
        *(412, "NoEtagMatch", client.change_rule_compartment, made.id, move), if_match="another"
    )
    assert client.get_rule(made.id).data == made
    assert [one.name for one in teams.api("anouk").notifications()] == before
