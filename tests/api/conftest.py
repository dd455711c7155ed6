"""The implementations of the interface that the tests of this folder compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.api.interface import MusterAPI
from muster.client.http.api import HttpAPI
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from support.api_runs import end_all
from support.json_api import json_api
from support.server_thread import running_server


@pytest.fixture
def backend_api(own_home: Path) -> Iterator[EmbeddedAPI]:
    """The embedded implementation; all its runs are ended afterwards."""
    api = EmbeddedAPI()
    yield api
    end_all(api)
    api.close()


@pytest.fixture(params=["embedded", "json", "http"])
def api(request: pytest.FixtureRequest, backend_api: EmbeddedAPI) -> Iterator[MusterAPI]:
    if request.param == "embedded":
        yield backend_api
    elif request.param == "json":
        yield json_api(backend_api)
    else:
        backend = Backend(backend_api.home)
        with running_server(backend) as server:
            api = HttpAPI(server.address())
            yield api
            api.close()
