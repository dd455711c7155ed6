"""What `muster engines check` finds of an engine `oci`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.engines.findings import Finding
from muster.engines.oci.client import Service
from muster.engines.oci.examine import examine
from muster.engines.oci.profile import read_settings
from support.oci_objects import BUCKET
from support.oci_service import OciService, Refused, needs_sdk

pytestmark = needs_sdk


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciService]:
    with OciService(tmp_path_factory.mktemp("oci")).serving() as made:
        yield made


def found(service: OciService, **settings: Any) -> dict[str, Finding]:
    table = tomllib.loads(service.profile(**settings))
    table.pop("kind")
    return {one.name: one for one in examine(read_settings(table))}


def test_all_works(service: OciService) -> None:
    every = found(service, log_group="ocid1.loggroup.oc1..g")
    names = ["service", "clock", "project", "job runs", "shape", "log group", "address"]
    assert [*every] == names
    assert all(one.works and not one.advice for one in every.values()), every


@pytest.mark.parametrize(
    ("settings", "name", "says", "advice"),
    [
        (
            {"project": "ocid1.other"},
            "project",
            "allow group GROUP to read data-science-projects",
            "check the OCIDs",
        ),
        (
            {"shape": "VM.Nothing"},
            "shape",
            "the service has no VM.Nothing for jobs",
            "set `shape` to one that it has: VM.GPU.A10.1, VM.Standard.E4.Flex",
        ),
        ({"endpoint": "http://127.0.0.1:1"}, "service", "Connection refused", "http://127.0.0.1:1"),
        ({"config": "/nowhere/config"}, "service", "/nowhere/config", "`oci setup config`"),
        ({"config_profile": "OTHER"}, "service", "OTHER", "profile OTHER"),
        ({"auth": "security_token"}, "service", "security_token_file", "check"),
    ],
)
def test_what_does_not_work_has_a_way_out(
    service: OciService, settings: dict[str, Any], name: str, says: str, advice: str
) -> None:
    finding = found(service, **settings)[name]
    assert not finding.works
    assert says in finding.says and advice in finding.advice


def test_a_profile_without_settings_is_named_with_all_that_is_missing(
    service: OciService, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text("[MUSTER]\nregion=here\n")
    finding = found(service, config=str(config), config_profile="DEFAULT")["service"]
    says = "fingerprint is missing, key_file is missing, region is missing, tenancy is missing"
    assert says in finding.says
    assert "profile DEFAULT" in finding.advice and "`config_profile`" in finding.advice


def test_a_bucket_is_tried_in_place_of_the_address(service: OciService) -> None:
    every = found(service, bucket=BUCKET)
    assert "address" not in every and every["bucket"].works
    assert not service.storage.objects and not service.storage.links
    bucket = found(service, bucket="oci://other@team")["bucket"]
    assert not bucket.works and "allow group GROUP to manage buckets" in bucket.says


def test_credentials_that_are_refused_are_named(service: OciService) -> None:
    def refuse(_operation: str) -> None:
        raise Refused(401, "NotAuthenticated", "the key is not known")

    service.before = refuse
    try:
        finding = found(service)["service"]
    finally:
        service.before = lambda _operation: None
    assert "does not accept the credentials" in finding.says and "the key is not" in finding.says
    assert finding.advice == "check the credentials"


def test_clocks_that_differ_are_named(service: OciService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "clock", lambda _self: "Sat, 01 Jan 2000 00:00:00 GMT")
    clock = found(service)["clock"]
    assert not clock.works and "set this machine's clock" in clock.advice
