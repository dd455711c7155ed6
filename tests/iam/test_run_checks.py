"""What policies refuse to a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.iam.current_policies import CompiledPolicies
from muster.iam.run_checks import RunChecks, checks_of
from muster.images.reference import repository_name
from muster.plan.model import PrincipalPlan, RunPlan
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.spec.ocids import TENANCY, compartment_ocid, secret_ocid, user_ocid
from muster.storage.home import Home
from muster.store.account_records import UserKind, UserRecord
from muster.store.object_records import BucketRecord
from muster.store.records import RunRecord
from muster.store.resource_records import ResourceRecord
from support import store_records
from support.sessions import make_plan

NAME = "registry.example.org/vision/train"
IMAGE = f"{NAME}:7"
PRINCIPAL = PrincipalPlan(TENANCY, compartment_ocid("vision"), "muster.invalid", "http://h:1")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with closing(Backend(Home(tmp_path / "home"))) as made:
        EmbeddedAccounts(made).create_project("vision")
        made.store.accounts.create_user(UserRecord("ana", UserKind.PERSON, 0.0))
        yield made


@pytest.fixture
def run(backend: Backend) -> RunRecord:
    job = store_records.job(project="vision")
    return store_records.accept(backend.store, job, created_by="ana", state="IN_PROGRESS")


def plan(run: RunRecord, principal: PrincipalPlan | None = PRINCIPAL) -> RunPlan:
    return replace(make_plan("true"), run_id=run.id, principal=principal)


def checks(backend: Backend, run: RunRecord) -> RunChecks:
    found = checks_of(backend.store, run, plan(run))
    assert found is not None
    return found


def replace_policy(backend: Backend, *statements: str) -> None:
    """Have these statements in the place of those that a new database has."""
    (found,) = backend.store.policies.policies()
    changed = replace(found, statements=statements, updated_by="root", updated_at=1.0)
    backend.store.policies.change_policy(found, changed)


def test_a_run_may_pull_images_unless_an_administrator_has_changed_that(
    backend: Backend, run: RunRecord
) -> None:
    assert checks(backend, run).image(IMAGE) == ""
    replace_policy(backend, "Allow any-user to read buckets in tenancy")
    why = checks(backend, run).image(IMAGE)
    assert f"image {IMAGE} cannot be used: run {run.name} may not read the repository" in why
    statement = why.partition("for this statement: ")[2]
    assert statement == (
        "Allow any-user to read repos in compartment vision where all "
        f"{{request.principal.type = 'datasciencejobrun', target.repo.name = '{NAME}'}}"
    )
    assert checks_of(backend.store, run, plan(run, None)) is None, "of the user of a machine"
    replace_policy(backend, statement)
    assert checks(backend, run).image(IMAGE) == ""


def test_policies_are_compiled_once_for_all_images_and_runs(
    backend: Backend, run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    make = CompiledPolicies.__init__

    def init(self: CompiledPolicies, *given: object) -> None:
        made.append(self)
        make(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(CompiledPolicies, "__init__", init)
    other = replace(run, id="0000000000", name="train-2")
    for one in (run, run, other):
        assert checks(backend, one).image(IMAGE) == ""
    assert len(made) == 1
    replace_policy(backend, "Allow any-user to read buckets in tenancy")
    assert checks(backend, run).image(IMAGE) and checks(backend, other).image(IMAGE)
    assert len(made) == 2


def test_a_policy_for_one_repository(backend: Backend, run: RunRecord) -> None:
    replace_policy(
        backend,
        "Allow any-user to read repos in compartment vision where all "
        f"{{request.principal.type = 'datasciencejobrun', target.repo.name = '{NAME}'}}",
    )
    assert checks(backend, run).image(IMAGE) == ""
    assert "read the repository registry.example.org/vision/other" in checks(backend, run).image(
        "registry.example.org/vision/other"
    )


RUNS = "Allow any-user to {} in compartment vision where all {{request.principal.type = "
OF_RUNS = "'datasciencejobrun', target.{}.name = '{}'}}"


@pytest.mark.parametrize(
    ("written", "statement"), [(False, "read objects"), (True, "manage objects")]
)
def test_a_mount_of_a_bucket(
    backend: Backend, run: RunRecord, written: bool, statement: str
) -> None:
    record = BucketRecord("b", "data", "vision", "ana", 1.0, 1.0, {})
    backend.store.buckets.insert(record)
    wanted = RUNS.format(statement) + OF_RUNS.format("bucket", "data")
    url = "oci://data@muster/in"
    assert checks(backend, run).url(url, written) == ""
    replace_policy(backend, "Allow any-user to inspect objects in tenancy")
    why = checks(backend, run).url(url, written)
    assert f"run {run.name} may not {'write' if written else 'read'} objects of" in why
    assert why.endswith(f"for this statement: {wanted}")
    replace_policy(backend, wanted)
    assert checks(backend, run).url(url, written) == ""
    assert checks(backend, run).url("oci://none@muster", written) == "", "there is no such bucket"
    assert checks(backend, run).url("s3://data", written) == ""


def test_a_secret(backend: Backend, run: RunRecord) -> None:
    wanted = RUNS.format("read secret-bundles") + OF_RUNS.format("secret", "hf-token")
    assert checks(backend, run).secret("hf-token") == ""
    replace_policy(backend, wanted.replace("hf-token", "another"))
    why = checks(backend, run).secret("hf-token")
    assert why.endswith(f"for this statement: {wanted}")
    replace_policy(backend, wanted)
    assert checks(backend, run).secret("hf-token") == ""


def test_a_log(backend: Backend, run: RunRecord) -> None:
    log = ResourceRecord("log", "a", "vision", "out", "ACTIVE", "ana", 0.0, 0.0, {})
    assert checks(backend, run).log(log, "ocid1.loggroup.a") == ""
    wanted = (
        "Allow any-user to use log-content in compartment vision where all "
        "{request.principal.type = 'datasciencejobrun', target.loggroup.id = 'ocid1.loggroup.a'}"
    )
    replace_policy(backend, wanted)
    assert checks(backend, run).log(log, "ocid1.loggroup.a") == ""
    why = checks(backend, run).log(log, "ocid1.loggroup.b")
    assert why.endswith(f"for this statement: {wanted.replace('group.a', 'group.b')}")
    own = "Allow any-user to use log-content in tenancy where target.resource.createdBy = '{}'"
    replace_policy(backend, own.format(user_ocid("ana")))
    assert checks(backend, run).log(log, "ocid1.loggroup.b") == ""


def test_variables_are_those_of_the_oci_api(backend: Backend, run: RunRecord) -> None:
    """Who has created a bucket, and the OCID of a secret."""
    own = "Allow any-user to manage objects in tenancy where target.resource.createdBy = '{}'"
    backend.store.buckets.insert(BucketRecord("b", "data", "vision", "eve", 0.0, 0.0, {}))
    replace_policy(backend, own.format(user_ocid("eve")))
    assert checks(backend, run).url("oci://data@muster", written=True) == ""
    own = "Allow any-user to read secret-bundles in tenancy where target.secret.id = '{}'"
    replace_policy(backend, own.format(secret_ocid("vision", "hf-token")))
    assert checks(backend, run).secret("hf-token") == ""


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("python:3.11", "docker.io/library/python"),
        ("python", "docker.io/library/python"),
        ("vision/train@sha256:" + 64 * "a", "docker.io/vision/train"),
        ("docker.io/library/python:3.11-slim", "docker.io/library/python"),
        ("docker.io/python", "docker.io/library/python"),
        ("index.docker.io/vision/train", "docker.io/vision/train"),
        ("localhost/trainer:1", "localhost/trainer"),
        ("localhost:5000/trainer", "localhost:5000/trainer"),
        ("registry.example.org:5000/team/train:7", "registry.example.org:5000/team/train"),
        ("evilocir.io/mytenancy/train:7", "evilocir.io/mytenancy/train"),
        ("evil.example.com/vision/train", "evil.example.com/vision/train"),
        ("iad.ocir.io/mytenancy/vision/train", "vision/train"),
        ("iad.ocir.io/mytenancy/team/train:7", "team/train"),
        ("us-ashburn-1.ocir.io/mytenancy/train@sha256:" + 64 * "a", "train"),
        ("iad.ocir.io/train", "train"),
    ],
)
def test_the_name_of_a_repository(image: str, name: str) -> None:
    assert repository_name(image) == name
