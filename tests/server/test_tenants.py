"""Nothing of a project is shown to others, or changed by them: every route, for every caller.

The cases are checked against the table of routes: a new route without a case fails.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from muster.api.notifications import NotificationRequest
from muster.caller import Caller, Only
from muster.iam.authenticate import Authenticator
from muster.lifecycle.schedule import Timing
from muster.permissions import Permission
from muster.server.handlers import open_routes, socket_routes, token_routes
from muster.service.policies import EmbeddedPolicies
from muster.storage import uploads
from muster.store.account_records import AuditFilter
from muster.store.records import RunFilter
from support.api_runs import prepare, start, wait
from support.faults import until
from support.keys import public_pem
from support.server_thread import ONE_USER, TOKEN
from support.teams import UPGRADE, Reply, Teams, serving_teams

#: What the run prints and writes, and what else is of the project alone.
MARK = "word-of-vision"
CODE = b"print('word-of-vision')\n"
PART = b"word-of-vi"
PROGRAM = f"""
echo {MARK}
echo {MARK} > "$MUSTER_OUTPUTS/file"
"""
SPEC = {"type": "spec", "spec": {"name": "kite", "command": ["true"]}}


class Case(Struct, frozen=True):
    """How a route is requested so that it would show or change something of the project."""

    #: Parameter of the path -> what it names in `World.names`.
    path: dict[str, str] = {}
    query: str = ""
    body: Any = None
    #: Statuses of the answer to the project's administrator.
    statuses: tuple[int, ...] = (200,)
    #: Whether the project's data are found without a name of them: then others get their own data,
    #: and not the answer for what does not exist.
    own: bool = False
    #: Whether the answer is another one each time.
    changing: bool = False
    #: The request that deletes again what others make of their own by it.
    undo: str = ""
    #: Whether a token without any right may be used.
    free: bool = False


RUN, LIVE, JOB = {"run_id": "run"}, {"run_id": "live"}, {"job_id": "job"}
SCHEDULE = {"schedule_id": "schedule"}
NOTIFICATION = {"notification_id": "notification"}
POLICY, GROUP, DYNAMIC_GROUP = {"policy_id": "policy"}, {"name": "group"}, {"name": "runs"}
STATEMENTS = ["Allow group guests to read data-science-jobs in compartment vision"]
REVIEW = {"written": {"spec": {}, "given": {}}, "changes": {}, "found": []}
#: The routes, those that change something last.
CASES: dict[str, Case] = {
    "GET /caller": Case(own=True, free=True),
    "GET /space-warning": Case(own=True, free=True),
    "GET /engines": Case(own=True),
    "POST /engines/{name}/check": Case({"name": "shape"}, own=True, changing=True),
    "GET /shapes": Case(own=True),
    "GET /shapes/{name}": Case({"name": "shape"}, own=True),
    "GET /jobs": Case(query="deleted=true", own=True),
    "GET /jobs/{text}": Case({"text": "job"}),
    "GET /jobs/{job_id}/events": Case(JOB),
    "GET /jobs/{job_id}/spec": Case(JOB),
    "GET /jobs/{job_id}/code-size": Case(JOB),
    "POST /jobs/check-deletable": Case(body={"job_ids": ["{job}"]}),
    "POST /specs/review": Case(body=REVIEW, statuses=(200, 422), own=True),
    "GET /notifications": Case(own=True),
    "GET /notifications/{text}": Case({"text": "notification"}),
    "GET /notifications/{notification_id}/deliveries": Case(NOTIFICATION),
    "GET /failed-deliveries": Case(own=True),
    "GET /schedules": Case(own=True),
    "GET /schedules/{text}": Case({"text": "schedule"}),
    "GET /schedules/{schedule_id}/firings": Case(SCHEDULE),
    "GET /schedules/{schedule_id}/webhook": Case(SCHEDULE, statuses=(422,)),
    "GET /runs": Case(own=True),
    "GET /run-records": Case(own=True),
    "POST /runs/replica-table": Case(body={"run_ids": ["{run}"], "query": {}}),
    "GET /runs/{text}": Case({"text": "run"}),
    "GET /runs/{text}/summary": Case({"text": "run"}),
    "GET /runs/{run_id}/nodes": Case(RUN),
    "GET /runs/{run_id}/shown-nodes": Case(RUN),
    "GET /runs/{run_id}/restarts": Case(RUN),
    "GET /runs/{run_id}/why": Case(RUN),
    "GET /runs/{run_id}/waiting-for": Case(RUN),
    "GET /runs/{run_id}/replicas": Case(RUN),
    "GET /runs/{run_id}/limits": Case(RUN),
    "GET /runs/{run_id}/endpoints": Case(RUN),
    "GET /runs/{run_id}/cluster-access": Case(LIVE),
    "GET /runs/{run_id}/usage": Case(RUN),
    "GET /runs/{run_id}/counters": Case(LIVE),
    "GET /runs/{run_id}/stacks": Case(LIVE, "ranks=0"),
    "GET /runs/{run_id}/events": Case(RUN),
    "GET /runs/{run_id}/events/last": Case(RUN),
    "GET /runs/{run_id}/events/stream": Case(RUN),
    "GET /runs/{run_id}/watch": Case(RUN),
    "GET /runs/{run_id}/log": Case(RUN),
    "GET /runs/{run_id}/log-folder": Case(RUN),
    "GET /runs/{run_id}/outputs": Case(RUN),
    "GET /runs/{run_id}/output": Case(RUN, "path=file&rank=0"),
    "GET /runs/{run_id}/output/content": Case(RUN, "path=file&rank=0"),
    "GET /runs/{run_id}/results": Case(RUN),
    "GET /runs/{run_id}/results/{rank}": Case({**RUN, "rank": "rank"}, statuses=(404,)),
    "GET /runs/{run_id}/in-progress": Case(LIVE),
    "GET /runs/{run_id}/nodes/running": Case(LIVE),
    "WS /copy": Case(query="source={live}:{rank}:file", statuses=(101,)),
    "WS /runs/{run_id}/nodes/{rank}/exec": Case({**LIVE, "rank": "rank"}, statuses=(101,)),
    "WS /runs/{run_id}/nodes/{rank}/forward": Case(
        {**LIVE, "rank": "rank"}, "port=80", statuses=(101, 502)
    ),
    "GET /disk": Case(own=True),
    "GET /whoami": Case(own=True, free=True),
    "GET /users": Case(statuses=(403,), own=True),
    "GET /users/{name}": Case({"name": "user"}, statuses=(403,)),
    "GET /projects": Case(own=True, free=True),
    "GET /projects/{project}/members": Case({"project": "project"}),
    "GET /tokens": Case(query="project={project}"),
    "GET /oci": Case(own=True, free=True),
    "GET /users/{name}/keys": Case({"name": "user"}, statuses=(403,)),
    "GET /secrets": Case(own=True),
    "GET /audit": Case(query="project={project}"),
    "GET /code/{sha256}": Case({"sha256": "code"}),
    "GET /uploads/{digest}": Case({"digest": "part"}),
    "GET /metrics": Case(own=True, changing=True, free=True),
    "GET /openapi.json": Case(own=True, free=True),
    "GET /policies": Case(own=True),
    "GET /policies/{name}": Case({"name": "policy"}),
    "GET /policies/{policy_id}/revisions": Case(POLICY),
    "POST /statements/check": Case(body={"statements": STATEMENTS, "compartment": "{project}"}),
    "POST /access/preview": Case(
        body={
            "draft": {
                "type": "policy",
                "name": "{policy}",
                "statements": STATEMENTS,
                "compartment": "{project}",
            },
            "since": 0,
        }
    ),
    "POST /access/explain": Case(
        body={
            "question": {
                "who": "any-user",
                "can": "read",
                "on": "data-science-jobs",
                "compartment": "{project}",
            }
        }
    ),
    "GET /groups": Case(own=True),
    "GET /groups/{name}": Case(GROUP),
    "GET /dynamic-groups": Case(own=True),
    "GET /dynamic-groups/{name}": Case(DYNAMIC_GROUP),
    "GET /compartments": Case(own=True),
    "POST /jobs/preview": Case(body={"type": "job", "job": "{job}"}),
    "POST /runs/preview": Case(body={"run": {"source": {"type": "rerun", "run": "{run}"}}}),
    "POST /runs/{run_id}/resume/preview": Case({"run_id": "held"}, body={"changes": {}}),
    # changes
    "PUT /uploads/{digest}": Case({"digest": "part"}, "offset={offset}", b"sion"),
    "POST /uploads/{digest}": Case(
        {"digest": "part"}, body={"file_name": "a.py"}, statuses=(201, 422)
    ),
    "POST /jobs": Case(body={"type": "job", "job": "{job}", "copy": True}, statuses=(201,)),
    "POST /runs": Case(body={"run": {"source": {"type": "job", "job": "{job}"}}}, statuses=(201,)),
    "POST /notifications": Case(
        body={"request": {"name": "other-hook", "target": "https://127.0.0.1:9/"}},
        statuses=(200, 422),
        own=True,
        changing=True,
    ),
    "PATCH /notifications/{notification_id}": Case(
        NOTIFICATION, body={"change": {"on": ["run.failed"]}}
    ),
    "POST /notifications/{notification_id}/pause": Case(NOTIFICATION),
    "POST /notifications/{notification_id}/resume": Case(NOTIFICATION),
    "POST /notifications/{notification_id}/test": Case(NOTIFICATION),
    "POST /failed-deliveries/retry": Case(body={"notification": "{notification}"}),
    "DELETE /notifications/{notification_id}": Case(NOTIFICATION),
    "POST /schedules": Case(
        body={
            "name": "weekly",
            "timing": {"cron": "0 3 * * 1"},
            "run": {"source": {"type": "job", "job": "{job}"}},
        },
        statuses=(201,),
    ),
    "PATCH /schedules/{schedule_id}": Case(SCHEDULE, body={"change": {"cron": "0 4 * * *"}}),
    "POST /schedules/{schedule_id}/webhook": Case(SCHEDULE, statuses=(422,)),
    "POST /schedules/{schedule_id}/pause": Case(SCHEDULE),
    "POST /schedules/{schedule_id}/resume": Case(SCHEDULE),
    "POST /schedules/{schedule_id}/trigger": Case(SCHEDULE, statuses=(201,)),
    "DELETE /schedules/{schedule_id}": Case(SCHEDULE),
    "PATCH /jobs/{job_id}": Case(JOB, body={"changes": ["description=other"]}),
    "POST /runs/{run_id}/scale": Case(
        LIVE, body={"group": "workers", "replicas": 1}, statuses=(200, 422)
    ),
    "POST /runs/{run_id}/adopt": Case(LIVE, statuses=(422,)),
    "POST /runs/{run_id}/resume": Case({"run_id": "held"}, body={"overrides": None}),
    "POST /runs/{run_id}/suspend": Case(LIVE, body={}),
    "POST /runs/{run_id}/cancel": Case(LIVE, body={}),
    "DELETE /runs/{run_id}": Case(RUN),
    "POST /prune": Case(body={"keep": 0, "older_than": None}, own=True),
    "DELETE /jobs/{job_id}/if-unused": Case({"job_id": "spare"}),
    "DELETE /jobs/{job_id}": Case(JOB, statuses=(200, 422)),
    "PUT /secrets/{name}": Case(
        {"name": "secret"}, body={"value": "other"}, own=True, undo="DELETE /secrets/{name}"
    ),
    "DELETE /secrets/{name}": Case({"name": "secret"}),
    "POST /policies": Case(
        body={"name": "other", "statements": STATEMENTS, "compartment": "{project}"}
    ),
    "PATCH /policies/{policy_id}": Case(POLICY, body={"version": 1, "description": "other"}),
    "DELETE /policies/{policy_id}": Case(POLICY, "version=2"),
    "POST /groups": Case(body={"name": "other-users"}, own=True),
    "PUT /groups/{group}/users/{user}": Case({"group": "group", "user": "user"}),
    "DELETE /groups/{group}/users/{user}": Case({"group": "group", "user": "user"}),
    "DELETE /groups/{name}": Case(GROUP),
    "POST /dynamic-groups": Case(
        body={"name": "other-runs", "rule": "resource.type = 'x'"}, own=True
    ),
    "PATCH /dynamic-groups/{name}": Case(
        DYNAMIC_GROUP, body={"version": 1, "description": "other"}
    ),
    "DELETE /dynamic-groups/{name}": Case(DYNAMIC_GROUP),
    "POST /compartments": Case(body={"name": "below", "parent": "{project}"}),
    "POST /compartments/{name}/move": Case(
        {"name": "project"}, body={"parent": "{project}"}, statuses=(422,)
    ),
    "DELETE /compartments/{name}": Case({"name": "project"}, statuses=(422,)),
    "POST /users": Case(
        body={"user": {"name": "eve", "kind": "person", "created_at": 0}},
        statuses=(403,),
        own=True,
    ),
    "PATCH /users/{name}": Case(
        {"name": "user"}, body={"change": {"disabled": True}}, statuses=(403,)
    ),
    "POST /projects": Case(body={"name": "{project}"}, statuses=(403,)),
    "PATCH /projects/{name}": Case({"name": "project"}, body={"description": "other"}),
    "PUT /projects/{project}/members/{user}": Case(
        {"project": "project", "user": "user"}, body={"role": "viewer"}
    ),
    "DELETE /projects/{project}/members/{user}": Case({"project": "project", "user": "user"}),
    "POST /users/{name}/keys": Case({"name": "user"}, body={"pem": "x"}, statuses=(403,)),
    "DELETE /keys/{fingerprint}": Case({"fingerprint": "key"}, statuses=(403,)),
    "POST /session-tokens": Case(body={"pem": public_pem(1)}, own=True, changing=True),
    "POST /tokens": Case(body={"name": "x", "user": "{user}"}, statuses=(403,)),
    "DELETE /tokens/{token_id}": Case({"token_id": "token"}, statuses=(403,)),
    "POST /audit/prune": Case(body={"before": 1.0}, statuses=(403,), own=True),
    "DELETE /projects/{name}": Case({"name": "project"}, statuses=(403,)),
}
#: Routes that need no token: none of them has anything of a project.
OPEN = {"GET /healthz", "GET /readyz", "GET /login", "POST /login"}
#: Names of things that there are not.
NOTHING = {
    "run": "0000000000",
    "live": "0000000000",
    "held": "0000000000",
    "job": "0000000000",
    "spare": "0000000000",
    "schedule": "0000000000",
    "notification": "0000000000",
    "code": "0" * 64,
    "part": "0" * 64,
    "offset": "10",
    "rank": "0",
    "shape": "local",
    "user": "no-user",
    "project": "no-project",
    "token": "0000000000",
    "secret": "no-secret",
    "key": "20:3b:97",
    "policy": "no-policy",
    "group": "no-group",
    "runs": "no-dynamic-group",
}


class World:
    """The server, and what the project `vision` has."""

    def __init__(self, teams: Teams) -> None:
        self.teams = teams
        api = teams.api("anouk")
        run = start(api, PROGRAM)
        assert wait(api, run.id) == "SUCCEEDED", api.run(run.id).details
        live, held = start(api, f"echo {MARK}; sleep 600"), start(api, "true", suspend=True)
        until(lambda: all(node.state == "READY" for node in api.nodes(live.id)), "it is ready")
        self.api = api
        code, part = (hashlib.sha256(data).hexdigest() for data in (CODE, PART + b"sion"))
        home = teams.backend.home
        for digest, data in ((code, CODE), (part, PART)):
            with uploads.open_part(home, "vision", digest, 0) as file:
                file.write(data)
        uploads.finish(home, "vision", code, "train.py", "file", teams.backend.artifact_lock)
        api_accounts, policies = teams.accounts, EmbeddedPolicies(teams.backend)
        teams.request("PUT", "/v1/secrets/key", teams.token("anouk"), {"value": MARK})
        self.names = {
            **NOTHING,
            "run": run.id,
            "live": live.id,
            "held": held.id,
            "job": run.job_id,
            "spare": api.create_job(prepare(api, "echo spare").job).id,
            "code": code,
            "part": part,
            "schedule": api.create_schedule(
                "night-of-vision", Timing(cron="0 3 * * *"), prepare(api, "true")
            ).id,
            "notification": api.create_notification(
                NotificationRequest("hook-of-vision", "https://127.0.0.1:9/word-of-vision")
            ).notification.id,
            "offset": str(len(PART)),
            "user": "sam",
            "project": "vision",
            "token": api_accounts.create_token("laptop", user="sam").record.id,
            "secret": "key",
            "key": api_accounts.add_key("sam", public_pem()).fingerprint,
            "policy": policies.create_policy("guests-of-vision", STATEMENTS, "vision").id,
            "group": policies.create_group("group-of-vision").name,
            "runs": policies.create_dynamic_group("runs-of-vision", "resource.type = 'x'").name,
        }
        self.own = teams.token("anouk")
        self.other = teams.token("oscar")
        self.member_of_none = teams.token("nora")
        self.without_rights = teams.token("anouk", scopes=frozenset())
        expired = teams.token("anouk", expires_at=time.time() + 0.01)
        revoked = teams.accounts.create_token("lost", user="anouk")
        teams.accounts.revoke_token(revoked.record.id)
        self.invalid = ("", TOKEN, expired, revoked.text, self.own[:-1])
        until(lambda: teams.request("GET", "/v1/caller", expired).status == 401, "it expires")

    def request(
        self, route: str, token: str, names: dict[str, str], project: str | None = None
    ) -> Reply:
        """The answer to a case of a route, with these names."""
        case = CASES[route]
        verb, _, path = route.partition(" ")
        for parameter, name in case.path.items():
            path = path.replace(f"{{{parameter}}}", names[name])
        query = case.query.format(**names)
        headers = dict(UPGRADE) if verb == "WS" else {}
        if project is not None:
            headers["Muster-Project"] = project
        verb = "GET" if verb == "WS" else verb
        body = _filled(case.body, names)
        return self.teams.request(verb, f"/v1{path}?{query}", token, body, headers=headers)

    def marks(self) -> list[bytes]:
        """What only the project's members may see."""
        names = [name for key, name in self.names.items() if name != NOTHING[key]]
        return [MARK.encode(), b"anouk", *(name.encode() for name in names if not name.isdigit())]

    def recorded(self) -> Any:
        """All that there is of the project, and the accounts."""
        store, api = self.teams.backend.store, self.api
        runs, jobs = api.run_records(RunFilter()), api.jobs(deleted=True)
        tokens = [replace(token, last_used_at=None) for token in store.accounts.tokens()]
        files = sorted(p.name for p in (self.teams.backend.home.uploads / "vision").iterdir())
        accounts = (store.accounts.users(), store.accounts.projects(), store.accounts.members())
        schedules = [(one, api.firings(one.id)) for one in api.schedules()]
        secrets, keys = store.secrets.listing("vision"), store.keys.listing("sam")
        notifications = store.notifications.listing("vision")
        state = replace(store.policies.load(), generation=0)
        policies = (state, store.policies.group_members())
        return (
            *(runs, jobs, tokens, accounts, files, secrets, schedules, keys, notifications),
            policies,
        )


def _filled(value: Any, names: dict[str, str]) -> Any:
    """A body with the names in its texts."""
    if isinstance(value, str) and value.startswith("{"):
        return value.format(**names)
    if isinstance(value, dict):
        return {key: _filled(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, names) for one in value]
    return value


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with serving_teams(ONE_USER) as teams:
        yield World(teams)


def routes() -> list[str]:
    found = [f"{verb} {path}" for verb, path, _ in token_routes().all]
    return [*found, *(f"WS {path.removeprefix('/v1')}" for _, path, _ in socket_routes().all)]


def test_every_route_has_a_case() -> None:
    assert sorted(CASES) == sorted(routes()), "add a case for what is new"
    assert {f"{verb} {path}" for verb, path, _ in open_routes().all} == OPEN


@pytest.mark.parametrize("route", CASES)
def test_another_project_is_not_seen(world: World, route: str) -> None:
    before = world.recorded()
    for token, project in (
        (world.other, None),
        (world.other, "sound"),
        (world.member_of_none, None),
        (world.member_of_none, "default"),
    ):
        found = world.request(route, token, world.names, project)
        unknown = world.request(route, token, NOTHING, project)
        same = _without(found, world) == _without(unknown, world)
        assert same or CASES[route].changing, found
        assert CASES[route].own or found.status in (403, 404, 409, 422) or route in NO_NAME
        given = b"".join(name.encode() + b"\n" for name in world.names.values())
        for mark in world.marks():
            assert mark not in found.body or mark in given, found
        if CASES[route].undo:
            for names in (world.names, NOTHING):
                world.request(CASES[route].undo, token, names, project)
    assert world.recorded() == before


#: Routes that answer anybody who may use them, as if there were nothing.
NO_NAME = {"GET /uploads/{digest}"}


@pytest.mark.parametrize("route", CASES)
def test_another_project_cannot_be_chosen(world: World, route: str) -> None:
    before = world.recorded()
    for token in (world.other, world.member_of_none):
        found = world.request(route, token, world.names, "vision")
        assert (found.status, found.problem) == (403, "Forbidden")
        unknown = world.request(route, token, world.names, "no-project")
        assert _without(unknown, world) == _without(found, world)
    assert world.recorded() == before


@pytest.mark.parametrize("route", CASES)
def test_nothing_is_done_without_the_right(world: World, route: str) -> None:
    before = world.recorded()
    found = world.request(route, world.without_rights, world.names)
    if not CASES[route].free:
        assert (found.status, found.problem) == (403, "Forbidden")
        unknown = world.request(route, world.without_rights, {**NOTHING, "project": "vision"})
        assert _without(unknown, world) == _without(found, world)
        assert MARK.encode() not in found.body
    assert world.recorded() == before


@pytest.mark.parametrize("route", CASES)
def test_nothing_is_done_without_a_valid_token(world: World, route: str) -> None:
    before = world.recorded()
    for token in world.invalid:
        found = world.request(route, token, world.names)
        assert (found.status, found.problem) == (401, "NotAuthenticated")
        assert found.headers["www-authenticate"] == 'Bearer realm="muster"'
        unknown = world.request(route, token, NOTHING)
        assert _without(unknown, world) == _without(found, world)
    assert world.recorded() == before


def _without(reply: Reply, world: World) -> Any:
    """An answer without what differs from request to request, and with the same word for each
    name."""
    body = reply.body.decode()
    if "x-request-id" in reply.headers:
        body = body.replace(reply.headers["x-request-id"], "REQUEST")
    body = re.sub(r"[0-9]{10}\.[0-9]+", "TIME", body)
    for name in sorted({*world.names.values(), *NOTHING.values()}, key=len, reverse=True):
        if not name.isdecimal() or len(name) >= 10:
            body = body.replace(name, "NAME")
    return reply.status, body


#: Routes about accounts: who asks, or administers, or gives what, decides. The others need a
#: permission.
OF_ACCOUNTS = {
    *("GET /users", "GET /users/{name}", "POST /users", "PATCH /users/{name}"),
    *("GET /users/{name}/keys", "POST /users/{name}/keys", "DELETE /keys/{fingerprint}"),
    *("POST /session-tokens", "POST /tokens", "DELETE /tokens/{token_id}"),
    *("POST /projects", "DELETE /projects/{name}", "POST /audit/prune", "GET /audit"),
    *("PUT /projects/{project}/members/{user}", "DELETE /projects/{project}/members/{user}"),
}
WITH_PERMISSION = [
    route for route, case in CASES.items() if not case.free and route not in OF_ACCOUNTS
]
#: Route -> what it needs besides the first permission that is missing.
MORE = {
    "GET /runs/{run_id}/in-progress": {Permission.NODE_ENTER},
    "GET /runs/{run_id}/nodes/running": {Permission.NODE_ENTER, Permission.JOB_RUN_READ},
    "WS /copy": {Permission.NODE_ENTER},
    "WS /runs/{run_id}/nodes/{rank}/exec": {Permission.NODE_ENTER, Permission.JOB_RUN_READ},
    "WS /runs/{run_id}/nodes/{rank}/forward": {Permission.NODE_ENTER},
    **{one: {Permission.JOB_READ} for one in ("POST /jobs", "POST /jobs/preview", "POST /runs")},
    "GET /jobs/{job_id}/spec": {Permission.JOB_RUN_CREATE},
    "POST /runs/preview": {Permission.JOB_READ, Permission.JOB_RUN_READ},
    "POST /schedules": {Permission.JOB_READ, Permission.JOB_RUN_CREATE},
    "POST /schedules/{schedule_id}/trigger": {Permission.JOB_READ, Permission.SCHEDULE_READ},
    "POST /access/preview": {Permission.AUDIT_READ},
    "PATCH /policies/{policy_id}": {Permission.POLICY_UPDATE},
    "DELETE /policies/{policy_id}": {Permission.POLICY_DELETE},
    "POST /compartments/{name}/move": {Permission.COMPARTMENT_CREATE},
}


def request_with(world: World, route: str, permissions: Collection[Permission]) -> Reply:
    """The answer to the project's administrator, who has no other permissions than these."""
    return with_only(permissions, lambda: world.request(route, world.own, world.names))


def with_only(permissions: Collection[Permission], ask: Callable[[], Reply]) -> Reply:
    """The answer to a request while everybody has these permissions alone."""
    authenticate = Authenticator.authenticate

    def limited(self: Authenticator, *given: Any) -> Caller:
        return replace(authenticate(self, *given), authority=Only(*permissions))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Authenticator, "authenticate", limited)
        return ask()


def missing(reply: Reply) -> Permission | None:
    """What a refused request needs; None if that is not why it was refused."""
    text = r"anouk may not .+: this takes ([A-Z_]{5,})"
    found = re.search(text, reply.body.decode(errors="replace"))
    return None if found is None or reply.status != 403 else Permission(found[1])


@pytest.mark.parametrize("route", WITH_PERMISSION)
def test_nothing_is_done_without_the_permission(world: World, route: str) -> None:
    before = world.recorded()
    needed = missing(request_with(world, route, ()))
    assert needed is not None
    others = frozenset(Permission) - {needed}
    assert missing(request_with(world, route, others)) == needed
    for one in MORE.get(route, ()):
        assert missing(request_with(world, route, frozenset(Permission) - {one})) == one
    assert world.recorded() == before


def _run_of(name: str) -> dict[str, Any]:
    """The source of a run of a Job that is described."""
    return {"source": {"type": "spec", "spec": {"name": name, "command": ["true"]}}}


#: Requests that record a Job besides what they are for, by routes. preview: nothing is recorded.
OF_SPECS: dict[str, Callable[[str], dict[str, Any]]] = {
    "POST /runs": lambda name: {"run": _run_of(name)},
    "POST /runs/preview": lambda name: {"run": _run_of(name)},
    "POST /schedules": lambda name: {
        "name": f"of-{name}",
        "timing": {"every": 3600.0},
        "run": _run_of(name),
    },
}
STARTS = {Permission.JOB_RUN_CREATE, Permission.SCHEDULE_CREATE}


def _posted(world: World, route: str, name: str, permissions: Collection[Permission]) -> Reply:
    body, (verb, path) = OF_SPECS[route](name), route.split()
    return with_only(permissions, lambda: world.teams.request(verb, f"/v1{path}", world.own, body))


@pytest.mark.parametrize("route", OF_SPECS)
def test_a_job_that_is_created_besides_needs_its_permission(world: World, route: str) -> None:
    before, store = world.recorded(), world.teams.backend.store
    name = f"new-{route.rpartition('/')[2]}"
    refused = _posted(world, route, name, STARTS)
    assert missing(refused) == Permission.JOB_CREATE, refused
    last = store.audit.listing(AuditFilter(limit=1))[0]
    assert (last.allowed, last.permission) == (False, Permission.JOB_CREATE)
    assert last.attributes["target.job.name"] == name
    assert world.recorded() == before


def test_the_audit_log_has_both_permissions_of_a_new_job(world: World) -> None:
    store = world.teams.backend.store
    body = {"run": _run_of("both")}
    assert world.teams.request("POST", "/v1/runs", world.own, body).status == 201
    entries = store.audit.listing(AuditFilter(limit=2))
    assert [(entry.action, entry.object, entry.permission) for entry in entries] == [
        ("jobs.create", "both", Permission.JOB_CREATE),
        ("runs.start", "both", Permission.JOB_RUN_CREATE),
    ]
    assert all(entry.allowed and entry.statement for entry in entries)
    # the same again is of the same Job
    again = _posted(world, "POST /runs", "both", {Permission.JOB_RUN_CREATE, Permission.JOB_READ})
    assert again.status == 201, again
    assert store.audit.listing(AuditFilter(limit=1))[0].action == "runs.start"


@pytest.mark.parametrize("headers", [{}, UPGRADE])
def test_the_audit_log_has_who_asked_for_a_project_of_others(
    world: World, headers: dict[str, str]
) -> None:
    teams = world.teams
    oscar, limited = teams.token("oscar"), teams.token("sam", project="vision")
    for token, project in ((oscar, "vision"), (oscar, "none"), (limited, "sound")):
        named = {"Muster-Project": project, **headers}
        reply = teams.request("GET", "/v1/runs", token, headers=named)
        assert (reply.status, reply.problem) == (403, "Forbidden")
    entries = teams.backend.store.audit.listing(AuditFilter())[:3]
    assert [(entry.user, entry.action, entry.project) for entry in entries] == [
        ("sam", "projects.use", "sound"),
        ("oscar", "projects.use", "none"),
        ("oscar", "projects.use", "vision"),
    ]
    assert all(not entry.allowed and entry.token_id and entry.address for entry in entries)
    assert "is a member of no project named 'none'" in entries[1].why


# it changes the project, so it is the last one
def test_the_cases_reach_the_project(world: World) -> None:
    """With their permissions alone."""
    wrong = {}
    for route, case in CASES.items():
        if route in WITH_PERMISSION:
            needed = missing(request_with(world, route, ()))
            assert needed is not None, route
            found = request_with(world, route, {needed, *MORE.get(route, ())})
        else:
            found = world.request(route, world.own, world.names)
        if found.status not in case.statuses:
            wrong[route] = (found.status, found.body[:300])
    assert not wrong, "\n".join(f"{route}: {found}" for route, found in wrong.items())
    entries = world.teams.backend.store.audit.listing(AuditFilter(project="vision"))
    assert {entry.user for entry in entries if entry.allowed} <= {"anouk", "root", ""}
