"""Profiles of engines `oci`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.engines.oci.listen import is_reachable, listen_address
from muster.engines.oci.profile import OciProfile, Place, read_settings
from muster.engines.registry import engine_named
from muster.errors import InvalidInput
from muster.node.machine import own_address
from muster.storage.home import Home

IDS = {"compartment": "ocid1.compartment.oc1..c", "project": "ocid1.datascienceproject.oc1..p"}


def test_the_compartment_and_the_project_are_enough() -> None:
    assert read_settings(IDS) == OciProfile(**IDS)


def test_other_settings() -> None:
    given = {"shape": "VM.GPU.A10.1", "disk_gb": 200, "keep_jobs": True, "ports": "7000-7100"}
    found = read_settings({**IDS, **given})
    assert found == OciProfile(**IDS, **{**given, "ports": (7000, 7100)})
    assert read_settings({**IDS, "ports": "7000"}).ports == (7000, 7000)


@pytest.mark.parametrize(
    ("settings", "path", "text"),
    [
        ({"compartments": "x"}, "compartments", "unknown setting"),
        ({"shape": "VM Standard"}, "shape", "must be a text without spaces"),
        ({"subnet": 3}, "subnet", "must be a text without spaces, not 3"),
        ({"ocpus": 0}, "ocpus", "must be a number of OCPUs above 0, not 0"),
        ({"memory_gb": True}, "memory_gb", "must be a number of GB above 0"),
        ({"disk_gb": 20}, "disk_gb", "must be from 50 to 1024, not 20"),
        ({"environment": {"A": 1}}, "environment", "must be a table of texts"),
        ({"file_systems": {"h:/d": "a"}}, "file_systems.h:/d", "MOUNT_TARGET_OCID:EXPORT_OCID"),
        ({"auth": "password"}, "auth", "must be api_key, security_token, resource_principal"),
        ({"endpoint": "datascience.x"}, "endpoint", "must be an http or https URL"),
        ({"ports": "7100-7000"}, "ports", "must be FIRST-LAST, not '7100-7000'"),
        ({"ports": "0-99999"}, "ports", "must be FIRST-LAST"),
        ({"config": "config"}, "config", "must be a path from / or ~/, not 'config'"),
        ({"folder": "nodes"}, "folder", "must be a path from / or ~/"),
        ({"python": "python 3"}, "python", "must be an interpreter"),
        ({"keep_jobs": "yes"}, "keep_jobs", "must be true or false"),
        ({"multi_node": 1}, "multi_node", "must be true or false, not 1"),
        ({"bucket": "jobs"}, "bucket", "must be oci://BUCKET@NAMESPACE/PREFIX, not 'jobs'"),
        ({"bucket": "oci://jobs"}, "bucket", "must be oci://BUCKET@NAMESPACE"),
        ({"bucket": "oci://jobs@us?x"}, "bucket", "must be oci://BUCKET@NAMESPACE"),
        ({"bucket": "oci://jobs@us", "address": "10.0.0.5"}, "address", "does not go with bucket"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read_settings({**IDS, **settings})
    (problem,) = error.value.problems
    assert problem.path == path and text in problem.message


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidInput) as error:
        read_settings({"auth": "x", "ports": "x"})
    assert [one.path for one in error.value.problems] == ["compartment", "project", "auth", "ports"]


def test_a_wrong_file_is_named(own_home: Path) -> None:
    file = Home(own_home).engines / "cloud.toml"
    file.parent.mkdir(parents=True)
    file.write_text('kind = "oci"\ncompartment = "c"\nproject = "p"\nshape = ""\n')
    with pytest.raises(InvalidInput, match=r"cloud.toml.*:4"):
        engine_named("cloud", Home(own_home))


@pytest.mark.parametrize(("url", "prefix"), [("", ""), ("/", ""), ("/a/b", "a/b/"), ("/a//", "a/")])
def test_a_bucket_has_a_folder_for_each_run(url: str, prefix: str) -> None:
    place = read_settings({**IDS, "bucket": f"oci://my.jobs@our-tenancy{url}"}).place
    assert place == Place("our-tenancy", "my.jobs", prefix)
    assert place.folder("r1") == f"{prefix}muster/r1/"


def test_nodes_reach_this_machine_at_an_address_or_through_a_bucket() -> None:
    assert not is_reachable(OciProfile(**IDS))
    assert is_reachable(OciProfile(**IDS, address="10.0.0.5"))
    assert is_reachable(OciProfile(**IDS, bucket="oci://a@b"))
    assert is_reachable(OciProfile(**IDS, endpoint="http://localhost:8000"))


def test_nodes_dial_the_address_of_the_profile() -> None:
    assert listen_address(OciProfile(**IDS, address="10.0.0.5")) == "10.0.0.5"
    assert listen_address(OciProfile(**IDS)) is None
    elsewhere = OciProfile(**IDS, endpoint="https://datascience.muster.example.org")
    assert listen_address(elsewhere) is None


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:8000", "oci.localhost"])
def test_nodes_of_a_service_on_this_machine_find_it(host: str) -> None:
    """Also those that have a network, and so a loopback, of their own."""
    assert listen_address(OciProfile(**IDS, endpoint=f"http://{host}")) == own_address()
