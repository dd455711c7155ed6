"""Which statements a job needs."""

from __future__ import annotations

import pytest

from muster.iam.policies.decisions import Access, Compartment, Group, Policies, Policy, Requester
from muster.iam.policies.parsing import parse_policy, parse_rule
from muster.iam.policies.suggesting import (
    Need,
    Suggestion,
    Uses,
    needs_of_runs,
    needs_of_users,
    suggest,
    uses_of_oci,
    uses_of_spec,
    with_ads,
)
from muster.iam.policies.vocabulary import CREATED_BY, TYPE_OF, TYPES, VERBS, Verb, permissions_of
from muster.permissions import Permission
from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.model import JobDetails
from muster.spec.reader import spec_from_mapping

OWN = "target.resource.createdBy = request.user.id"
CREATED = f"any {{{{request.permission = 'DATA_SCIENCE_{{}}_CREATE', {OWN}}}}}"
LOG_GROUP, SUBNET = "ocid1.loggroup.oc1.iad.g", "ocid1.subnet.oc1.iad.s"
SPEC = {
    "name": "train",
    "command": "python train.py oci://models@ns/v1",
    "image": "registry.example.com:5000/team/trainer:1.4",
    "env": {"DATA": "oci://data@ns/x", "OUTPUT_URI": "oci://out@ns"},
    "mounts": [
        {"source": "oci://data@ns/x", "path": "/mnt/data", "read_only": True},
        {"source": "oci://results@ns", "path": "/mnt/results"},
        {"source": "s3://elsewhere/x", "path": "/mnt/s3"},
        {"source": "volume:cache", "path": "/mnt/cache"},
    ],
    "secrets": {"own": "x"},
    "node_groups": [
        {"name": "w", "node_env": {"A": "${secret.hf-token}", "B": "${secret.own}"}},
        {"name": "v", "env": {"CONTAINER_CUSTOM_IMAGE": "python:3"}, "image": None},
    ],
}
OCI_JOB = {
    "jobConfigurationDetails": {
        "jobType": "DEFAULT",
        "environmentVariables": {"CONDA_ENV_BUCKET": "envs", "OUT": "oci://out@ns/x"},
    },
    "jobInfrastructureConfigurationDetails": {
        "jobInfrastructureType": "STANDALONE",
        "shapeName": "VM.Standard2.1",
        "subnetId": SUBNET,
        "blockStorageSizeInGBs": 50,
    },
    "jobEnvironmentConfigurationDetails": {
        "jobEnvironmentType": "OCIR_CONTAINER",
        "image": "iad.ocir.io/ns/team/trainer:1",
    },
    "jobLogConfigurationDetails": {
        "enableLogging": True,
        "enableAutoLogCreation": True,
        "logGroupId": LOG_GROUP,
    },
    "jobStorageMountConfigurationDetailsList": [
        {
            "storageType": "OBJECT_STORAGE",
            "destinationDirectoryName": "d",
            "namespace": "ns",
            "bucket": "data",
        }
    ],
}
ADS = {
    "kind": "job",
    "spec": {
        "infrastructure": {"spec": {"logGroupId": LOG_GROUP, "logId": "ocid1.log.oc1..l"}},
        "runtime": {"type": "gitPython", "spec": {}},
    },
}


def texts(suggestion: Suggestion) -> list[str]:
    """Its statements without what all of them have."""
    every = (*suggestion.for_group, *suggestion.for_runs)
    return [one.text.replace("in compartment vision", "").replace("  ", " ") for one in every]


def of(uses: Uses) -> list[str]:
    return texts(suggest(uses, "t", "vision", group="G", dynamic_group="R"))


def test_a_job_with_code() -> None:
    spec = spec_from_mapping({"name": "t", "artifact": "t.py", "nodes": 2})
    assert [text.strip() for text in of(uses_of_spec(spec))] == [
        f"Allow group G to manage data-science-jobs where {CREATED.format('JOB')}",
        f"Allow group G to manage data-science-job-runs where {CREATED.format('JOB_RUN')}",
        f"Allow group G to read log-content where {OWN}",
    ]


def test_what_a_spec_names() -> None:
    found = of(uses_of_spec(spec_from_mapping(SPEC)))
    of_runs = [one.removeprefix("Allow dynamic-group R to ") for one in found if " R " in one]
    assert of_runs == [
        "read repos where target.repo.name = 'registry.example.com:5000/team/trainer'",
        "read repos where target.repo.name = 'docker.io/library/python'",
        "read buckets where target.bucket.name = 'data'",  # a variable names it
        "read objects where target.bucket.name = 'data'",
        "manage objects where target.bucket.name = 'results'",
        "read buckets where target.bucket.name = 'models'",
        "read objects where target.bucket.name = 'models'",
        "read buckets where target.bucket.name = 'out'",
        "manage objects where target.bucket.name = 'out'",
        "read secret-bundles where target.secret.name = 'hf-token'",
    ]


def test_a_bucket_that_is_read_and_written_is_written() -> None:
    mounts = [
        {"source": "oci://data@ns/in", "path": "/mnt/in", "read_only": True},
        {"source": "oci://data@ns/out", "path": "/mnt/out"},
    ]
    spec = spec_from_mapping({"name": "t", "command": "true", "nodes": 1, "mounts": mounts})
    assert of(uses_of_spec(spec))[-1].strip() == (
        "Allow dynamic-group R to manage objects where target.bucket.name = 'data'"
    )


def test_a_job_of_oci() -> None:
    found = of(uses_of_oci(decode(JobDetails, OCI_JOB)))
    assert [one.removeprefix("Allow ").strip() for one in found] == [
        "group G to read data-science-projects",
        f"group G to manage data-science-jobs where {CREATED.format('JOB')}",
        f"group G to manage data-science-job-runs where {CREATED.format('JOB_RUN')}",
        f"group G to read log-content where {OWN}",
        f"group G to read log-groups where target.loggroup.id = '{LOG_GROUP}'",
        f"group G to manage log-groups where all {{target.loggroup.id = '{LOG_GROUP}', "
        "request.permission = 'LOG_GROUP_CREATE'}",
        "group G to use subnets",
        "dynamic-group R to read repos where target.repo.name = 'team/trainer'",
        "dynamic-group R to manage objects where target.bucket.name = 'data'",
        "dynamic-group R to read objects where target.bucket.name = 'envs'",
        "dynamic-group R to read buckets where target.bucket.name = 'out'",
        "dynamic-group R to read objects where target.bucket.name = 'out'",
        f"dynamic-group R to use log-content where target.loggroup.id = '{LOG_GROUP}'",
    ]


def test_a_multi_node_job_of_oci() -> None:
    group = {
        "name": "w",
        "jobEnvironmentConfigurationDetails": {
            "jobEnvironmentType": "OCIR_CONTAINER",
            "image": "iad.ocir.io/ns/trainer:1",
        },
    }
    nodes = {
        "jobNodeType": "MULTI_NODE",
        "jobNetworkConfiguration": {"jobNetworkType": "CUSTOM_NETWORK", "subnetId": SUBNET},
        "jobNodeGroupConfigurationDetailsList": [group],
    }
    uses = uses_of_oci(decode(JobDetails, {"jobNodeConfigurationDetails": nodes}))
    assert (uses.subnet, dict(uses.repositories)) == (
        SUBNET,
        {"trainer": "iad.ocir.io/ns/trainer:1"},
    )


def test_ads_names_a_log_and_tags_its_run() -> None:
    spec = spec_from_mapping({"name": "t", "command": "true", "nodes": 1})
    found = of(with_ads(uses_of_spec(spec), ADS))
    assert [one.removeprefix("Allow ").strip() for one in found[-4:]] == [
        f"group G to read log-content where {OWN}",
        f"group G to read log-groups where target.loggroup.id = '{LOG_GROUP}'",
        f"dynamic-group R to use log-content where target.loggroup.id = '{LOG_GROUP}'",
        "dynamic-group R to use data-science-job-runs",
    ]


def test_what_others_have_created_is_not_given() -> None:
    """Of what belongs to users."""
    made = suggest(uses_of_oci(decode(JobDetails, OCI_JOB)), "t", "vision", group="G")
    policy = Policy("p", "root", parse_policy(str(made), "p").statements)
    tree = (Compartment("root", "ocid1.t"), Compartment("vision", "ocid1.c", "root"))
    policies = Policies([policy], tree, [Group("G", "ocid1.g")])
    nora = Requester("ocid1.user.nora", "nora", frozenset({"ocid1.g"}))
    owned = ("data-science-jobs", "data-science-job-runs", "log-content")
    every = [one for name in owned for one in TYPES[name].given_by(Verb.MANAGE)]
    for permission in every:
        for creator in ("nora", "root", None):
            on = {} if creator is None else {CREATED_BY: f"ocid1.user.{creator}"}
            allowed = policies.allows(Access(nora, permission, "vision", on))
            creates = permission.endswith("_CREATE")
            pushes = permission is Permission.LOG_CONTENT_PUSH
            assert allowed == (creates or (creator == "nora" and not pushes)), (permission, creator)
    assert not policies.allows(Access(nora, Permission.NODE_ENTER, "vision"))
    on = {"target.loggroup.id": LOG_GROUP}
    given = {one for one in Permission if policies.allows(Access(nora, one, "vision", on))}
    of_groups = {one for one in given if one.startswith("LOG_GROUP_")}
    assert of_groups == {"LOG_GROUP_INSPECT", "LOG_GROUP_READ", "LOG_GROUP_CREATE"}


@pytest.mark.parametrize("project", ["default", "vision", "research:vision"])
def test_the_file_of_a_suggestion_is_a_policy(project: str) -> None:
    suggestion = suggest(uses_of_oci(decode(JobDetails, OCI_JOB)), "a job", project)
    parsed = parse_policy(str(suggestion), "x")
    assert not parsed.findings
    assert len(parsed.statements) == len(suggestion.for_group) + len(suggestion.for_runs)
    assert str(parse_rule(suggestion.rule)) == suggestion.rule
    assert {str(one.location) for one in parsed.statements} == {
        "tenancy" if project == "default" else f"compartment {project}"
    }


USES = Uses(
    clients=True,
    repositories={"r": "r:1"},
    secrets={"s": "node_env.S"},
    log_group=LOG_GROUP,
    subnet=SUBNET,
    looks_up_subnet=True,
    tags_run=True,
)


@pytest.mark.parametrize("need", [*needs_of_users(USES), *needs_of_runs(USES)])
def test_no_smaller_verb_would_do(need: Need) -> None:
    (resource,) = {TYPE_OF[one].name for one in need.permissions}
    text = str(suggest(USES, "t", "vision"))
    verbs = [verb for verb in VERBS if {*need.permissions} <= permissions_of(verb, resource)]
    assert f" to {verbs[0]} {resource} in" in text
