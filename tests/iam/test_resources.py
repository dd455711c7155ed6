"""What conditions of policies know of resources."""

from __future__ import annotations

from typing import Any

import pytest

from muster.caller import CREATED_BY
from muster.iam.policies.decisions import Access, Compartment, Policies, Policy, Requester
from muster.iam.policies.parsing import parse_statement
from muster.iam.policies.vocabulary import TYPES
from muster.iam.resources import (
    variables_of,
    variables_of_bucket,
    variables_of_group,
    variables_of_metrics,
    variables_of_new,
    variables_of_new_bucket,
    variables_of_repository,
    variables_of_secret,
    variables_of_user,
)
from muster.permissions import Permission
from muster.spec.ocids import ocid, secret_ocid, user_ocid
from muster.store.object_records import BucketRecord
from muster.store.resource_records import ResourceRecord

CREATED = {"target.resource.createdBy": user_ocid("anouk")}


def record(kind: str, **data: Any) -> ResourceRecord:
    return ResourceRecord(kind, "abc", "vision", "train", "ACTIVE", "anouk", 0.0, 0.0, data)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("datasciencejob", ("target.job.id", "target.job.name")),
        ("datasciencejobrun", ("target.job-run.id",)),
        ("datascienceproject", ("target.project.id",)),
        ("datascienceschedule", ("target.schedule.id",)),
        ("eventrule", ("target.rule.id",)),
        ("loggroup", ("target.loggroup.id",)),
        ("log", ("target.log.id",)),
        ("datascienceworkrequest", ()),
    ],
)
def test_a_resource(kind: str, names: tuple[str, ...]) -> None:
    values = dict(zip(names, (ocid(kind, "abc"), "train"), strict=False))
    assert variables_of(record(kind)) == {**CREATED, **values}


def test_a_resource_of_oci_has_the_ocid_that_clients_know() -> None:
    known = "ocid1.datasciencejob.oc1.iad.abc"
    assert variables_of(record("datasciencejob", ocid=known))["target.job.id"] == known


def test_tags() -> None:
    tags = {"team": {"Name": "vision", "size": 3}, "cost": {}}
    found = variables_of(record("datascienceproject", definedTags=tags, freeformTags={"a": "b"}))
    assert {name: one for name, one in found.items() if ".tag." in name} == {
        "target.resource.tag.team.name": "vision",
        "target.resource.tag.team.size": "3",
    }


def test_a_log_has_its_group() -> None:
    found = variables_of(record("log"), ocid("loggroup", "g"))
    assert found["target.loggroup.id"] == ocid("loggroup", "g")


def test_what_is_new_has_its_name_alone() -> None:
    assert variables_of_new("datasciencejob", "train") == {"target.job.name": "train"}
    assert variables_of_new("datascienceproject", "train") == {}
    assert variables_of_new_bucket("data") == {"target.bucket.name": "data"}


def test_buckets_objects_and_secrets() -> None:
    settings = {"definedTags": {"team": {"name": "vision"}}}
    bucket = BucketRecord("abc", "data", "vision", "anouk", 0.0, 0.0, settings)
    of_bucket = {
        **CREATED,
        "target.resource.tag.team.name": "vision",
        "target.bucket.name": "data",
    }
    assert variables_of_bucket(bucket) == of_bucket
    assert variables_of_bucket(bucket, "a/b") == {**of_bucket, "target.object.name": "a/b"}
    of_secret = {"target.secret.name": "KEY", "target.secret.id": secret_ocid("vision", "KEY")}
    assert variables_of_secret("vision", "KEY") == of_secret


def test_a_tag_with_capitals_matches() -> None:
    tags = {"Operations": {"CostCenter": "42"}}
    statement = parse_statement(
        "Allow any-user to read data-science-jobs in tenancy "
        "where target.resource.tag.Operations.CostCenter = '42'"
    )
    policies = Policies([Policy("p", "default", (statement,))], [Compartment("default", "o")])
    on = variables_of(record("datasciencejob", definedTags=tags))
    asked = Access(Requester(user_ocid("ana"), "ana"), Permission.JOB_READ, "default", on)
    assert policies.allows(asked)


#: The variables that are of a type alone, and not other names of `target.resource.createdBy`.
OF_TYPES = {
    name for one in TYPES.values() for name in one.variables if not name.endswith(".createdBy")
}


def test_all_variables_of_the_vocabulary_are_supplied_and_no_others() -> None:
    kinds = ("job", "jobrun", "project", "schedule")
    records = [record(f"datascience{one}") for one in kinds]
    records += [record("eventrule"), record("loggroup"), record("log")]
    bucket = BucketRecord("abc", "data", "vision", "anouk", 0.0, 0.0, {})
    supplied = set[str]().union(
        *map(variables_of, records),
        variables_of_bucket(bucket, "a"),
        variables_of_secret("vision", "KEY"),
        variables_of_metrics("mine"),
        variables_of_user("anouk"),
        variables_of_group("ocid", "g"),
        variables_of_repository("vision/train"),
    )
    assert supplied - {CREATED_BY} == OF_TYPES
