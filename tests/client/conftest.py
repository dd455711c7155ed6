"""Clients whose API passes everything through JSON, as one over a network will."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.api.interface import MusterAPI
from muster.client import client
from muster.client.connect import connect
from muster.control.launcher import Launcher
from muster.submission import Submission
from support.json_api import json_api

#: Modules of tests that use such clients; with `MUSTER_TEST_API=json` all do, with
#: `MUSTER_TEST_API=embedded` none. Commands are tested with the embedded API, and
#: `tests/api/test_contract.py` compares both.
_THROUGH_JSON = {
    "test_async",
    "test_function",
    "test_jobs",
    "test_lifecycle",
    "test_listing_queries",
    "test_outputs",
    "test_results",
    "test_scaling",
}


@pytest.fixture(autouse=True)
def _api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    given = os.environ.get("MUSTER_TEST_API")
    if request.config.getoption("--over-http"):
        return  # which is JSON
    if given == "json" or (given is None and request.path.stem in _THROUGH_JSON):
        monkeypatch.setattr(client, "connect", _connect_through_json)


def _connect_through_json(
    home: str | Path | None,
    launcher: Launcher | None,
    submission: Submission | None = None,
) -> MusterAPI:
    return json_api(connect(home, launcher, submission))
