"""Hosts that act as themselves, with the SDK's own signer of instance principals."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import requests
from msgspec import json, structs
from oci.auth.signers import InstancePrincipalsSecurityTokenSigner
from oci.exceptions import ServiceError
from oci.object_storage import ObjectStorageClient
from oci.object_storage import models as storage
from oci.retry import NoneRetryStrategy

from muster.errors import InvalidInput
from muster.identity import new_id
from muster.server import certificate_renewal
from muster.server.certificate_renewal import keep_renewed, renew
from muster.server.metadata import PREFIX, metadata_server
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from muster.storage.instances import OVERLAP, Instance, instances, register, remove
from muster.store.policy_records import DynamicGroupRecord, PolicyRecord
from support.faults import until
from support.oci_teams import VISION, From, OciTeams, oci_teams
from support.server_thread import ONE_USER
from support.servers import serving


@pytest.fixture(scope="module")
def server() -> Iterator[OciTeams]:
    with oci_teams(ONE_USER) as made:
        details = storage.CreateBucketDetails(name="data", compartment_id=VISION)
        made.client(ObjectStorageClient, "anouk").create_bucket("muster", details)
        yield made


class Host:
    """A registered host, with its metadata service."""

    def __init__(self, server: OciTeams, folder: Path, name: str) -> None:
        self.server, self.folder, self.name = server, folder, name
        self.home = server.teams.backend.home
        self.record = self.register()

    def register(self, networks: Sequence[str] = ()) -> Instance:
        given = ("vision", "anouk", self.folder, "muster.invalid", TENANCY, networks)
        return register(self.home, self.name, *given)

    def signer(self) -> Any:
        return InstancePrincipalsSecurityTokenSigner(
            federation_endpoint=f"{self.server.url}/v1/x509",
            federation_client_retry_strategy=NoneRetryStrategy(),
        )

    def objects(self, signer: Any, source: str = "127.0.0.1") -> int:
        """The status of a list of objects. source: the address that it is asked for from."""
        client = ObjectStorageClient(
            {},
            signer=signer,
            service_endpoint=self.server.url,
            retry_strategy=NoneRetryStrategy(),
        )
        client.base_client.session.mount("http://", From(source))
        return status(lambda: client.list_objects("muster", "data"))

    def allow(self) -> None:
        """Have it list objects."""
        who = f"request.principal.id = '{self.record.id}'"
        statement = "Allow any-user to read objects in compartment vision where"
        allow(self.server, f"{statement} {who}")

    def renew(self) -> None:
        renew(self.folder, self.server.url)

    def pass_overlap(self) -> None:
        """As if the certificate had been replaced some time ago."""
        file = self.home.root / "instances" / f"{self.name}.json"
        found = json.decode(file.read_bytes(), type=Instance)
        past = found.replaced_at - OVERLAP
        file.write_bytes(json.encode(structs.replace(found, replaced_at=past)))

    def certificate(self) -> bytes:
        return (self.folder / "cert.pem").read_bytes()


def status(call: Callable[[], Any]) -> int:
    try:
        call()
    except ServiceError as error:
        return int(error.status)
    return 200


@pytest.fixture
def host(server: OciTeams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    made = Host(server, tmp_path / "host", f"host-{new_id()}")
    with serving_metadata(made.folder, monkeypatch):
        yield made


def serving_metadata(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    service = metadata_server(folder, 0)
    url = f"http://127.0.0.1:{service.server_address[1]}{PREFIX}"
    monkeypatch.setenv("OCI_METADATA_BASE_URL", url)
    return serving(service)


def allow(server: OciTeams, statement: str) -> None:
    """Add a policy to the tenancy."""
    now = time.time()
    server.teams.backend.store.policies.create_policy(
        PolicyRecord(
            id=new_id(),
            name=f"policy-{new_id()}",
            compartment="default",
            description="",
            version=1,
            statements=(statement,),
            created_at=now,
            created_by="root",
            updated_at=now,
            updated_by="root",
        )
    )
    server.teams.backend.policies_changed()


def test_a_host_does_what_policies_say_of_it(host: Host, server: OciTeams) -> None:
    signer = host.signer()
    assert host.objects(signer) == 404, "deny by default"
    now = time.time()
    server.teams.backend.store.policies.create_dynamic_group(
        DynamicGroupRecord(
            id=new_id(),
            name=f"group-{host.name}",
            description="",
            version=1,
            rule=f"all {{instance.id = '{host.record.id}', instance.compartment.id = '{VISION}'}}",
            created_at=now,
            created_by="root",
            updated_at=now,
            updated_by="root",
        )
    )
    allow(server, f"Allow dynamic-group group-{host.name} to read objects in compartment vision")
    assert host.objects(signer) == 200
    another = Host(server, host.folder.parent / "another", f"host-{new_id()}")
    assert instances(another.home)[-1].project == "vision"


def test_all_hosts_of_a_project(host: Host, server: OciTeams) -> None:
    allow(
        server,
        "Allow any-user to read objects in compartment vision where all "
        f"{{request.principal.type = 'instance', request.principal.id = '{host.record.id}'}}",
    )
    assert host.objects(host.signer()) == 200


def test_a_host_that_was_removed_or_registered_again(host: Host, server: OciTeams) -> None:
    allow(
        server,
        "Allow any-user to read objects in compartment vision where "
        f"request.principal.id = '{host.record.id}'",
    )
    first = host.signer()
    assert host.objects(first) == 200
    former = {file.name: file.read_bytes() for file in host.folder.iterdir()}
    assert host.register().id == host.record.id
    assert host.objects(host.signer()) == 200
    for name, content in former.items():
        (host.folder / name).write_bytes(content)
    with pytest.raises(ServiceError) as refused:
        host.signer()
    assert refused.value.status == 401
    assert "has another certificate by now" in server.teams.log.getvalue()
    host.register()
    remove(host.home, host.name)
    with pytest.raises(ServiceError):
        host.signer()
    assert f"there is no instance '{host.name}'" in server.teams.log.getvalue()


def test_a_renewed_certificate(host: Host, server: OciTeams) -> None:
    """No request fails, and a copy of the former one is of no use soon."""
    host.allow()
    before, former = host.signer(), host.certificate()
    host.renew()
    assert host.certificate() != former
    assert host.objects(before) == 200
    after = host.signer()
    assert (host.objects(before), host.objects(after)) == (200, 200)
    renewed = host.certificate()
    (host.folder / "cert.pem").write_bytes(former)
    assert host.objects(host.signer()) == 200, "a client that has read it just before"
    with pytest.raises(OSError, match="answers 401"):
        host.renew()
    host.pass_overlap()
    with pytest.raises(ServiceError) as refused:
        host.signer()
    assert refused.value.status == 401
    until(lambda: host.objects(before) == 401, "its tokens are of no use", 30)
    assert "has another certificate by now" in server.teams.log.getvalue()
    assert host.objects(after) == 200
    (host.folder / "cert.pem").write_bytes(renewed)
    host.renew()
    assert host.objects(host.signer()) == 200


def test_a_renewed_certificate_that_has_not_arrived(host: Host) -> None:
    host.allow()
    former = host.certificate()
    host.renew()
    lost = host.certificate()
    (host.folder / "cert.pem").write_bytes(former)
    assert host.objects(host.signer()) == 200
    host.renew()
    assert host.certificate() == lost, "it is sent again"
    assert host.objects(host.signer()) == 200


def test_certificates_that_are_renewed_before_a_token_is_asked_for(host: Host) -> None:
    """The host has the second one, and the third has not arrived."""
    host.allow()
    host.renew()
    second = host.certificate()
    host.renew()
    third = host.certificate()
    assert third != second
    (host.folder / "cert.pem").write_bytes(second)
    assert host.objects(host.signer()) == 200
    host.renew()
    assert host.certificate() == third
    assert host.objects(host.signer()) == 200


def test_a_host_that_is_registered_again_while_its_certificate_is_renewed(host: Host) -> None:
    host.renew()
    renewed = {file.name: file.read_bytes() for file in host.folder.iterdir()}
    host.register()
    for name, content in renewed.items():
        (host.folder / name).write_bytes(content)
    with pytest.raises(OSError, match="answers 401"):
        host.renew()
    with pytest.raises(ServiceError):
        host.signer()


def test_a_certificate_is_renewed_in_time(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    first, stop, said = host.certificate(), Event(), list[str]()
    given = (host.folder, host.server.url, stop, said.append)
    monkeypatch.setattr(certificate_renewal, "RENEWED_AFTER", 0.0)
    monkeypatch.setattr(certificate_renewal, "_RETRY_PAUSE", 0.01)
    renewing = Thread(target=keep_renewed, args=given)
    renewing.start()
    try:
        until(lambda: host.certificate() != first, "it is renewed")
        assert said == []
        remove(host.home, host.name)
        until(lambda: said, "it cannot be renewed")
    finally:
        stop.set()
        renewing.join()
    assert said[0] == (
        "the certificate cannot be renewed yet: the server answers 401: its log says why"
    )


def test_a_host_that_can_be_used_from_its_address_alone(host: Host, server: OciTeams) -> None:
    host.allow()
    assert host.register(["127.0.0.1", "10.1.0.0/16"]).networks == ("127.0.0.1/32", "10.1.0.0/16")
    signer = host.signer()
    assert host.objects(signer) == 200
    assert host.objects(signer, "127.0.0.2") == 401
    assert host.objects(signer) == 200
    host.register(["10.1.0.0/16"])
    with pytest.raises(ServiceError) as refused:
        host.signer()
    assert refused.value.status == 401
    told = server.teams.log.getvalue()
    only = f"instance {host.name} was used from 127.0.0.2, and can only be used from 127.0.0.1/32"
    assert only in told
    with pytest.raises(OSError, match="answers 401"):
        host.renew()
    with pytest.raises(InvalidInput, match="--address"):
        host.register(["10.1.0.0/8"])


def test_addresses_of_a_host() -> None:
    made = Instance("ocid1", "a", "vision", "anouk", "1", ("10.1.0.0/16", "fd00::/8"))
    places = ("10.1.2.3", "::ffff:10.1.2.3", "fd00::7", "10.2.0.1", "", "x")
    assert [made.is_at(one) for one in places] == [True, True, True, False, False, False]


def test_a_certificate_with_the_key_of_another_one(host: Host, server: OciTeams) -> None:
    other = Host(server, host.folder.parent / "other", f"host-{new_id()}")
    (host.folder / "key.pem").write_bytes((other.folder / "key.pem").read_bytes())
    with pytest.raises(ServiceError) as refused:
        host.signer()
    assert refused.value.status == 401


def test_a_certificate_of_another_authority(host: Host, tmp_path: Path, server: OciTeams) -> None:
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.prepare()
    register(elsewhere, host.name, "vision", "anouk", host.folder, "muster.invalid", TENANCY)
    with pytest.raises(ServiceError) as refused:
        host.signer()
    assert refused.value.status == 401
    assert "was not issued by this server" in server.teams.log.getvalue()


def test_the_metadata_service_wants_its_header(host: Host) -> None:
    url = os.environ["OCI_METADATA_BASE_URL"]
    assert requests.get(f"{url}/identity/key.pem", timeout=30).status_code == 401
    given = {"Authorization": "Bearer Oracle"}
    shown = requests.get(f"{url}/instance/", headers=given, timeout=30).json()
    assert (shown["id"], shown["compartmentId"]) == (host.record.id, VISION)
    assert requests.get(f"{url}/../etc", headers=given, timeout=30).status_code == 404
