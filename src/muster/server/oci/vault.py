"""The secrets of projects (OCI: Vault API 20180608, Secret Retrieval API 20190301).

Each project has one vault. The OCID of a secret follows from its name; its values are set by
`muster secrets set`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.caller import Right
from muster.describe.times import time_text_ms
from muster.identity import id_of
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import not_found
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.server.oci.value_pages import value_page
from muster.spec.ocids import ocid
from muster.storage.sealing import unseal
from muster.store.account_records import SecretRecord

_BUNDLES = "/20190301/secretbundles"
_SECRETS = "/20180608/secrets"
#: Stages of the only version whose value is kept (OCI).
_STAGES = ("CURRENT", "LATEST")


class _Secret(Struct, frozen=True):
    """A secret of a project."""

    project: str
    record: SecretRecord


def secret_ocid(project: str, name: str) -> str:
    """The OCID of a secret."""
    return ocid("vaultsecret", id_of("secret", project, name))


def _vault_ocid(project: str) -> str:
    return ocid("vault", id_of("vault", project))


def get_secret_bundle(request: OciRequest) -> Answer:
    """GET /secretbundles/{secret_id}"""
    return _bundle(request, _find(request))


def get_secret_bundle_by_name(request: OciRequest) -> Answer:
    """POST /secretbundles/actions/getByName"""
    name, vault = request.required("secretName"), request.required("vaultId")
    for project in request.visible():
        if _vault_ocid(project) == vault:
            for record in request.store.secrets.listing(project):
                if record.name == name:
                    return _bundle(request, _Secret(project, record))
    raise not_found()


def list_secret_bundle_versions(request: OciRequest) -> Answer:
    """GET /secretbundles/{secret_id}/versions"""
    return value_page(request, [_version(_find(request))])


def list_secrets(request: OciRequest) -> Answer:
    """GET /secrets"""
    project = request.project_with(request.required("compartmentId"), Right.READ)
    name, vault = request.given("name"), request.given("vaultId")
    found = request.store.secrets.listing(project)
    if vault not in (None, _vault_ocid(project)):
        found = []
    shown = [_shown(request, _Secret(project, one)) for one in found if name in (None, one.name)]
    if request.given("lifecycleState") not in (None, "ACTIVE"):
        shown = []
    return value_page(request, shown)


def get_secret(request: OciRequest) -> Answer:
    """GET /secrets/{secret_id}"""
    secret = _find(request)
    current = {"currentVersionNumber": secret.record.version}
    return Answer(encoded(_shown(request, secret) | current))


def _find(request: OciRequest) -> _Secret:
    """The secret in the path, if the caller may see its project. Raises OciError."""
    for project in request.visible():
        for record in request.store.secrets.listing(project):
            if secret_ocid(project, record.name) == request.path["secret_id"]:
                return _Secret(project, record)
    raise not_found()


def _bundle(request: OciRequest, secret: _Secret) -> Answer:
    """A secret with its value, for who may start runs, which get it as well. Raises OciError."""
    record = secret.record
    request.require(secret.project, Right.SUBMIT)
    number = request.number("versionNumber", record.version, 0, 1 << 53)
    if number != record.version or request.given("stage") not in (None, *_STAGES):
        raise not_found()
    if request.given("secretVersionName") is not None:  # versions have no names here
        raise not_found()
    home, store = request.state.backend.home, request.store

    def read() -> str:
        sealed = store.secrets.values(secret.project, (record.name,)).get(record.name)
        if sealed is None:  # it was deleted meanwhile
            raise not_found()
        value: str = unseal(home, sealed, f"secret {record.name}")
        return value

    value = request.act(secret.project, Right.SUBMIT, "oci.secrets.read", record.name, read)
    content = base64.b64encode(value.encode()).decode()
    bundle = {"secretBundleContent": {"contentType": "BASE64", "content": content}, "metadata": {}}
    return Answer(encoded({**_version(secret), **bundle}))


def _version(secret: _Secret) -> Mapping[str, Any]:
    return {
        "secretId": secret_ocid(secret.project, secret.record.name),
        "versionNumber": secret.record.version,
        "timeCreated": time_text_ms(secret.record.set_at),
        "stages": _STAGES,
    }


def _shown(request: OciRequest, secret: _Secret) -> dict[str, Any]:
    return {
        "id": secret_ocid(secret.project, secret.record.name),
        "compartmentId": request.compartments.ocid(secret.project),
        "vaultId": _vault_ocid(secret.project),
        "keyId": ocid("key", id_of("key", secret.project)),
        "secretName": secret.record.name,
        "description": "",
        "lifecycleState": "ACTIVE",
        "timeCreated": time_text_ms(secret.record.set_at),
        "isAutoGenerationEnabled": False,
        "freeformTags": {},
        "definedTags": {},
    }


ROUTES = (
    OciRoute("get_secret_bundle", "GET", f"{_BUNDLES}/{{secret_id}}", get_secret_bundle),
    OciRoute(
        "get_secret_bundle_by_name",
        *("POST", f"{_BUNDLES}/actions/getByName", get_secret_bundle_by_name),
    ),
    OciRoute(
        "list_secret_bundle_versions",
        *("GET", f"{_BUNDLES}/{{secret_id}}/versions", list_secret_bundle_versions),
    ),
    OciRoute("list_secrets", "GET", _SECRETS, list_secrets),
    OciRoute("get_secret", "GET", f"{_SECRETS}/{{secret_id}}", get_secret),
)
