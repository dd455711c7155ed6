"""A server with a domain: real clients of OCI find its services by a region, over TLS."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.server.certificate_renewal import renew
from muster.server.metadata import PREFIX, metadata_server
from muster.server.oci.names import certificate_names
from support.servers import serving

DOMAIN = "muster.test"
#: Resolves every name below the domain to this machine, as DNS would.
CLIENT = f"""
import socket
real = socket.getaddrinfo
def resolve(host, *rest, **more):
    return real("127.0.0.1" if str(host).endswith({DOMAIN!r}) else host, *rest, **more)
socket.getaddrinfo = resolve
import oci
config = oci.config.from_file()
oci.config.validate_config(config)
tenancy = config["tenancy"]
science = oci.data_science.DataScienceClient(config)
made = science.create_project(
    oci.data_science.models.CreateProjectDetails(compartment_id=tenancy, display_name="first")
)
print(science.base_client.endpoint)
print([one.display_name for one in science.list_projects(tenancy).data])
logging = oci.logging.LoggingManagementClient(config)
print(logging.base_client.endpoint, logging.list_log_groups(tenancy).data)
"""


@pytest.mark.parametrize(
    "domain", ["", "nodot", "a..b", "-a.b", "a.1", "x" * 201 + ".de", "a_b.de"]
)
def test_what_is_no_domain(domain: str) -> None:
    with pytest.raises(InvalidInput, match="is not a domain"):
        certificate_names(domain)


def test_names_of_the_certificate() -> None:
    assert certificate_names("Jobs.example.org") == [
        "jobs.example.org",
        "*.jobs.example.org",
        "*.logging.jobs.example.org",
        "*.vaults.jobs.example.org",
    ]


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: int = listener.getsockname()[1]
        return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    (made / "server.toml").write_text("separate_owners = false\n")
    return made


def muster(home: Path, *words: str) -> str:
    environ = {**os.environ, "MUSTER_HOME": str(home), "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "muster", *words],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def server(home: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    given = ("--port", str(port), "--oci-domain", DOMAIN)
    process = subprocess.Popen(
        [sys.executable, "-m", "muster", "server", *given],
        env={**os.environ, "MUSTER_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == f"muster serves {home} at https://127.0.0.1:{port}\n"
    yield process
    process.terminate()
    process.communicate()


@pytest.mark.usefixtures("server")
def test_the_sdk_needs_only_its_profile(home: Path, port: int) -> None:
    pytest.importorskip("oci")
    file = home / ".oci" / "config"
    file.parent.mkdir()
    file.write_text("# mine\n[DEFAULT]\nuser=me\n")
    made = json.loads(muster(home, "oci-config", "--json"))
    assert made["region"] == f"{DOMAIN}:{port}"
    assert f"datascience.{DOMAIN}" in made["hosts"]
    assert file.read_text().startswith("# mine\n[DEFAULT]\nuser=me\n\n[MUSTER]\n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert Path(made["key_file"]).stat().st_mode & 0o777 == 0o600
    client = CLIENT.replace("from_file()", f"from_file({str(file)!r}, 'MUSTER')")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", client],
        env={**os.environ, "REQUESTS_CA_BUNDLE": made["ca"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"https://datascience.{DOMAIN}:{port}/20190101",
        "['first']",
        f"https://logging.{DOMAIN}:{port}/20200531 []",
    ]
    again = json.loads(muster(home, "oci-config", "--json"))
    assert again == made  # nothing is added twice
    assert len(json.loads(muster(home, "users", "keys", "list", "--json"))) == 1


def test_the_first_login_trusts_the_servers_authority(
    server: subprocess.Popen[str], home: Path, tmp_path: Path
) -> None:
    assert server.stdout is not None and server.stderr is not None
    assert "administers the server" in server.stderr.readline()
    token = server.stdout.readline()
    command = server.stderr.readline().removeprefix("log in with it: muster ").split()
    assert command[-2:] == ["--ca", str(home / "oci-certificate" / "ca.pem")]
    done = subprocess.run(
        [sys.executable, "-m", "muster", *command, "--token-stdin"],
        env={**os.environ, "MUSTER_HOME": str(tmp_path / "laptop")},
        input=token,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


#: As OCI's documentation has it.
SESSION = """
import oci
config = oci.config.from_file(FILE, "MUSTER")
key = oci.signer.load_private_key_from_file(config["key_file"])
token = open(config["security_token_file"]).read()
signer = oci.auth.signers.SecurityTokenSigner(token, key)
client = oci.data_science.DataScienceClient({}, signer=signer, service_endpoint=URL)
print(client.list_projects(config["tenancy"]).data)
"""


@pytest.mark.usefixtures("server")
def test_a_session(home: Path, port: int) -> None:
    pytest.importorskip("oci")
    made = json.loads(muster(home, "oci-config", "--auth", "security_token", "--json"))
    assert json.loads(muster(home, "users", "keys", "list", "--json")) == []
    url = f"https://127.0.0.1:{port}"
    program = SESSION.replace("FILE", repr(made["file"])).replace("URL", repr(url))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "REQUESTS_CA_BUNDLE": made["ca"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    printed = muster(home, "oci-config", "--auth", "security_token").splitlines()
    assert "export OCI_CLI_AUTH=security_token" in printed


#: A host that is registered as an instance. The environment says where its metadata service is.
INSTANCE = f"""
import socket
real = socket.getaddrinfo
def resolve(host, *rest, **more):
    return real("127.0.0.1" if str(host).endswith({DOMAIN!r}) else host, *rest, **more)
socket.getaddrinfo = resolve
import oci
signer = oci.auth.signers.InstancePrincipalsSecurityTokenSigner()
print(signer.federation_client.federation_endpoint)
client = oci.object_storage.ObjectStorageClient({{}}, signer=signer)
print(client.list_buckets("muster", signer.tenancy_id).data)
"""


@pytest.mark.usefixtures("server")
def test_a_host_finds_the_service_that_gives_tokens(home: Path, port: int, tmp_path: Path) -> None:
    """By its region alone, and with its renewed certificate."""
    pytest.importorskip("oci")
    folder, user = tmp_path / "gpu-7", json.loads(muster(home, "users", "list", "--json"))[0]
    muster(home, "server", "instance", "add", "gpu-7", str(folder), "--user", user["name"])
    statement = (
        "Allow any-user to manage buckets in tenancy where request.principal.type='instance'"
    )
    muster(home, "iam", "policies", "create", "hosts", statement)

    def lists_buckets() -> None:
        with metadata_server(folder, 0) as service, serving(service):
            metadata = f"http://127.0.0.1:{service.server_address[1]}{PREFIX}"
            own = {"OCI_METADATA_BASE_URL": metadata, "REQUESTS_CA_BUNDLE": str(folder / "ca.pem")}
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", INSTANCE],
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [f"https://auth.{DOMAIN}:{port}/v1/x509", "[]"]

    lists_buckets()
    first = (folder / "cert.pem").read_bytes()
    renew(folder, f"https://localhost:{port}")
    assert (folder / "cert.pem").read_bytes() != first
    lists_buckets()
