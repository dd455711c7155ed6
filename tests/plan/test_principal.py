"""What programs of a run act as the run with."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from muster.plan.model import PrincipalPlan
from muster.plan.principal import client_settings, credentials, for_copies, identity_of, places
from support.sessions import make_plan

DOMAIN = PrincipalPlan("tenancy", "compartment", "jobs.example.org:8443", own_authority=True)
URL = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://10.0.0.5:8431")


def test_the_variables_of_the_sdk() -> None:
    assert credentials(DOMAIN, "/run/principal") == {
        "OCI_RESOURCE_PRINCIPAL_VERSION": "2.2",
        "OCI_RESOURCE_PRINCIPAL_RPST": "/run/principal/rpst",
        "OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM": "/run/principal/key.pem",
        "OCI_RESOURCE_PRINCIPAL_REGION": "jobs.example.org:8443",
    }
    assert places(DOMAIN)["TENANCY_OCID"] == "tenancy"
    assert places(DOMAIN)["JOB_RUN_COMPARTMENT_OCID"] == "compartment"


def test_clients_of_a_server_with_a_domain_need_its_authority() -> None:
    found = client_settings(DOMAIN, "/run/principal")
    assert found["REQUESTS_CA_BUNDLE"] == "/run/principal/authorities.pem"
    assert "OCI_CLI_ENDPOINT" not in found
    trusted = client_settings(replace(DOMAIN, own_authority=False), "/run/principal")
    assert "REQUESTS_CA_BUNDLE" not in trusted


def test_clients_of_a_server_without_a_domain_get_its_url() -> None:
    found = client_settings(URL, "/run/principal")
    assert found["OCI_CLI_ENDPOINT"] == found["OCI_ODSC_SERVICE_ENDPOINT"] == URL.endpoint
    ocifs = json.loads(found["FSSPEC_OCI"])
    assert ocifs == {"config_kwargs": {"service_endpoint": URL.endpoint}}


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("http://127.0.0.1:8431", "http://host.muster.internal:8431"),
        ("https://localhost", "https://host.muster.internal"),
        ("http://10.0.0.5:8431", "http://10.0.0.5:8431"),
    ],
)
def test_nodes_with_a_network_of_their_own(url: str, reached: str) -> None:
    found = client_settings(replace(URL, endpoint=url), "/f", "host.muster.internal")
    assert found["OCI_CLI_ENDPOINT"] == reached


def test_copies_use_the_credentials_unless_there_are_others() -> None:
    found = for_copies(URL, "/run/principal", {"PATH": "/bin"})
    assert (found["PATH"], found["OCIFS_IAM_TYPE"]) == ("/bin", "resource_principal")
    assert found["OCI_RESOURCE_PRINCIPAL_RPST"] == "/run/principal/rpst"
    given = {"OCIFS_IAM_TYPE": "api_key"}
    assert for_copies(URL, "/run/principal", given) == given


def test_a_run_is_the_job_run_that_the_api_has_created() -> None:
    plan = make_plan("true")
    ours = identity_of(plan, URL)
    assert ours.ocid == f"ocid1.datasciencejobrun.muster.local..{plan.run_id}"
    given = replace(plan, oci_names={"JOB_RUN_OCID": "ocid1.datasciencejobrun.oc1..x"})
    assert identity_of(given, URL).ocid == "ocid1.datasciencejobrun.oc1..x"
