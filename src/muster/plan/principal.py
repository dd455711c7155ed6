"""The variables and files with which programs of a run act as the run, as clients of OCI look for
them (OCI: resource principals, version 2.2). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from muster.addresses import is_on_loopback
from muster.plan.model import PrincipalPlan, RunPlan
from muster.run_tokens import RunIdentity
from muster.spec.ocids import ocid

#: Files with credentials: the token, and the private key of its requests, which are replaced from
#: time to time; and in the folder of the run's, the authorities to trust, if the server's is among
#: them.
TOKEN, KEY, AUTHORITIES = "rpst", "key.pem", "authorities.pem"


def identity_of(plan: RunPlan, principal: PrincipalPlan) -> RunIdentity:
    """The identity that the run's tokens have."""
    name = plan.oci_names.get("JOB_RUN_OCID") or ocid("datasciencejobrun", plan.run_id)
    return RunIdentity(plan.run_id, name, principal.tenancy, principal.compartment)


def node_folder(folder: str, slot: int) -> str:
    """The folder with the credentials of the node in a slot. folder: of the run's."""
    return f"{folder}/{slot}"


def credentials(principal: PrincipalPlan, folder: str) -> dict[str, str]:
    """The variables that say who a node is. folder: with its files, as programs see it."""
    return {
        "OCI_RESOURCE_PRINCIPAL_VERSION": "2.2",
        "OCI_RESOURCE_PRINCIPAL_RPST": f"{folder}/{TOKEN}",
        "OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM": f"{folder}/{KEY}",
        "OCI_RESOURCE_PRINCIPAL_REGION": principal.region,
    }


def places(principal: PrincipalPlan) -> dict[str, str]:
    """The variables that name the compartments of a run."""
    names = ("PROJECT_COMPARTMENT_OCID", "JOB_COMPARTMENT_OCID", "JOB_RUN_COMPARTMENT_OCID")
    return {"TENANCY_OCID": principal.tenancy, **dict.fromkeys(names, principal.compartment)}


def client_settings(
    principal: PrincipalPlan, folder: str, machine: str | None = None
) -> dict[str, str]:
    """The variables by which clients that nobody has configured use the credentials, and find the
    server. folder: of the run's, as programs see it. machine: see `EngineValues.machine`."""
    found = {"OCI_CLI_AUTH": "resource_principal", "OCIFS_IAM_TYPE": "resource_principal"}
    if principal.own_authority:
        file = f"{folder}/{AUTHORITIES}"
        found |= {"REQUESTS_CA_BUNDLE": file, "OCI_CLI_CERT_BUNDLE": file}
    if url := principal.endpoint:
        url = url if machine is None else _reached_by(url, machine)
        found |= {
            "OCI_CLI_ENDPOINT": url,
            "OCI_ODSC_SERVICE_ENDPOINT": url,
            "FSSPEC_OCI": json.dumps({"config_kwargs": {"service_endpoint": url}}),
        }
    return found


def _reached_by(url: str, machine: str) -> str:
    """A URL for nodes with another loopback address. machine: their name of this one."""
    if not is_on_loopback(url):
        return url
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return parts._replace(netloc=f"{machine}{port}").geturl()


def storage_address(principal: PrincipalPlan) -> tuple[str, int]:
    """The host and the port of the object storage."""
    parts = urlsplit(principal.endpoint or f"https://objectstorage.{principal.region}")
    return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)


def uses_principal(environ: Mapping[str, str]) -> bool:
    """Whether what Muster copies for a run is copied as the run. environ: the submitter's."""
    return "OCIFS_IAM_TYPE" not in environ


def for_copies(
    principal: PrincipalPlan, folder: str, environ: Mapping[str, str]
) -> Mapping[str, str]:
    """The environment of a process that copies what a run mounts. environ: the submitter's, which
    may have other credentials: those are used. folder: of the run's."""
    if not uses_principal(environ):
        return environ
    settings = client_settings(principal, folder)
    return {**settings, **environ, **credentials(principal, folder)}
