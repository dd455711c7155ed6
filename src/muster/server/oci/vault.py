"""The secrets of projects (OCI: Vault API 20180608, Secret Retrieval API 20190301).

Each project has one vault. The OCID of a secret follows from its name. It has a name and the newest
value, as in `muster secrets`, and nothing else that could be given.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from muster.describe.times import time_text_ms
from muster.iam.resources import variables_of_secret
from muster.identity import DEFAULT_PROJECT, id_of
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import OciError, invalid, not_found
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.server.oci.value_pages import value_page
from muster.spec.formats.oci.model import Wire
from muster.spec.ocids import ocid, secret_ocid
from muster.storage.sealing import unseal
from muster.store.account_records import SecretRecord

_BUNDLES = "/20190301/secretbundles"
_SECRETS, _SECRET = "/20180608/secrets", "/20180608/secrets/{secret_id}"
#: Stages of the only version whose value is kept (OCI).
_STAGES = ("CURRENT", "LATEST")


class SecretContent(Wire, frozen=True, kw_only=True, tag_field="contentType", tag="BASE64"):
    """OCI: Base64SecretContentDetails."""

    content: str | None = None


class CreateSecret(Wire, frozen=True, kw_only=True):
    """OCI: CreateSecretDetails."""

    compartment_id: str
    secret_name: str
    vault_id: str
    secret_content: SecretContent


class UpdateSecret(Wire, frozen=True, kw_only=True):
    """OCI: UpdateSecretDetails."""

    secret_content: SecretContent | None = None


class _Secret(Struct, frozen=True):
    """A secret of a project."""

    project: str
    record: SecretRecord


def vault_ocid(project: str) -> str:
    return ocid("vault", id_of("vault", project))


def get_secret_bundle(request: OciRequest) -> Answer:
    """GET /secretbundles/{secret_id}"""
    return _bundle(request, _find(request))


def get_secret_bundle_by_name(request: OciRequest) -> Answer:
    """POST /secretbundles/actions/getByName"""
    name, vault = request.required("secretName"), request.required("vaultId")
    found = _first(
        request, lambda one: vault_ocid(one.project) == vault and one.record.name == name
    )
    return _bundle(request, found)


def list_secret_bundle_versions(request: OciRequest) -> Answer:
    """GET /secretbundles/{secret_id}/versions"""
    return value_page(request, [_version(_find(request))])


def create_secret(request: OciRequest) -> Answer:
    """POST /secrets"""
    given = request.read(CreateSecret)
    project = request.project_of(given.compartment_id)
    on = variables_of_secret(project, given.secret_name)
    request.require(project, request.permission, on)
    if given.vault_id != vault_ocid(project):
        raise not_found()
    names = {record.name for record in request.store.secrets.listing(project)}
    if given.secret_name in names:
        text = f"There is a secret {given.secret_name!r} in the vault."
        raise OciError(409, "NotAuthorizedOrResourceAlreadyExists", text)
    return _set(request, project, given.secret_name, given.secret_content)


def update_secret(request: OciRequest) -> Answer:
    """PUT /secrets/{secret_id}"""
    secret = _find(request)
    given = request.read(UpdateSecret)
    if given.secret_content is None:
        raise invalid("secretContent is missing: nothing else of a secret can be changed")
    return _set(request, secret.project, secret.record.name, given.secret_content)


def _set(request: OciRequest, project: str, name: str, given: SecretContent) -> Answer:
    """Give a secret a value. Raises OciError, InvalidInput."""
    try:
        value = base64.b64decode(given.content or "", validate=True).decode()
    except ValueError:
        raise invalid("secretContent.content has to be text in UTF-8, as base64") from None
    record = request.accounts(project).set_secret(name, value)
    return _answer(request, _Secret(project, record))


def list_secrets(request: OciRequest) -> Answer:
    """GET /secrets"""
    project = request.project_of(request.required("compartmentId"))
    sees = request.seen(project, request.permission)
    name, vault = request.given("name"), request.given("vaultId")
    listed = request.store.secrets.listing(project)
    found = [one for one in listed if sees(variables_of_secret(project, one.name))]
    if vault not in (None, vault_ocid(project)):
        found = []
    shown = [_shown(request, _Secret(project, one)) for one in found if name in (None, one.name)]
    if request.given("lifecycleState") not in (None, "ACTIVE"):
        shown = []
    return value_page(request, shown)


def get_secret(request: OciRequest) -> Answer:
    """GET /secrets/{secret_id}"""
    return _answer(request, _find(request))


def _answer(request: OciRequest, secret: _Secret) -> Answer:
    current = {"currentVersionNumber": secret.record.version}
    return Answer(encoded(_shown(request, secret) | current))


def _find(request: OciRequest) -> _Secret:
    """The secret in the path, if the caller may see it. Raises OciError, Forbidden."""
    wanted = request.path["secret_id"]
    return _first(request, lambda one: secret_ocid(one.project, one.record.name) == wanted)


def _first(request: OciRequest, fits: Callable[[_Secret], bool]) -> _Secret:
    """The secret that fits, if the caller has the permission that the route needs for it. Raises
    OciError, Forbidden."""
    projects = [DEFAULT_PROJECT, *(one.name for one in request.store.accounts.projects())]
    for project in dict.fromkeys(projects):
        for record in request.store.secrets.listing(project):
            secret = _Secret(project, record)
            if fits(secret):
                on = variables_of_secret(secret.project, record.name)
                request.require(secret.project, request.permission, on)
                return secret
    raise not_found()


def _bundle(request: OciRequest, secret: _Secret) -> Answer:
    """A secret with its value. Raises OciError."""
    record = secret.record
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

    value = request.act(
        *(secret.project, request.permission, "oci.secrets.read", record.name, read),
        variables_of_secret(secret.project, record.name),
    )
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
        "vaultId": vault_ocid(secret.project),
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
    OciRoute(
        *("get_secret_bundle", "GET", f"{_BUNDLES}/{{secret_id}}", get_secret_bundle),
        permission=Permission.SECRET_BUNDLE_READ,
    ),
    OciRoute(
        "get_secret_bundle_by_name",
        *("POST", f"{_BUNDLES}/actions/getByName", get_secret_bundle_by_name),
        permission=Permission.SECRET_BUNDLE_READ,
    ),
    OciRoute(
        "list_secret_bundle_versions",
        *("GET", f"{_BUNDLES}/{{secret_id}}/versions", list_secret_bundle_versions),
        permission=Permission.SECRET_BUNDLE_INSPECT,
    ),
    OciRoute("list_secrets", "GET", _SECRETS, list_secrets, Permission.SECRET_INSPECT),
    OciRoute("create_secret", "POST", _SECRETS, create_secret, Permission.SECRET_CREATE),
    OciRoute("update_secret", "PUT", _SECRET, update_secret, Permission.SECRET_UPDATE),
    OciRoute("get_secret", "GET", _SECRET, get_secret, Permission.SECRET_READ),
)
