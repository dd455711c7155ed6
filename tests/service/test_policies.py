"""`PoliciesAPI` in this process and of a server: who may do what, and what is recorded of it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.api.policies import PoliciesAPI, PolicyDraft, Question, RuleDraft
from muster.caller import Caller, Role
from muster.client.contexts import Address
from muster.client.http.policies import HttpPolicies
from muster.errors import AlreadyExists, Conflict, Forbidden, InvalidInput, NotFound
from muster.iam.authenticate import Authenticator
from muster.iam.authority import authority_of_user
from muster.iam.policies.decisions import Access
from muster.permissions import Permission
from muster.service.accounts import EmbeddedAccounts
from muster.service.audit import Origin
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.service.policies import EmbeddedPolicies
from muster.spec.ocids import compartment_ocid, ocid
from muster.storage.home import Home
from muster.store.account_records import AuditEntry, AuditFilter, UserKind, UserRecord
from muster.store.policy_records import PolicyRecord
from support.api_runs import prepare
from support.server_thread import running_server, users_of
from support.teams import Teams, serving_teams

#: Users besides the administrator `root`; the role of each in the project `vision`. `other` is an
#: admin of another project.
ROLES = {"viewer": Role.VIEWER, "submitter": Role.SUBMITTER, "manager": Role.ADMIN}
EVERYBODY = ("root", "manager", "submitter", "viewer", "other")
READ = "Allow group guests to read data-science-jobs in compartment vision"
RULE = "resource.type = 'datasciencejobrun'"


class World:
    """A server's records, with users and a project. url: of a server that has them; "" if the API
    is in this process."""

    def __init__(self, backend: Backend, url: str) -> None:
        self.backend, self.url, self.store = backend, url, backend.store
        self.opened: list[HttpPolicies] = []
        self.accounts = EmbeddedAccounts(backend)
        self.local = EmbeddedPolicies(backend)
        self.accounts.create_user(UserRecord("root", UserKind.PERSON, 0.0, admin=True))
        self.accounts.create_project("vision")
        self.accounts.create_project("sound")
        for name in (*ROLES, "other", "guest"):
            self.accounts.create_user(UserRecord(name, UserKind.PERSON, 0.0))
        for name, role in ROLES.items():
            self.accounts.set_member("vision", name, role)
        self.accounts.set_member("sound", "other", Role.ADMIN)
        self.local.create_group("guests")
        self.local.add_to_group("guests", "guest")
        self.local.create_dynamic_group("runs", RULE)
        self.policy = self.local.create_policy("guests", [READ], "vision")

    def of(self, name: str, project: str | None = "") -> PoliciesAPI:
        """The API for a user, with a new token."""
        text = self.accounts.create_token("t", user=name).text
        if project == "":
            project = "sound" if name == "other" else "vision"
        if self.url:
            self.opened.append(HttpPolicies(Address(self.url, text, project)))
            return self.opened[-1]
        authenticator = Authenticator(self.store.accounts, self.backend.policies)
        caller = authenticator.authenticate(text, time.time(), project)
        return EmbeddedPolicies(self.backend, caller, Origin("192.0.2.7", "request-1"))

    def log(self) -> list[AuditEntry]:
        """The audit log, newest first."""
        return self.accounts.audit(AuditFilter(limit=10_000))


@pytest.fixture(params=["embedded", "http"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    backend = Backend(Home(tmp_path / "home"))
    with ExitStack() as stack:
        stack.callback(backend.close)
        url = ""
        if request.param == "http":
            server = stack.enter_context(running_server(backend, users_of(backend)))
            url = server.address().url
        made = World(backend, url)
        yield made
        for api in made.opened:
            api.close()


Act = Callable[[PoliciesAPI, World], object]
DRAFT = PolicyDraft("guests", (READ,), "vision")
MEMBERS = "root manager submitter viewer"


def _change(api: PoliciesAPI, world: World) -> PolicyRecord:
    now = world.local.policy("guests", "vision")
    return api.change_policy(now.id, now.version, description="x")


def _delete(api: PoliciesAPI, world: World) -> None:
    made = world.local.create_policy("gone", [READ], "vision")
    try:
        api.delete_policy(made.id, 1)
    finally:
        if made.id in [one.id for one in world.local.policies()]:
            world.local.delete_policy(made.id, 1)


def _question(who: str, **more: str) -> Question:
    return Question(who, "read", "data-science-jobs", "vision", where=more)


#: Method -> who may do what with it. Everybody else is refused. Each method of the interface is
#: here.
TABLE: dict[str, list[tuple[Act, str]]] = {
    "policies": [
        (lambda api, w: api.policies(), f"{MEMBERS} other"),
        (lambda api, w: api.policies("vision"), MEMBERS),
        (lambda api, w: api.policies("default"), "root"),
    ],
    "policy": [(lambda api, w: api.policy("guests"), MEMBERS)],
    "create_policy": [
        (lambda api, w: api.create_policy("x", [READ], "vision"), "root manager"),
        (lambda api, w: api.create_policy("x", [READ], "default"), "root"),
        (lambda api, w: api.create_policy("x", [READ], "sound"), "root other"),
    ],
    "change_policy": [(_change, "root manager")],
    "delete_policy": [(_delete, "root manager")],
    "policy_revisions": [(lambda api, w: api.policy_revisions(w.policy.id), MEMBERS)],
    "check_statements": [(lambda api, w: api.check_statements([READ], "vision"), MEMBERS)],
    "preview": [
        (lambda api, w: api.preview(DRAFT, 0.0), "root manager"),
        (lambda api, w: api.preview(RuleDraft("runs", RULE), 0.0), "root"),
    ],
    "explain": [
        (lambda api, w: api.explain(_question("guest")), "root"),  # nobody of vision
        (lambda api, w: api.explain(_question("viewer")), MEMBERS),
    ],
    "groups": [(lambda api, w: api.groups(), "root")],
    "group": [(lambda api, w: api.group("guests"), "root")],
    "create_group": [(lambda api, w: api.create_group("x"), "root")],
    "delete_group": [(lambda api, w: api.delete_group("empty"), "root")],
    "add_to_group": [(lambda api, w: api.add_to_group("guests", "viewer"), "root")],
    "remove_from_group": [(lambda api, w: api.remove_from_group("guests", "viewer"), "root")],
    "dynamic_groups": [(lambda api, w: api.dynamic_groups(), "root")],
    "dynamic_group": [(lambda api, w: api.dynamic_group("runs"), "root")],
    "create_dynamic_group": [(lambda api, w: api.create_dynamic_group("x", RULE), "root")],
    "change_dynamic_group": [
        (lambda api, w: api.change_dynamic_group("other-runs", 1, description="y"), "root")
    ],
    "delete_dynamic_group": [(lambda api, w: api.delete_dynamic_group("other-runs"), "root")],
    "compartments": [(lambda api, w: api.compartments(), f"{MEMBERS} other")],
    "create_compartment": [(lambda api, w: api.create_compartment("x", "vision"), "root")],
    "move_compartment": [(lambda api, w: api.move_compartment("sound", "vision"), "root")],
    "delete_compartment": [(lambda api, w: api.delete_compartment("empty"), "root")],
}
ROWS = [(name, number) for name, rows in TABLE.items() for number in range(len(rows))]
#: Reads are recorded once in a while.
READS = {
    *("policies", "policy", "policy_revisions", "check_statements", "preview", "explain"),
    *("groups", "group", "dynamic_groups", "dynamic_group", "compartments"),
}


def test_every_method_is_in_the_table() -> None:
    methods = {name for name, _ in inspect.getmembers(PoliciesAPI, inspect.isfunction)}
    assert {name for name in methods if not name.startswith("_")} == {*TABLE, "close"}


@pytest.mark.parametrize("who", EVERYBODY)
def test_who_may_do_what(world: World, who: str) -> None:
    api = world.of(who)
    for name, number in ROWS:
        act, allowed = TABLE[name][number]
        _prepare(world)
        before = world.log()[0].seq
        try:
            act(api, world)
            done = True
        except (Forbidden, InvalidInput):  # what cannot be read is not there
            done = False
        assert done == (who in allowed.split()), (who, name, number)
        mine = [one for one in world.log() if one.seq > before and one.request_id]
        if name not in READS and mine:
            (entry,) = mine
            assert (entry.user, entry.allowed) == (who, done)
            assert entry.permission


def _prepare(world: World) -> None:
    """Have what a row of the table deletes, and not what it makes."""
    local, store = world.local, world.store
    for policy in local.policies():
        if policy.name == "x":
            local.delete_policy(policy.id, policy.version)
    for kind, found, create, delete in (
        ("group", local.groups(), local.create_group, local.delete_group),
    ):
        names = {one.name for one in found}
        if "empty" not in names:
            create("empty")
        if "x" in names:
            delete("x")
        assert kind
    dynamic = {one.name for one in local.dynamic_groups()}
    if "x" in dynamic:
        local.delete_dynamic_group("x")
    if "other-runs" in dynamic:
        local.delete_dynamic_group("other-runs")
    local.create_dynamic_group("other-runs", RULE)
    compartments = {one.name: one for one in store.accounts.projects()}
    if "x" in compartments:
        local.delete_compartment("x")
    if "empty" not in compartments:
        local.create_compartment("empty")
    local.move_compartment("sound", "default")


def test_policies_decide_at_once(world: World) -> None:
    guest = world.of("guest", "vision")
    world.local.change_policy(
        world.policy.id,
        1,
        ["Allow group guests to manage policies in compartment vision"],
    )
    made = guest.create_policy("of-guest", [READ])
    assert (made.compartment, made.created_by, made.version) == ("vision", "guest", 1)
    world.local.remove_from_group("guests", "guest")
    with pytest.raises(Forbidden):
        world.of("guest", "vision").policies("vision")


def test_a_change_is_based_on_a_version(world: World) -> None:
    api, policy = world.of("manager"), world.policy
    after = api.change_policy(policy.id, 1, [READ, READ.replace("jobs", "job-runs")])
    assert (after.version, len(after.statements), after.updated_by) == (2, 2, "manager")
    with pytest.raises(Conflict, match="has version 2 now, and this change is based on version 1"):
        api.change_policy(policy.id, 1, [READ])
    with pytest.raises(Conflict):
        api.delete_policy(policy.id, 1)
    described = api.change_policy(policy.id, 2, description="For guests")
    assert (described.description, described.statements) == ("For guests", after.statements)
    revisions = api.policy_revisions(policy.id)
    assert [(one.version, len(one.statements)) for one in revisions] == [(3, 2), (2, 2), (1, 1)]
    api.delete_policy(policy.id, 3)
    with pytest.raises(NotFound, match="there is no policy"):
        api.policy(policy.id)


def test_a_change_that_changes_nothing_makes_no_version(world: World) -> None:
    root = world.of("root")
    assert root.change_policy(world.policy.id, 1, [READ]).version == 1
    assert len(root.policy_revisions(world.policy.id)) == 1
    with pytest.raises(InvalidInput, match="has no version 99: its newest one is version 1"):
        root.change_policy(world.policy.id, 99, [READ])


def test_everything_that_is_wrong_with_a_policy_is_reported(world: World) -> None:
    api = world.of("manager")
    wrong = ["Allow group guests to reed data-science-jobs in tenancy", READ, "Allow group"]
    with pytest.raises(InvalidInput) as caught:
        api.create_policy("wrong", wrong)
    assert {one.source.partition(":")[2].partition(":")[0] for one in caught.value.problems} == {
        "1",
        "3",
    }
    with pytest.raises(InvalidInput, match="at least one statement"):
        api.create_policy("wrong", [])
    with pytest.raises(InvalidInput, match="not a valid name of a policy"):
        api.create_policy("not valid", [READ])
    with pytest.raises(InvalidInput):
        world.local.create_dynamic_group("wrong", "resource.typ = 'x'")
    assert [one.name for one in api.policies("vision")] == ["guests"]
    with pytest.raises(AlreadyExists):
        api.create_policy("GUESTS", [READ])


def test_a_name_that_several_compartments_have(world: World) -> None:
    world.local.create_policy("guests", [READ], "default")
    with pytest.raises(InvalidInput, match="2 compartments have a policy 'guests'"):
        world.of("root").policy("guests")
    assert world.of("root").policy("guests", "default").compartment == "default"
    assert world.of("viewer").policy("guests").compartment == "vision"  # the other is not seen


def test_groups_have_users(world: World) -> None:
    api = world.of("root")
    assert not api.add_to_group("GUESTS", "Guest")
    assert [one.user for one in api.group("guests").users] == ["guest"]
    assert [one.user for one in api.group("Administrators").users] == ["root"]
    assert [one.user for one in api.group("vision-viewer").users] == ["viewer"]
    with pytest.raises(NotFound, match="no user named 'nobody'"):
        api.add_to_group("guests", "nobody")
    with pytest.raises(InvalidInput):
        api.delete_group("guests")
    assert api.remove_from_group("guests", "guest")
    assert not api.remove_from_group("guests", "guest")
    api.delete_policy(world.policy.id, 1)  # it names the group
    api.delete_group("guests")
    with pytest.raises(NotFound):
        api.group("guests")


@pytest.mark.parametrize("variable", ["name", "id"])
def test_a_statement_about_one_group(world: World, variable: str) -> None:
    root, other = world.of("root"), world.of("other")
    interns = root.create_group("interns")
    value = {"name": "interns", "id": ocid("group", interns.id)}[variable]
    given = f"Allow group sound-admin to manage groups in tenancy where target.group.{variable}"
    root.create_policy("groups", [f"{given} = '{value}'"], "default")
    assert [one.name for one in other.groups()] == ["interns"]
    assert other.add_to_group("Interns", "guest")
    assert [one.user for one in other.group("interns").users] == ["guest"]
    for act in (other.group, other.delete_group, lambda name: other.add_to_group(name, "guest")):
        with pytest.raises(Forbidden):
            act("guests")
    assert other.remove_from_group("interns", "guest")
    if variable == "name":  # another group of this name would get what the statement gives
        with pytest.raises(InvalidInput):
            other.delete_group("interns")
    else:
        other.delete_group("interns")


def test_compartments_are_a_tree(world: World) -> None:
    api = world.of("root")
    assert api.create_compartment("cameras", "vision", "North").parent == "vision"
    with pytest.raises(InvalidInput):
        api.move_compartment("vision", "cameras")
    with pytest.raises(InvalidInput):
        api.delete_compartment("vision")
    assert api.move_compartment("cameras", "default").parent == ""
    assert [one.name for one in world.of("viewer").compartments()] == ["vision"]
    api.delete_compartment("cameras")


def test_everybody_may_ask_about_themselves(world: World) -> None:
    """Without learning what others may do, or which resources there are."""
    api = world.of("guest", "vision")
    allowed = api.explain(_question("Guest"))
    assert allowed.allowed
    assert {one.statement and one.statement.place for one in allowed.answers} == {"vision/guests#1"}
    refused = api.explain(Question("guest", "manage", "data-science-jobs", "vision"))
    assert not refused.allowed
    assert all(one.missing and not one.near_misses for one in refused.answers if not one.allowed)
    told = world.of("root").explain(Question("guest", "manage", "data-science-jobs", "vision"))
    assert any(one.near_misses for one in told.answers)
    for question in (
        _question("viewer"),
        _question("group:guests"),
        Question("guest", "read", "job:x", "vision"),
        Question("guest", "read", "data-science-jobs", "sound"),
    ):
        with pytest.raises(Forbidden):
            api.explain(question)


def test_what_a_caller_may_not_inspect_is_not_told(world: World) -> None:
    """Groups, users, compartments and policies of others look like those that do not exist."""
    root, manager = world.of("root"), world.of("manager")
    hidden = "Allow group guests to manage data-science-jobs in compartment vision"
    root.create_policy("of-all", [hidden, hidden.replace("guests", "vision-viewer")], "tenancy")
    root.create_compartment("deep", "sound")

    def told(statement: str) -> list[tuple[str, str]]:
        found = manager.check_statements([statement], "vision", "new", "f")
        return [(one.sentence, one.suggestion) for one in found]

    for group in ("guests", "gusts", "nobody"):
        text = "Allow group {} to read repos in compartment vision"
        expected = f"there is no group {group}, or you may not see it"
        assert told(text.format(group)) == [(expected, "create the group first")]
        with pytest.raises(InvalidInput, match=f"no group '{group}', or you may not see it"):
            manager.explain(_question(f"group:{group}"))
    dynamic = "Allow dynamic-group {} to read repos in compartment vision"
    for name in ("runs", "ran"):
        ((sentence, _),) = told(dynamic.format(name))
        assert sentence == f"there is no dynamic group {name}, or you may not see it"
    # that another policy says the same
    assert told("Allow group vision-viewer to read data-science-jobs in compartment vision") == []
    for name in ("guest", "nobody"):
        with pytest.raises(InvalidInput, match=f"there is no user '{name}', or you may not see"):
            manager.explain(_question(name))
    seen = manager.explain(Question("viewer", "manage", "data-science-jobs", "vision"))
    assert seen.allowed
    by = {one.permission: one.statement for one in seen.answers}
    assert by[Permission.JOB_DELETE] is None, "a policy of the tenancy allows it"
    assert by[Permission.JOB_READ] is not None
    refused = manager.explain(Question("submitter", "manage", "data-science-jobs", "vision"))
    assert not refused.allowed
    near = {miss.statement.policy for one in refused.answers for miss in one.near_misses}
    assert "of-all" not in near
    assert "Administrators" not in near
    of_root = root.explain(Question("submitter", "manage", "data-science-jobs", "vision"))
    assert "of-all" in {
        miss.statement.policy for one in of_root.answers for miss in one.near_misses
    }
    assert root.explain(_question("group:guests")).allowed
    ((sentence, fix),) = [
        (one.sentence, one.suggestion)
        for one in root.check_statements([READ.replace("guests", "gests")], "vision")
    ]
    assert (sentence, fix) == ("there is no group gests, or you may not see it", READ)


def test_a_statement_that_is_missing_names_groups_that_the_caller_sees(world: World) -> None:
    world.local.add_to_group("guests", "submitter")
    question = Question("submitter", "delete", "data-science-jobs", "vision")
    question = replace(question, can="DATA_SCIENCE_JOB_DELETE")
    (of_manager,) = world.of("manager").explain(question).answers
    assert of_manager.missing.startswith("Allow group vision-submitter to manage")
    (of_own,) = world.of("submitter").explain(question).answers
    assert "guests" in of_own.missing or "vision-submitter" in of_own.missing


def test_resources_that_may_not_be_inspected_are_not_there(world: World) -> None:
    world.local.delete_policy(world.policy.id, 1)
    world.local.create_policy(
        "reader",
        [
            "Allow group guests to read policies in compartment vision",
            "Allow group guests to inspect data-science-jobs in compartment vision "
            "where target.job.name = 'other'",
        ],
        "vision",
    )
    job = prepare(EmbeddedAPI(backend=world.backend, caller=Caller("root", "vision")), "true").job
    world.store.jobs.insert(job)
    guest, root = world.of("guest", "vision"), world.of("root")
    for name in (job.name, "none"):
        with pytest.raises(InvalidInput, match=f"has no job '{name}', or you may not see it"):
            guest.explain(Question("guest", "inspect", f"job:{name}", "vision"))
    assert root.explain(Question("root", "inspect", f"job:{job.name}", "vision")).allowed


def test_a_group_that_statements_name_is_not_deleted(world: World) -> None:
    """Another one of its name would get what they give."""
    root = world.of("root")
    root.remove_from_group("guests", "guest")
    with pytest.raises(InvalidInput, match=r"group guests cannot be deleted: .* vision/guests#1"):
        root.delete_group("GUESTS")
    root.delete_policy(world.policy.id, 1)
    named = "Allow any-user to manage groups in tenancy where target.group.name = 'Guests'"
    of_name = root.create_policy("g", [named], "tenancy")
    with pytest.raises(InvalidInput, match="still named in g#1"):
        root.delete_group("guests")
    root.delete_policy(of_name.id, 1)
    group = ocid("group", root.group("guests").group.id)
    root.create_policy("g", [f"Allow group id {group} to read repos in tenancy"], "tenancy")
    root.delete_group("guests")
    root.create_group("guests")
    root.add_to_group("guests", "guest")  # it has another OCID
    assert not root.explain(Question("guest", "read", "repos", "vision")).allowed
    statement = "Allow dynamic-group Runs to read repos in tenancy"
    of_runs = root.create_policy("r", [statement], "tenancy")
    with pytest.raises(InvalidInput, match=r"dynamic group runs cannot be deleted: .* r#1"):
        root.delete_dynamic_group("runs")
    root.delete_policy(of_runs.id, 1)
    root.delete_dynamic_group("runs")


@pytest.mark.parametrize(
    "statement",
    [
        "Allow group guests to read repos in compartment SOUND",
        "Allow group guests to read repos in compartment sound:deep",
        f"Allow group guests to read repos in compartment id {compartment_ocid('sound')}",
        "Allow group Sound-admin to read repos in tenancy",
        "Allow group guests to read repos in tenancy where target.compartment.name = 'sound'",
        "Allow any-user to read repos in tenancy where request.principal.compartment.id = "
        f"'{compartment_ocid('sound')}'",
    ],
)
def test_a_compartment_that_statements_name_is_not_deleted(world: World, statement: str) -> None:
    root = world.of("root")
    policy = root.create_policy("p", [statement], "tenancy")
    root.create_policy("own", ["Allow group guests to read repos in compartment sound"], "sound")
    with pytest.raises(InvalidInput, match=r"compartment sound cannot be deleted: .* in p#1 \("):
        root.delete_compartment("sound")
    root.delete_policy(policy.id, 1)
    root.delete_compartment("sound")  # with its own policy


def test_a_compartment_that_rules_name_is_not_deleted(world: World) -> None:
    root = world.of("root")
    root.create_dynamic_group("s", f"resource.compartment.id = '{compartment_ocid('sound')}'")
    with pytest.raises(InvalidInput, match=r"still named in dynamic group s \(change"):
        root.delete_compartment("sound")


def test_what_names_a_group_is_told_to_who_may_read_it(world: World) -> None:
    statement = "Allow group guests to manage groups in tenancy"
    world.local.create_policy("g", [statement])
    world.local.create_group("empty")
    world.local.create_policy("e", [READ.replace("guests", "empty")], "vision")
    guest = world.of("guest", "vision")
    with pytest.raises(
        InvalidInput, match=r"still named in 1 that you may not see \(change"
    ) as caught:
        guest.delete_group("empty")
    assert "vision" not in str(caught.value)


def test_projects_are_compartments(world: World) -> None:
    """Both APIs ask for the same permissions at the same place."""
    world.local.create_compartment("research")
    world.local.move_compartment("sound", "research")
    statement = "Allow group guests to manage compartments in compartment research"
    world.local.create_policy("sound", [statement])
    authority = authority_of_user(world.backend.policies, "guest")
    accounts = EmbeddedAccounts(world.backend, Caller("guest", "vision", authority))
    with pytest.raises(Forbidden):
        accounts.create_project("x")
    with pytest.raises(Forbidden):
        accounts.delete_project("vision")
    accounts.delete_project("sound")
    assert [one.name for one in world.accounts.projects()] == ["default", "research", "vision"]


def entry(**more: object) -> AuditEntry:
    """A request of the guest for the jobs of vision."""
    made = AuditEntry(1000.0, "guest", "jobs.create", project="vision", request_id="r")
    return replace(made, **{"permission": Permission.JOB_READ, **more})


def test_a_preview_tells_what_would_change(world: World) -> None:
    log = world.store.audit
    start = float(int(time.time()))
    log.append(
        entry(time=start),
        entry(time=start + 1),
        entry(time=start, permission=Permission.JOB_CREATE, allowed=False),
        entry(time=start, user="viewer"),
        entry(time=start, user="other", project="sound"),
        entry(time=start - 1000),
        entry(time=start, permission=""),
    )
    api = world.of("manager")
    gone = api.preview(PolicyDraft("guests", None, "vision"), start - 1)
    assert [
        (one.who, one.permission, one.allowed, one.requests, one.last_at) for one in gone.changed
    ] == [("guest", Permission.JOB_READ, False, 2, start + 1)]
    assert gone.changed[0].statement is not None
    assert gone.changed[0].statement.place == "vision/guests#1"
    more = (READ, "Allow group guests to manage data-science-jobs in compartment vision")
    wider = api.preview(PolicyDraft("guests", more, "vision"), start - 1)
    (found,) = wider.changed
    assert (found.permission, found.allowed) == (Permission.JOB_CREATE, True)
    assert found.statement is not None and found.statement.place == "vision/guests#2"
    assert not api.preview(PolicyDraft("GUESTS", (READ,), "vision"), start - 1).changed
    assert api.policy("guests").version == 1
    of_all = world.of("root").preview(PolicyDraft("guests", None, "vision"), start - 1)
    assert of_all.examined > gone.examined


def test_a_preview_knows_the_operations_of_oci(world: World) -> None:
    start, on = float(int(time.time())), {"request.operation": "ListJobs"}
    world.store.audit.append(entry(time=start, attributes=on), entry(time=start, action="other"))
    lists = f"{READ} where request.operation = 'ListJobs'"
    found = world.of("manager").preview(PolicyDraft("guests", (lists,), "vision"), start - 1)
    assert [one.requests for one in found.changed] == [1], "the entry without it is refused"


def test_reads_are_recorded(world: World) -> None:
    before = len(world.log())
    for _ in range(2):
        world.of("manager").policies("vision")
        with pytest.raises(Forbidden):
            world.of("other").policies("vision")
    found = [one for one in world.log()[:-before] if one.permission == Permission.POLICY_READ]
    assert sorted((one.user, one.allowed, one.action, one.project) for one in found) == [
        ("manager", True, "api.read", "vision"),
        ("other", False, "api.read", "vision"),
        ("other", False, "api.read", "vision"),
    ]
    assert next(one.statement for one in found if one.allowed).startswith("vision/role admin#")


def test_a_preview_of_a_dynamic_group(world: World) -> None:
    group = ocid("dynamicgroup", world.local.dynamic_group("runs").group.id)
    statement = f"Allow dynamic-group id {group} to read data-science-jobs in compartment vision"
    world.local.create_policy("runs", [statement], "vision")
    now = time.time()
    world.store.audit.append(entry(time=now, run="0123456789", permission=Permission.JOB_INSPECT))
    found = world.of("root").preview(RuleDraft("runs", None), now - 1)
    # job-runs has the same for runs of the compartment
    assert not found.changed
    job_runs = world.local.policy("job-runs")
    world.local.delete_policy(job_runs.id, job_runs.version)
    (changed,) = world.of("root").preview(RuleDraft("runs", None), now - 1).changed
    assert (changed.who, changed.allowed) == ("run:0123456789", False)


def test_the_audit_log_is_decided_again_as_it_was(tmp_path: Path) -> None:
    """With what it has of resources and of who has created them."""
    with serving_teams() as teams:
        submitter = api_of(teams, "sam")
        job = prepare(submitter, "true").job
        submitter.create_job(job)
        submitter.edit_job(job.id, ["description=mine"])
        other = prepare(api_of(teams, "anouk"), "echo 2").job
        api_of(teams, "anouk").create_job(other)
        for refused in (
            lambda: submitter.edit_job(other.id, ["description=not mine"]),
            lambda: submitter.delete_job(job.id),
        ):
            with pytest.raises(Forbidden):
                refused()
        policies = teams.backend.policies.get()
        entries = [one for one in teams.accounts.audit(AuditFilter()) if one.user == "sam"]
        decided = {
            (one.action, one.allowed): policies.decide(
                Access(
                    policies.user(one.user),
                    Permission(one.permission),
                    one.project,
                    one.attributes,
                    now=one.time,
                )
            ).allowed
            for one in entries
            if one.permission
        }
        assert {("jobs.edit", True), ("jobs.edit", False), ("jobs.delete", False)} <= {*decided}
        assert all(allowed == decision for (_, allowed), decision in decided.items())
        local = EmbeddedPolicies(teams.backend)
        draft = PolicyDraft("x", ("Allow group vision-submitter to read repos in tenancy",))
        assert not local.preview(draft, 0.0).changed
        wider = ("Allow group vision-submitter to use data-science-jobs in tenancy",)
        (changed,) = local.preview(PolicyDraft("x", wider), 0.0).changed
        assert (changed.who, changed.permission, changed.allowed) == (
            *("sam", Permission.JOB_UPDATE),
            True,
        )


def api_of(teams: Teams, user: str) -> EmbeddedAPI:
    """Muster for a user, with entries in the audit log."""
    caller = teams.caller(teams.token(user))
    return EmbeddedAPI(caller=caller, backend=teams.backend, origin=Origin("192.0.2.7", "r"))


@pytest.mark.parametrize("given", ["research:deep", "default:research:deep", "DEEP"])
def test_compartments_are_named_by_their_paths(world: World, given: str) -> None:
    root = world.of("root")
    root.create_compartment("research", "tenancy")
    root.create_compartment("deep", "research")
    assert root.create_compartment("deeper", given).parent == "deep"
    statement = "Allow group guests to read repos in compartment deep"
    assert root.create_policy("p", [statement], given).compartment == "deep"
    assert [one.name for one in root.policies(given)] == ["p"]
    assert root.policy("p", given).name == "p"
    assert root.check_statements([statement], given, "p") == []
    assert root.preview(PolicyDraft("p", None, given), time.time()).changed == ()
    assert root.explain(Question("guest", "read", "repos", given, {})).allowed
    assert root.move_compartment("research:deep:deeper", "tenancy").parent == ""
    root.delete_policy(root.policy("p").id, 1)
    root.delete_compartment(given)
    with pytest.raises(NotFound, match=r"no compartment named '(research:)?deep'"):
        root.policies("research:deep")


def test_a_compartment_that_does_not_exist_is_called_a_compartment(world: World) -> None:
    root = world.of("root")
    for call in (
        lambda: root.policies("visoin"),
        lambda: root.create_compartment("x", "visoin"),
        lambda: root.move_compartment("vision", "visoin"),
        lambda: root.delete_compartment("visoin"),
    ):
        with pytest.raises(NotFound, match=r"no compartment named 'visoin' \(did you mean vision"):
            call()


def test_a_policy_of_a_compartment_cannot_speak_about_the_tenancy(world: World) -> None:
    root = world.of("root")
    wide = "Allow group guests to read repos in tenancy"
    with pytest.raises(InvalidInput, match="write: in compartment vision, or attach the policy"):
        root.create_policy("p", [READ, wide], "vision")
    with pytest.raises(InvalidInput, match="guests:1: "):
        root.change_policy(world.policy.id, 1, [wide])
    with pytest.raises(InvalidInput, match="about the tenancy"):
        root.preview(PolicyDraft("p", (wide,), "vision"), time.time())
    assert root.create_policy("p", [wide], "tenancy").compartment == "default"


@pytest.mark.parametrize(
    ("group", "joining", "leaving"),
    [
        (
            "VISION-submitter",
            "muster projects add-member vision guest --role submitter",
            "muster projects remove-member vision guest",
        ),
        (
            "administrators",
            "muster users change guest --admin",
            "muster users change guest --no-admin",
        ),
    ],
)
def test_built_in_groups_are_changed_by_other_commands(
    world: World, group: str, joining: str, leaving: str
) -> None:
    root = world.of("root")
    with pytest.raises(InvalidInput, match=f"group {group} is built in .*`{joining}`"):
        root.add_to_group(group, "guest")
    with pytest.raises(InvalidInput, match=f"group {group} is built in .*`{leaving}`"):
        root.remove_from_group(group, "guest")


def test_the_hint_about_space_is_left_out_for_who_may_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backend, "space_warning", lambda _: "the disk is full")
    backend = Backend(Home(tmp_path / "home"))
    world = World(backend, "")
    authenticator = Authenticator(backend.store.accounts, backend.policies)
    before = len(world.log())
    for name, wanted in (("guest", None), ("viewer", "the disk is full")):
        text = world.accounts.create_token("t", user=name).text
        caller = authenticator.authenticate(text, time.time(), "vision")
        before += 1  # the token
        api = EmbeddedAPI(backend=backend, caller=caller, origin=Origin())
        assert api.space_warning() == wanted
    assert len(world.log()) == before
    backend.close()
