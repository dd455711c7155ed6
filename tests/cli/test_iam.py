"""`muster iam`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from muster.caller import Caller
from muster.cli.iam import iam
from muster.client.suggesting import suggest_policy
from muster.errors import Conflict, Forbidden, InvalidInput, NotFound
from muster.iam.policies.parsing import parse_policy, parse_statement
from muster.permissions import Decision, Permission
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.service.policies import EmbeddedPolicies
from muster.storage.home import Home
from muster.store.account_records import AuditEntry, UserKind, UserRecord
from muster.store.default_policy import STATEMENTS
from support.api_runs import end_all
from support.embedded import variables_of
from support.pages import ROOT
from support.server_thread import TOKEN, running_server, users_of

READ = "Allow group guests to read data-science-jobs in compartment vision"
MANAGE = "Allow group guests to manage data-science-jobs in compartment vision"


def call(*words: str, value: str | None = None) -> Result:
    """Run a command of `muster iam`."""
    return CliRunner().invoke(iam, words, input=value, catch_exceptions=False)


def done(*words: str, value: str | None = None) -> str:
    """What a command prints."""
    result = call(*words, value=value)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def world(own_home: Path) -> None:
    """A compartment with a group, which one user is in."""
    done("compartments", "create", "vision", "--description", "Cameras")
    done("groups", "create", "guests")
    backend = Backend(Home(own_home))
    EmbeddedAccounts(backend).create_user(UserRecord("gus", UserKind.PERSON, 0.0))
    backend.close()
    done("groups", "add", "guests", "gus")


# Suggestions


def test_a_suggestion_is_the_file_of_a_policy() -> None:
    text = done("suggest", f"{ROOT}/examples/ads/train.yaml", "--project", "vision")
    parsed = parse_policy(text, "x")
    assert not parsed.findings
    assert "Allow group add-up-users to manage data-science-job-runs" in text
    assert "to read repos in compartment vision where target.repo.name = 'dask'" in text
    assert 'muster iam dynamic-groups create add-up-runs "all {' in text
    found = json.loads(
        done("suggest", f"{ROOT}/examples/jobset/jobset.yaml", "--group", "g", "--json")
    )
    assert (found["job"], found["project"], found["group"]) == ("sums", "default", "g")
    (of_runs,) = found["for_runs"]
    assert of_runs["text"] == (
        "Allow dynamic-group sums-runs to read repos in tenancy "
        "where target.repo.name = 'docker.io/library/python'"
    )


def test_a_suggestion_for_a_job_of_oci(tmp_path: Path) -> None:
    job = {
        "displayName": "add up",
        "compartmentId": "ocid1.compartment.oc1..a",
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "ME_STANDALONE",
            "shapeName": "VM.Standard2.1",
            "blockStorageSizeInGBs": 50,
        },
        "jobLogConfigurationDetails": {"enableLogging": True, "logGroupId": "ocid1.loggroup..g"},
    }
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    assert "target.loggroup.id = 'ocid1.loggroup..g'" in done("suggest", str(file))
    file.write_text(json.dumps({**job, "jobInfrastructureConfigurationDetails": {"a": 1}}))
    with pytest.raises(InvalidInput, match=r"job\.json: "):
        call("suggest", str(file))


class Recorded:
    """What was asked of callers."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: set[Permission] = set()
        require, allows = Caller.require, Caller.allows

        def recording_require(
            caller: Caller, permission: Permission, what: str, *args: Any, **named: Any
        ) -> Decision:
            self.asked.add(permission)
            return require(caller, permission, what, *args, **named)

        def recording_allows(
            caller: Caller, permission: Permission, *args: Any, **named: Any
        ) -> bool:
            self.asked.add(permission)
            return allows(caller, permission, *args, **named)

        patch.setattr(Caller, "require", recording_require)
        patch.setattr(Caller, "allows", recording_allows)


@pytest.mark.parametrize("with_code", [True, False])
def test_all_that_is_suggested_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_code: bool
) -> None:
    """Of who runs a job, follows it and cancels it; and no more than that is."""
    (tmp_path / "train.py").write_text("print(1)\n")
    job = tmp_path / "job.yaml"
    job.write_text("name: t\n" + ("artifact: train.py\n" if with_code else "command: echo 1\n"))
    suggestion = suggest_policy(job, project="default")
    given = frozenset().union(*(parse_statement(one.text).gives for one in suggestion.for_group))
    recorded = Recorded(monkeypatch)
    backend = Backend(Home(tmp_path / "server"))
    with running_server(backend) as server:
        environ = os.environ | variables_of(server.address(TOKEN))
        for line in (f"run {job}", "cancel last"):
            argv = [sys.executable, "-m", "muster", *line.split()]
            subprocess.run(argv, env=environ, capture_output=True, check=True)
    assert recorded.asked <= given
    for one in suggestion.for_group:
        assert parse_statement(one.text).gives & recorded.asked, one.text


# Checks


def test_check_prints_what_is_wrong_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a server."""
    monkeypatch.delenv("MUSTER_URL", raising=False)
    file = tmp_path / "train.policy"
    wrong = "Allow group guests to reed data-science-jobs in tenancy"
    file.write_text(f"# jobs\n{READ}\n\n  {wrong}\n")
    result = call("check", str(file))
    assert result.exit_code == 1
    first, line, caret, hint = result.stdout.splitlines()
    assert first.startswith(f"{file}:4:25: error: 'reed' is not a verb")
    assert line[caret.index("^") :].startswith("reed")
    assert hint.endswith("Allow group guests to read data-science-jobs in tenancy")
    assert result.stderr == "2 statements in 1 file: 1 finding\n"
    (found,) = json.loads(call("check", str(file), "--json").stdout)
    assert (found["line"], found["column"], found["severity"]) == (4, 25, "error")
    assert done("check", "-", value=READ) == "1 statement in 1 file: nothing is wrong\n"
    with pytest.raises(NotFound):
        call("check", str(tmp_path / "none"))


def test_check_with_a_server_knows_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Backend(Home(tmp_path / "server"))
    accounts = EmbeddedAccounts(backend)
    for name in ("root", "nobody"):
        accounts.create_user(UserRecord(name, UserKind.PERSON, 0.0, admin=name == "root"))
    accounts.create_project("vision")
    tokens = {name: accounts.create_token("t", user=name).text for name in ("root", "nobody")}
    file = tmp_path / "train.policy"
    file.write_text(f"# jobs\n\n{READ}  # the guests\n")
    with running_server(backend, users_of(backend)) as server:
        for name, text in variables_of(server.address(tokens["root"])).items():
            monkeypatch.setenv(name, text)
        result = call("check", str(file), "--compartment", "vision")
        assert result.exit_code == 1
        assert result.stdout.startswith(f"{file}:3:13: warning: there is no group guests")
        done("groups", "create", "guests")
        done("policies", "create", "train", "--file", str(file), "--compartment", "vision")
        # it is the policy of that name, which it does not repeat
        done("check", str(file), "--compartment", "vision")
        other = call("check", str(file), "--compartment", "vision", "--policy", "other")
        assert other.exit_code == 1
        assert "train#1" in other.stdout
        monkeypatch.setenv("MUSTER_TOKEN", tokens["nobody"])
        unchecked = call("check", str(file))
        assert unchecked.exit_code == 0
        assert "note: groups and compartments are not checked: nobody may not" in unchecked.stderr


# Policies


@pytest.mark.usefixtures("world")
def test_policies(tmp_path: Path) -> None:
    file = tmp_path / "train.policy"
    file.write_text(f"# who reads\n{READ}  # guests\n")
    words = ("policies", "create", "train", "--compartment", "vision", "--file", str(file))
    assert call(*words, "--description", "Guests").stderr == (
        "created policy train in compartment vision: 1 statement\n"
    )
    listed = done("policies", "list").splitlines()
    assert [line.split()[:4] for line in listed] == [
        ["POLICY", "COMPARTMENT", "STATEMENTS", "VERSION"],
        ["job-runs", "default", str(len(STATEMENTS)), "1"],
        ["train", "vision", "1", "1"],
    ]
    shown = done("policies", "show", "train").splitlines()
    assert shown[0].startswith("train in compartment vision: version 1, changed ")
    assert shown[1:] == ["  Guests", f"1  {READ}  # guests"]
    assert done("policies", "show", "train", "--statements") == f"{READ}  # guests\n"
    file.write_text(f"{READ}\n{MANAGE.replace('jobs', 'job-runs')}\n")
    edited = call("policies", "edit", "train", "--file", str(file), "--version", "1")
    assert edited.stderr == "changed policy train: version 2\n"
    with pytest.raises(Conflict, match="has version 2 now"):
        call("policies", "edit", "train", READ, "--version", "1")
    done("policies", "edit", "train", MANAGE)
    history = done("policies", "history", "train").splitlines()
    assert [line for line in history if not line.startswith("version ")] == [
        f"  + {MANAGE}",
        f"  - {READ}",
        f"  - {MANAGE.replace('jobs', 'job-runs')}",
        f"  + {READ}",
        f"  + {MANAGE.replace('jobs', 'job-runs')}",
        f"  - {READ}  # guests",
        f"  + {READ}  # guests",
    ]
    data = json.loads(done("policies", "show", "train", "--json"))
    assert (data["statements"], data["version"]) == ([MANAGE], 3)
    with pytest.raises(InvalidInput, match="no terminal to confirm on"):
        call("policies", "delete", "train")
    assert call("policies", "delete", "train", "--yes").stderr == "deleted policy train\n"
    with pytest.raises(NotFound, match="there is no policy 'train'"):
        call("policies", "show", "train")


@pytest.mark.usefixtures("world")
def test_a_file_with_an_error_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.policy"
    file.write_text(f"{READ}\nAllow group\nAllow group guests to raed jobs in tenancy\n")
    done("policies", "create", "train", READ, "--compartment", "vision")
    for words in (("edit", "train"), ("create", "other"), ("create", "other", "--dry-run")):
        result = call("policies", *words, "--file", str(file))
        assert result.exit_code == 2
        assert f"{file}:2:" in result.stderr and f"{file}:3:" in result.stderr
        assert result.stderr.endswith("nothing was changed\n")
    assert json.loads(done("policies", "show", "train", "--json"))["version"] == 1
    with pytest.raises(InvalidInput, match="there are no statements"):
        call("policies", "create", "empty")
    with pytest.raises(InvalidInput, match="both by --file and as arguments"):
        call("policies", "create", "both", READ, "--file", str(file))
    file.write_text("# nothing\n")
    with pytest.raises(InvalidInput, match=r"train\.policy: there are no statements"):
        call("policies", "create", "empty", "--file", str(file))
    assert "Say what to change" in call("policies", "edit", "train").output


@pytest.mark.usefixtures("world")
def test_a_warning_does_not_keep_a_policy_from_being_created() -> None:
    result = call("policies", "create", "x", READ.replace("guests", "gusts"))
    assert result.exit_code == 0
    assert "statement:1:13: warning: there is no group gusts" in result.stderr
    assert "created policy x in compartment default" in result.stderr


@pytest.mark.usefixtures("world")
def test_a_dry_run_tells_which_requests_would_be_answered_otherwise(own_home: Path) -> None:
    done("policies", "create", "train", READ, "--compartment", "vision")
    backend = Backend(Home(own_home))
    entry = AuditEntry(
        *(time.time(), "gus", "jobs.create"),
        project="vision",
        permission=Permission.JOB_CREATE,
        allowed=False,
    )
    backend.store.audit.append(entry, entry)
    backend.close()
    words = ("policies", "edit", "train", MANAGE, "--dry-run")
    result = call(*words)
    header, row = result.stdout.splitlines()
    titles = "WHO PERMISSION COMPARTMENT WITH THE CHANGE REQUESTS LAST BY STATEMENT"
    assert header.split() == titles.split()
    assert row.split()[:5] == ["gus", Permission.JOB_CREATE, "vision", "allowed", "2"]
    assert row.split("train#1")[1].strip() == MANAGE
    later = call(*words, "--since", "2999-01-01")
    assert later.stderr.startswith("the audit log has no requests since 2999-01-01")
    assert result.stderr.startswith("2 of ")
    (changed,) = json.loads(done(*words, "--json"))["changed"]
    assert (changed["who"], changed["allowed"], changed["requests"]) == ("gus", True, 2)
    assert "would be answered as before" in call("policies", "delete", "train", "--dry-run").stderr
    assert done("policies", "show", "train", "--statements") == f"{READ}\n"


# Explanations


@pytest.mark.usefixtures("world")
def test_explain() -> None:
    done("policies", "create", "train", READ, "--compartment", "vision")
    allowed = call(
        *("explain", "--as", "gus", "--can", "read", "--on", "data-science-jobs"),
        *("--in", "vision"),
    )
    assert allowed.exit_code == 0
    assert allowed.stdout.splitlines() == [
        "allowed: gus in compartment vision: DATA_SCIENCE_JOB_INSPECT, DATA_SCIENCE_JOB_READ",
        f"  by vision/train#1: {READ}",
    ]
    refused = call(
        *("explain", "--as", "group:Guests", "--can", "DATA_SCIENCE_JOB_CREATE"),
        *("--on", "data-science-jobs", "--in", "vision"),
    )
    assert refused.exit_code == 1
    assert f"  not by vision/train#1: {READ}" in refused.stdout
    assert "    gives read data-science-jobs, needs manage" in refused.stdout
    assert "  would be allowed by: Allow group guests to manage data-science-jobs" in refused.stdout
    data = json.loads(
        call(
            *("explain", "--as", "gus", "--can", "manage", "--on", "data-science-jobs"),
            *("--in", "vision", "--json"),
        ).stdout
    )
    assert data["allowed"] is False
    by_permission = {one["permission"]: one["allowed"] for one in data["answers"]}
    assert by_permission[Permission.JOB_READ] is True
    assert by_permission[Permission.JOB_MOVE] is False
    assert {one["missing"] for one in data["answers"]} == {"", MANAGE}


@pytest.mark.usefixtures("world")
def test_explain_knows_variables() -> None:
    only = "Allow group guests to read objects in tenancy where target.bucket.name = 'data'"
    done("policies", "create", "data", only)
    words = ("explain", "--as", "gus", "--can", "OBJECT_READ", "--on", "objects")
    assert call(*words, "--where", "target.bucket.name=data").exit_code == 0
    other = call(*words, "--where", "TARGET.bucket.name = models")
    assert other.exit_code == 1
    assert "target.bucket.name is 'models', the statement wants 'data'" in other.stdout
    assert call(*words).exit_code == 1


@pytest.mark.usefixtures("world")
def test_values_of_variables_may_be_in_quotes() -> None:
    only = "Allow group guests to read objects in tenancy where target.bucket.name = 'data'"
    done("policies", "create", "data", only)
    words = ("explain", "--as", "gus", "--can", "OBJECT_READ", "--on", "objects")
    assert call(*words, "--where", "target.bucket.name = 'data'").exit_code == 0
    assert call(*words, "--where", 'target.bucket.name="data"').exit_code == 0


@pytest.mark.usefixtures("world")
def test_explain_for_anybody_says_what_would_allow_it() -> None:
    refused = call(
        *("explain", "--as", "any-user", "--can", "read", "--on", "objects", "--in", "vision")
    )
    assert refused.exit_code == 1
    (line,) = [one for one in refused.stdout.splitlines() if "would be allowed" in one]
    assert line == "  would be allowed by: Allow any-user to read objects in compartment vision"


@pytest.mark.usefixtures("world")
def test_explain_lists_what_may_be_asked_for() -> None:
    words = ("explain", "--as", "gus", "--on", "objects", "--can")
    with pytest.raises(InvalidInput, match=r"objects has .*manage \(OBJECT_CREATE, OBJECT_DELETE"):
        call(*words, "delete")
    with pytest.raises(InvalidInput, match=r"did you mean manage\?"):
        call(*words, "mange")
    with pytest.raises(InvalidInput, match="inspect, read, use or manage, or a permission"):
        call(*("explain", "--as", "gus", "--on", "object-family", "--can"), "delete")
    with pytest.raises(InvalidInput, match=r"audit-events has read \(AUDIT_EVENT_READ\)"):
        call("explain", "--as", "gus", "--can", "inspect", "--on", "audit-events")


@pytest.mark.usefixtures("world")
def test_all_that_is_wrong_with_a_question_is_reported() -> None:
    with pytest.raises(InvalidInput) as caught:
        call(
            *("explain", "--as", "nobody", "--can", "raed", "--on", "data-science-job"),
            *("--where", "target.x=1", "--where", "request.user.name=gus"),
        )
    assert [one.path for one in caught.value.problems] == [
        *("--where", "--where", "--as", "--on", "--can")
    ]
    for on in ("job:none", "run:none", "bucket:none", "secret:none", "schedule:none", "jab:x"):
        with pytest.raises(InvalidInput, match="--on: "):
            call("explain", "--as", "any-user", "--can", "read", "--on", on)
    with pytest.raises(InvalidInput, match="has no = after a variable"):
        call("explain", "--as", "gus", "--can", "read", "--on", "repos", "--where", "x")


# Groups and compartments


@pytest.mark.usefixtures("world")
def test_groups() -> None:
    assert [line.split()[0] for line in done("groups", "list").splitlines()] == ["GROUP", "guests"]
    assert done("groups", "show", "guests") == "group guests\n  users: gus\n"
    assert done("groups", "show", "vision-admin") == (
        "group vision-admin (built in)\n  users: none\n"
    )
    assert call("groups", "add", "guests", "gus").stderr == "gus is in group guests already\n"
    assert call("groups", "remove", "guests", "gus").stderr == "removed gus\n"
    assert call("groups", "remove", "guests", "gus").stderr == "gus is not in group guests\n"
    assert json.loads(done("groups", "show", "guests", "--json"))["users"] == []
    with pytest.raises(InvalidInput):
        call("groups", "create", "Administrators")
    assert call("groups", "delete", "guests", "--yes").stderr == "deleted group guests\n"
    assert call("groups", "list").stderr.startswith("no groups: ")


def test_dynamic_groups(own_home: Path, tmp_path: Path) -> None:
    from muster.service.embedded import EmbeddedAPI
    from support.api_runs import start

    assert call("dynamic-groups", "list").stderr.startswith("no dynamic groups: ")
    done("dynamic-groups", "create", "jobs", "resource.type = 'datasciencejobrun'")
    assert call("dynamic-groups", "show", "jobs").stderr == "no current run is in it\n"
    api = EmbeddedAPI()
    run = start(api, "sleep 600", suspend=True)
    shown = done("dynamic-groups", "show", "jobs").splitlines()
    assert shown[1] == "  resource.type = 'datasciencejobrun'"
    assert shown[-1].split()[:4] == [run.name, run.id, "default", "SUSPENDED"]
    file = tmp_path / "rule.txt"
    file.write_text("resource.id = 'ocid1.a'\nresource.type = 'instance'\n")
    words = ("dynamic-groups", "edit", "jobs", "--file", str(file))
    assert "as before" in call(*words, "--dry-run").stderr
    assert call(*words).stderr == "changed dynamic group jobs: version 2\n"
    assert call("dynamic-groups", "show", "jobs").stderr == "no current run is in it\n"
    with pytest.raises(Conflict):
        call("dynamic-groups", "edit", "jobs", "--description", "x", "--version", "1")
    with pytest.raises(InvalidInput, match=r"resource\.typ"):
        call("dynamic-groups", "create", "wrong", "resource.typ = 'x'")
    data = json.loads(done("dynamic-groups", "list", "--json"))
    assert [(one["name"], one["version"]) for one in data] == [("jobs", 2)]
    assert "Give a rule" in call("dynamic-groups", "create", "none").output
    assert call("dynamic-groups", "delete", "jobs", "--yes").exit_code == 0
    end_all(api)
    api.close()


@pytest.mark.usefixtures("world")
def test_a_rule_that_matches_nothing_is_noted() -> None:
    made = call("dynamic-groups", "create", "jobs", "resource.type = 'datasciencejob'")
    assert made.exit_code == 0
    assert "1:17: warning: nothing has resource.type 'datasciencejob'" in made.stderr
    assert "write: resource.type = 'datasciencejobrun'" in made.stderr


@pytest.mark.usefixtures("world")
def test_a_group_that_statements_name_is_not_deleted() -> None:
    done("groups", "remove", "guests", "gus")
    done("policies", "create", "train", READ, MANAGE, "--compartment", "vision")
    done("dynamic-groups", "create", "jobs", "resource.type = 'datasciencejobrun'")
    done("policies", "create", "pull", "Allow dynamic-group Jobs to read repos in tenancy")
    with pytest.raises(
        InvalidInput, match=r"still named in vision/train#1, vision/train#2 \(change"
    ):
        call("groups", "delete", "Guests", "--yes")
    for more in ("--yes", "--dry-run"):
        with pytest.raises(InvalidInput, match=r"still named in pull#1 \(change these first"):
            call("dynamic-groups", "delete", "jobs", more)
    done("policies", "delete", "train", "--yes")
    done("policies", "delete", "pull", "--yes")
    assert call("groups", "delete", "guests", "--yes").stderr == "deleted group guests\n"
    done("dynamic-groups", "delete", "jobs", "--yes")
    for kind in ("groups", "dynamic-groups"):  # it says so before it asks
        with pytest.raises(NotFound):
            call(kind, "delete", "none")


def test_who_may_only_create_policies_creates_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who may not is told this, not that policies cannot be read."""
    backend = Backend(Home(tmp_path / "server"))
    accounts = EmbeddedAccounts(backend)
    for name in ("writer", "nobody"):
        accounts.create_user(UserRecord(name, UserKind.PERSON, 0.0))
    only = "Allow any-user to {POLICY_CREATE} in tenancy where request.user.name = 'writer'"
    EmbeddedPolicies(backend).create_policy("writers", [only])
    tokens = {name: accounts.create_token("t", user=name).text for name in ("writer", "nobody")}
    statement = READ.replace("compartment vision", "tenancy")
    with running_server(backend, users_of(backend)) as server:
        for name, text in variables_of(server.address(tokens["writer"])).items():
            monkeypatch.setenv(name, text)
        call("policies", "create", "own", statement)
        monkeypatch.setenv("MUSTER_TOKEN", tokens["nobody"])
        with pytest.raises(Forbidden, match="POLICY_CREATE"):
            call("policies", "create", "others", statement)
    assert {one.name for one in backend.store.policies.policies()} >= {"writers", "own"}
    assert "others" not in {one.name for one in backend.store.policies.policies()}


def test_a_suggestion_for_the_tenancy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: t\ncommand: echo 1\n")
    for more in ((), ("--project", "tenancy")):
        found = call("suggest", str(job), *more)
        assert found.stdout.startswith("# project default is the tenancy: the statements are about")
        assert found.stderr.startswith("note: project default is the tenancy")
        assert not parse_policy(found.stdout, "x").findings
    rule = call("suggest", str(job), "--rule").stdout
    assert rule.startswith("all {")
    backend = Backend(Home(tmp_path / "server"))
    accounts = EmbeddedAccounts(backend)
    for name in ("root", "nobody"):
        accounts.create_user(UserRecord(name, UserKind.PERSON, 0.0, admin=name == "root"))
    policies = EmbeddedPolicies(backend)
    policies.create_compartment("research")
    policies.create_compartment("vision", "research")
    tokens = {name: accounts.create_token("t", user=name).text for name in ("root", "nobody")}
    with running_server(backend, users_of(backend)) as server:
        for name, text in variables_of(server.address(tokens["root"])).items():
            monkeypatch.setenv(name, text)
        for project in ("vision", "research:vision", "default:research", "Research"):
            assert call("suggest", str(job), "--project", project).stderr == ""
        for project in ("visoin", "vision:research", "research:none"):
            with pytest.raises(InvalidInput, match=f"there is no project '{project}'"):
                call("suggest", str(job), "--project", project)
        monkeypatch.setenv("MUSTER_TOKEN", tokens["nobody"])
        assert call("suggest", str(job), "--project", "visoin").exit_code == 0


@pytest.mark.usefixtures("own_home")
def test_compartments() -> None:
    for name, parent in (("research", "default"), ("sound", "research"), ("vision", "research")):
        result = call("compartments", "create", name, "--parent", parent)
        assert result.stderr == f"created compartment {name} below {parent}\n"
    done("compartments", "create", "ops", "--description", "Operations")
    assert done("compartments", "list").splitlines() == [
        "default (the tenancy)",
        "├─ ops  Operations",
        "└─ research",
        "   ├─ sound",
        "   └─ vision",
    ]
    with pytest.raises(InvalidInput):
        call("compartments", "move", "research", "sound")
    moved = call("compartments", "move", "sound", "ops")
    first, note, *_ = moved.stderr.splitlines()
    assert first == "moved compartment sound below ops"
    assert note.startswith("note: rights change: statements about ops apply to sound from now on")
    assert done("compartments", "list").splitlines()[1:] == [
        "├─ ops  Operations",
        "│  └─ sound",
        "└─ research",
        "   └─ vision",
    ]
    with pytest.raises(InvalidInput):
        call("compartments", "delete", "ops", "--yes")
    assert call("compartments", "delete", "sound", "--yes").exit_code == 0
    assert len(json.loads(done("compartments", "list", "--json"))) == 4
