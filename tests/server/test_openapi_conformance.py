"""The server does what its description says: Schemathesis makes requests from the description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema

from muster.server.openapi import document
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from support.api_runs import start, wait
from support.server_thread import TOKEN, ServerThread, running_server

#: Cases of each operation.
_FEW, _MANY = 2, 60
_CHECKS = [
    check
    for check in CHECKS.get_all()
    if check.__name__
    in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    )
]


def _flat(described: dict[str, Any]) -> dict[str, Any]:
    """The description, in which jobs and overrides have no fields with fields of their own:
    generating cases for all of them takes minutes."""
    schemas = described["components"]["schemas"]
    for name in ("JobSpec", "RunOverrides"):
        properties = schemas[name]["properties"]
        for field in [field for field in properties if "$ref" in json.dumps(properties[field])]:
            del properties[field]
    return described


OPERATIONS = [
    (path, method)
    for path, item in document()["paths"].items()
    for method in item
    if method in ("get", "put", "post", "delete", "patch")
]
_EACH = pytest.mark.parametrize(
    ("path", "method"), OPERATIONS, ids=[f"{method} {path}" for path, method in OPERATIONS]
)


@cache
def _schema(*, flat: bool) -> BaseSchema:
    schema = schemathesis.openapi.from_dict(_flat(document()) if flat else document())
    # the limits of all fields: some 30 cases of each operation, whatever their maximum is
    schema.config.phases.coverage.enabled = not flat
    return schema


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    backend = Backend(Home(tmp_path_factory.mktemp("home")))
    with running_server(backend) as running:
        api = EmbeddedAPI(backend=backend)
        assert wait(api, start(api, "echo hello").id) == "SUCCEEDED"
        yield running


def check(server: ServerThread, schema: BaseSchema, examples: int) -> None:
    """Send cases of a schema with one operation, and check the answers.

    Cases are made here: `schema.parametrize` makes those of all operations when tests are
    collected, which takes half a minute of each worker.
    """
    base = f"http://127.0.0.1:{server.port}/v1"
    # every project exists for the user of the test
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def send(case: Any) -> None:
        response = case.call(base_url=base, session=session, headers=headers, timeout=30)
        case.validate_response(response, checks=_CHECKS)

    chosen = settings(max_examples=examples, deadline=None, suppress_health_check=[*HealthCheck])
    load_all_checks()
    (made,) = get_all_tests(schema=schema, test_func=send, settings=chosen, given_kwargs={})
    _, test = made.ok()
    with requests.Session() as session:  # one connection
        test()


@_EACH
def test_answers_are_as_described(server: ServerThread, path: str, method: str) -> None:
    check(server, _schema(flat=True).include(path=path, method=method), _FEW)


@pytest.mark.slow
@_EACH
def test_answers_to_many_requests_are_as_described(
    server: ServerThread, path: str, method: str
) -> None:
    check(server, _schema(flat=False).include(path=path, method=method), _MANY)
