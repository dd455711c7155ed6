"""What a new run may not use."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.caller import Caller
from muster.errors import InvalidInput
from muster.plan.model import PrincipalPlan
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.spec.ocids import TENANCY, compartment_ocid
from muster.storage.home import Home
from muster.store.account_records import UserKind, UserRecord
from muster.submission import Submission
from support.api_runs import start


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    config = {
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab"}}],
        "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:9"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with closing(Backend(Home(tmp_path / "home"))) as made:
        EmbeddedAccounts(made).create_project("vision")
        made.store.accounts.create_user(UserRecord("ana", UserKind.PERSON, 0.0))
        (found,) = made.store.policies.policies()
        statement = (
            "Allow any-user to read repos in tenancy where target.repo.name = 'docker.io/library/a'"
        )
        changed = replace(found, statements=(statement,), updated_by="root", updated_at=1.0)
        made.store.policies.change_policy(found, changed)
        yield made


POD = {
    "containers": [{"name": "node", "image": "b"}, {"name": "more", "image": "c"}],
    "volumes": [{"name": "v", "image": {"reference": "d"}}],
}
EXTRA = [{"name": "load", "role": "init", "image": "e"}]


@pytest.mark.parametrize(
    ("group", "images"),
    [
        ({"image": "a"}, []),
        ({"image": "b"}, ["b"]),
        ({"image": "a", "kubernetes": {"pod": {"spec": POD}}}, ["b", "c", "d"]),
        ({"image": "a", "extra_containers": EXTRA}, ["e"]),
    ],
)
def test_policies_are_asked_about_all_images_that_a_cluster_pulls(
    backend: Backend, group: dict[str, Any], images: list[str]
) -> None:
    principal = PrincipalPlan(TENANCY, compartment_ocid("vision"), "muster.invalid", "http://h:1")
    submission = Submission({}, sys.executable, Path("/"), principal=principal)
    caller = Caller("ana", "vision")
    api = EmbeddedAPI(caller=caller, submission=submission, backend=backend)
    groups = [{"name": "w", **group}]
    fields = {"engine": "kubernetes", "node_groups": groups, "suspend": True}
    try:
        start(api, "true", **fields)
        found = []
    except InvalidInput as error:
        found = [one.message.split()[1] for one in error.problems]
        assert {one.path for one in error.problems} == {"image"}
    assert sorted(found) == images
