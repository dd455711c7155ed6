"""The server does what its description says: Schemathesis makes requests from the description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS

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


schema = schemathesis.openapi.from_dict(_flat(document()))
whole_schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    backend = Backend(Home(tmp_path_factory.mktemp("home")))
    with running_server(backend) as running:
        api = EmbeddedAPI(backend=backend)
        assert wait(api, start(api, "echo hello").id) == "SUCCEEDED"
        yield running


def check(server: ServerThread, case: Any) -> None:
    """Send a case, and check the answer."""
    base = f"http://127.0.0.1:{server.port}/v1"
    # every project exists for the user of the test
    response = case.call(base_url=base, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
    case.validate_response(response, checks=_CHECKS)


@schema.parametrize()
@settings(max_examples=_FEW, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described(server: ServerThread, case: Any) -> None:
    check(server, case)


@pytest.mark.slow
@whole_schema.parametrize()
@settings(max_examples=_MANY, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_to_many_requests_are_as_described(server: ServerThread, case: Any) -> None:
    check(server, case)
