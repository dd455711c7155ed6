"""What answers with errors mean, with texts as API servers and webhooks write them."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.kubernetes.refusals import (
    LONGEST_TEXT,
    CannotCall,
    Operation,
    not_applied,
    refusal,
)

MANIFEST: dict[str, Any] = {
    "kind": "JobSet",
    "spec": {
        "replicatedJobs": [
            {"name": "driver"},
            {
                "name": "workers",
                "template": {
                    "spec": {
                        "template": {"spec": {"containers": [{"name": "node"}, {"name": "log"}]}}
                    }
                },
            },
        ]
    },
}
APPLY = Operation("patch", "jobset.x-k8s.io", "jobsets", "JobSet", "team", "train", MANIFEST)
LIST = Operation("list", "", "pods", "Pod", "team")
READ = Operation("get", "", "pods", "Pod", "team", "p-0")
WORKERS = "spec.replicatedJobs[1].template.spec.template.spec"


def causes(*found: tuple[str, str]) -> dict[str, Any]:
    """field, message."""
    return {"causes": [{"field": field, "message": message} for field, message in found]}


def body(message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"kind": "Status", "message": message, "details": details or {}}


JOBSET_WEBHOOK = 'admission webhook "vjobset.kb.io" denied the request: '
REFUSED: list[tuple[Operation, int, dict[str, Any], str]] = [
    (
        APPLY,
        422,
        body(
            'JobSet.jobset.x-k8s.io "train" is invalid: [a, b]',
            causes(
                ("spec.replicatedJobs[1].replicas", "Invalid value: -1: must be at least 0"),
                (f"{WORKERS}.containers[0].image", "Required value"),
                (f"{WORKERS}.containers[1].resources.limits[cpu]", 'Invalid value: "x"'),
                ("spec.successPolicy.operator", "Unsupported value"),
            ),
        ),
        "node_groups[workers].replicas: Invalid value: -1: must be at least 0; "
        "node_groups[workers].image: Required value; "
        'node_groups[workers].extra_containers[log].resources.cpus: Invalid value: "x"; '
        "spec.successPolicy.operator: Unsupported value",
    ),
    (
        APPLY,
        403,
        body(
            f"{JOBSET_WEBHOOK}<nil>: Internal error: the subdomain is too long\n"
            "spec.replicatedJobs[0].name: Invalid value: the job name is too long"
        ),
        "vjobset.kb.io: the subdomain is too long; node_groups[driver].name: Invalid value: the "
        "job name is too long",
    ),
    (
        APPLY,
        422,
        body(
            f"{JOBSET_WEBHOOK}[<nil>: Internal error: one, a, two, "
            f"{WORKERS}.nodeSelector: Forbidden: no]"
        ),
        "vjobset.kb.io: one, a, two; node_groups[workers].kubernetes.node_selector: Forbidden: no",
    ),
    (
        APPLY,
        400,
        body(
            'JobSet in version "v1alpha2" cannot be handled as a JobSet: strict decoding error: '
            f'unknown field "{WORKERS}.frobs", duplicate field "spec.network"'
        ),
        f"node_groups[workers] ({WORKERS}.frobs) is not known by the cluster; spec.network is "
        "given twice",
    ),
    (
        APPLY,
        500,
        body(
            "failed to create typed patch object (team/train; jobset.x-k8s.io/v1alpha2, "
            "Kind=JobSet): errors:\n  .spec.frobs: field not declared in schema\n"
            "  .spec.more: field not declared in schema\n"
        ),
        "spec.frobs: field not declared in schema; spec.more: field not declared in schema",
    ),
    (
        APPLY,
        409,
        body(
            'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1alpha2',
            {
                "causes": [
                    {
                        "reason": "FieldManagerConflict",
                        "message": 'conflict with "kubectl-edit" using v1alpha2',
                        "field": '.spec.replicatedJobs[name="workers"].replicas',
                    }
                ]
            },
        ),
        "JobSet train has fields that others manage: node_groups[workers].replicas "
        "was set by kubectl-edit",
    ),
    (
        APPLY,
        403,
        body(
            'jobsets.jobset.x-k8s.io "train" is forbidden: User "ann" cannot patch resource '
            '"jobsets" in API group "jobset.x-k8s.io" in the namespace "team"'
        ),
        "ann may not patch jobsets in namespace team: its Role there lacks {apiGroups: "
        "[jobset.x-k8s.io], resources: [jobsets], verbs: [patch]}",
    ),
    (
        LIST,
        403,
        body(
            'pods is forbidden: User "system:serviceaccount:team:x" cannot list resource "pods" in '
            'API group "" in the namespace "team"'
        ),
        "system:serviceaccount:team:x may not list pods in namespace team: its Role there lacks "
        '{apiGroups: [""], resources: [pods], verbs: [list]}',
    ),
    (
        APPLY,
        403,
        body(
            'pods "x" is forbidden: violates PodSecurity "restricted:latest": '
            'privileged (container "node" must not set privileged=true)'
        ),
        "pod security restricted:latest of namespace team: privileged (container "
        '"node" must not set privileged=true)',
    ),
    (
        APPLY,
        403,
        body(
            'jobsets "train" is forbidden: unable to create new content in namespace team because '
            "it is being terminated"
        ),
        "namespace team is being deleted",
    ),
    (
        APPLY,
        404,
        body('namespaces "team" not found', {"kind": "namespaces", "name": "team"}),
        "the cluster has no namespace team: create it, or choose another one",
    ),
    (
        APPLY,
        404,
        body("the server could not find the requested resource"),
        "JobSet is not installed in the cluster: it does not know jobsets",
    ),
    (APPLY, 404, body(""), "JobSet is not installed in the cluster: it does not know jobsets"),
    (
        APPLY,
        404,
        body("404 page not found\n"),
        "JobSet is not installed in the cluster: it does not know jobsets",
    ),
    (READ, 404, body('pods "p-0" not found'), "namespace team has no Pod p-0"),
    (
        READ,
        401,
        body("Unauthorized"),
        "the cluster does not accept the credentials (401 Unauthorized): log in again, or choose "
        "another `context`",
    ),
    (
        APPLY,
        413,
        body("Request entity too large: limit is 3145728"),
        "JobSet train is larger than the cluster accepts",
    ),
    (
        APPLY,
        414,
        {"message": "<html><h1>414 Request-URI Too Large</h1></html>"},
        "the request is longer than the cluster, or a proxy on the way to it, accepts (414)",
    ),
    (
        APPLY,
        431,
        {"message": ""},
        "the request is longer than the cluster, or a proxy on the way to it, accepts (431)",
    ),
    (
        APPLY,
        400,
        {"message": "\n<!DOCTYPE html><title>400 Bad Request</title>"},
        "what answers 400 is not the API server, but a proxy on the way to it, which does not "
        "accept the request: it may be too long",
    ),
]


@pytest.mark.parametrize(
    ("operation", "status", "answer", "text"), REFUSED, ids=[text[:60] for *_, text in REFUSED]
)
def test_it_is_refused(
    operation: Operation, status: int, answer: dict[str, Any], text: str
) -> None:
    error = refusal(operation, status, answer)
    assert (str(error), error.refused, error.status) == (text, True, status)


PASSING: list[tuple[int, dict[str, Any], str]] = [
    (
        403,
        body(
            'jobsets "train" is forbidden: exceeded quota: gpus, requested: '
            "requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=4, limited: "
            "requests.nvidia.com/gpu=8"
        ),
        "quota gpus of namespace team does not allow it: requests.nvidia.com/gpu=8 requested, "
        "requests.nvidia.com/gpu=4 used, the limit is requests.nvidia.com/gpu=8",
    ),
    (
        409,
        body(
            'Operation cannot be fulfilled on secrets "train": the object has been modified; '
            "please apply your changes to the latest version and try again"
        ),
        'JobSet train: Operation cannot be fulfilled on secrets "train": the object has been '
        "modified; please apply your changes to the latest version and try again",
    ),
    (429, body("Too many requests"), "the API server limits requests (429)"),
    (503, body("no endpoints"), "no endpoints (503)"),
    (504, {}, "the cluster answers 504 (504)"),
    (
        500,
        body(
            'Internal error occurred: failed calling webhook "mjobset.kb.io": failed to call '
            'webhook: Post "https://x.svc:443/m": dial tcp 10.0.0.1:443: connect: refused'
        ),
        "webhook mjobset.kb.io of the cluster does not answer: failed to call webhook: Post "
        '"https://x.svc:443/m": dial tcp 10.0.0.1:443: connect: refused',
    ),
]


@pytest.mark.parametrize(("status", "answer", "text"), PASSING, ids=[t[:40] for *_, t in PASSING])
def test_it_passes(status: int, answer: dict[str, Any], text: str) -> None:
    error = refusal(APPLY, status, answer)
    assert (str(error), error.refused) == (text, False)


def test_the_server_says_when_to_ask_again() -> None:
    error = refusal(APPLY, 429, body("busy", {"retryAfterSeconds": 3}))
    assert error.retry_after == 3.0


@pytest.mark.parametrize(
    ("seconds", "wait"), [(3600, 60.0), (10**400, 60.0), (-1, 0.0), ("7", None), ([], None)]
)
def test_a_pause_is_limited(seconds: object, wait: float | None) -> None:
    assert refusal(LIST, 429, body("busy", {"retryAfterSeconds": seconds})).retry_after == wait


@pytest.mark.parametrize("details", [7, ["x"], {"causes": 5}, {"causes": ["x", {}]}])
@pytest.mark.parametrize("status", [403, 404, 409, 422, 500])
def test_odd_details_are_left_out(details: object, status: int) -> None:
    found = refusal(APPLY, status, {**body("no"), "details": details})
    assert str(found) == str(refusal(APPLY, status, body("no")))


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        (refusal(APPLY, 422, body("no")), True),
        (refusal(APPLY, 401, {}), False),  # they may be renewed
        (CannotCall("there is no file x", refused=True), False),  # it may be repaired
        (refusal(APPLY, 503, {}), False),
    ],
)
def test_what_lasts(error: CannotCall, lasts: bool) -> None:
    assert error.lasts is lasts


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, "it is not there"),
        (401, "it is not there"),
        (422, "the API server has rejected the JobSet: it is not there"),
    ],
)
def test_who_was_not_asked_has_refused_nothing(status: int | None, expected: str) -> None:
    error = CannotCall("it is not there", refused=True, status=status)
    assert not_applied(error, "rejected the JobSet") == expected


#: Of which many in a row took quadratic or cubic time.
HOSTILE = [
    "  ",
    "a",
    'a "',
    "\n ,; ",
    ", spec.a",
    "failed to create typed object (",
    "failed calling webhook ",
    "exceeded quota: a, requested: b, used: c",
    'User "a" cannot ',
    'violates PodSecurity "a',
    "Internal error occurred: ",
    'unknown field "a',
]


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 500])
@pytest.mark.parametrize("part", HOSTILE)
def test_only_the_beginning_of_a_long_text_is_read(part: str, status: int) -> None:
    text = part * (1_000_000 // len(part))
    found = refusal(APPLY, status, body(text))
    assert str(found) == str(refusal(APPLY, status, body(text[:LONGEST_TEXT])))
    many = [("spec.network", f"{number} {text}") for number in range(100)]
    for one in (found, refusal(APPLY, status, body("no", causes(*many)))):
        assert len(str(one)) <= LONGEST_TEXT
