"""Secrets, with the SDK."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from oci.exceptions import ServiceError
from oci.secrets import SecretsClient
from oci.vault import VaultsClient, models

from muster.server.oci.vault import vault_ocid
from muster.spec.ocids import secret_ocid
from muster.store.account_records import AuditFilter
from support.oci_teams import SOUND, VISION, OciTeams


@pytest.fixture(scope="module")
def token(oci: OciTeams) -> str:
    """The OCID of a secret of `vision`, which was set twice."""
    owner = oci.teams.token("anouk")
    for value in ("old", "s3cret"):
        assert oci.teams.request("PUT", "/v1/secrets/GIT", owner, {"value": value}).status == 200
    return secret_ocid("vision", "GIT")


def content(bundle: object) -> str:
    return base64.b64decode(bundle.secret_bundle_content.content).decode()  # type: ignore[attr-defined]


def test_who_may_start_runs_reads_values(oci: OciTeams, token: str) -> None:
    client = oci.client(SecretsClient, "sam")
    bundle = client.get_secret_bundle(token, stage="CURRENT").data
    assert (content(bundle), bundle.version_number) == ("s3cret", 2)
    (secret,) = oci.client(VaultsClient, "sam").list_secrets(VISION, name="GIT").data
    named = client.get_secret_bundle_by_name("GIT", secret.vault_id).data
    assert content(named) == "s3cret"
    assert client.get_secret_bundle(token, version_number=2).data.secret_id == token
    (version,) = client.list_secret_bundle_versions(token).data
    assert version.version_number == 2
    entries = oci.teams.backend.store.audit.listing(AuditFilter(project="vision"))
    read = [entry for entry in entries if entry.action == "oci.secrets.read"]
    assert {(entry.user, entry.object) for entry in read} == {("sam", "GIT")}


def test_viewers_see_that_there_is_a_secret(oci: OciTeams, token: str) -> None:
    vaults = oci.client(VaultsClient, "vera")
    (found,) = vaults.list_secrets(VISION).data
    assert (found.id, found.secret_name, found.lifecycle_state) == (token, "GIT", "ACTIVE")
    assert vaults.get_secret(token).data.current_version_number == 2
    with pytest.raises(ServiceError) as refused:
        oci.client(SecretsClient, "vera").get_secret_bundle(token)
    assert (refused.value.status, refused.value.code) == (404, "NotAuthorizedOrNotFound")


def test_others_see_none(oci: OciTeams, token: str) -> None:
    for user in ("oscar", "nora"):
        vaults, secrets = oci.client(VaultsClient, user), oci.client(SecretsClient, user)
        for call in (vaults.get_secret, secrets.get_secret_bundle):
            with pytest.raises(ServiceError) as refused:
                call(token)
            assert refused.value.status == 404
        with pytest.raises(ServiceError):
            vaults.list_secrets(VISION)
    assert oci.client(VaultsClient, "oscar").list_secrets(SOUND).data == []


def test_earlier_values_are_gone(oci: OciTeams, token: str) -> None:
    client = oci.client(SecretsClient)
    for choice in ({"version_number": 1}, {"stage": "PREVIOUS"}, {"secret_version_name": "x"}):
        with pytest.raises(ServiceError) as refused:
            client.get_secret_bundle(token, **choice)
        assert refused.value.status == 404
    with pytest.raises(ServiceError):
        client.get_secret_bundle(secret_ocid("vision", "OTHER"))


def details(value: bytes = b"first", name: str = "API", **given: Any) -> models.CreateSecretDetails:
    text = models.Base64SecretContentDetails(content=base64.b64encode(value).decode())
    fields = {"compartment_id": VISION, "vault_id": vault_ocid("vision"), "key_id": "k"}
    return models.CreateSecretDetails(
        **{**fields, "secret_name": name, "secret_content": text, **given}
    )


def test_secrets_are_created_and_get_new_values(oci: OciTeams) -> None:
    vaults, secrets = oci.client(VaultsClient), oci.client(SecretsClient)
    made = vaults.create_secret(details()).data
    assert (made.id, made.current_version_number) == (secret_ocid("vision", "API"), 1)
    assert content(secrets.get_secret_bundle(made.id).data) == "first"
    with pytest.raises(ServiceError) as refused:
        vaults.create_secret(details())
    assert (refused.value.status, refused.value.code) == (
        *(409, "NotAuthorizedOrResourceAlreadyExists"),
    )
    new = models.UpdateSecretDetails(secret_content=details(b"second").secret_content)
    assert vaults.update_secret(made.id, new).data.current_version_number == 2
    assert content(secrets.get_secret_bundle(made.id).data) == "second"
    (listed,) = [
        one for one in oci.teams.backend.store.secrets.listing("vision") if one.name == "API"
    ]
    assert listed.version == 2


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        (details(b"\xff", "BYTES"), 400, "UTF-8"),
        (details(name="no name"), 400, "no name"),
        (details(vault_id=vault_ocid("sound")), 404, "not found"),
        (details(compartment_id=SOUND), 404, "not found"),
    ],
)
def test_secrets_that_cannot_be_created(
    oci: OciTeams, given: models.CreateSecretDetails, status: int, text: str
) -> None:
    with pytest.raises(ServiceError, match=text) as refused:
        oci.client(VaultsClient).create_secret(given)
    assert refused.value.status == status


def test_an_update_without_a_value_is_refused(oci: OciTeams, token: str) -> None:
    changes = models.UpdateSecretDetails(description="d")
    with pytest.raises(ServiceError, match="secretContent is missing") as refused:
        oci.client(VaultsClient).update_secret(token, changes)
    assert refused.value.status == 400
