"""The process that carries a node server's connections, over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.node import tunnel
from muster.node.tunnel import End, Unavailable
from muster.node.tunnel_process import LinkedObjects, Place
from support.faults import until
from support.oci_service import OciService

FOLDER = "messages/muster/r1/"
#: Prints where it listens, and ends the process of the tunnel when its input does.
PROGRAM = """\
import sys
from muster.node import tunnel_process
from muster.node.tunnel_process import Place, TunnelProcess

tunnel_process._SESSION_PAUSE = 0.05
process = TunnelProcess(Place(sys.argv[1], sys.argv[2]))
print(process.address, flush=True)
sys.stdin.read()
process.close()
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciService]:
    with OciService(tmp_path_factory.mktemp("oci")).serving() as made:
        made.storage.links["s"] = {"objectName": FOLDER}
        yield made


@pytest.fixture
def objects(service: OciService) -> Iterator[LinkedObjects]:
    service.storage.refuses = 0
    service.storage.objects.clear()
    made = LinkedObjects(link(service))
    yield made
    made.close()


def link(service: OciService, secret: str = "s") -> str:
    return f"{service.url}/p/{secret}/n/team/b/jobs/o/"


def test_objects_are_written_and_read(objects: LinkedObjects) -> None:
    assert objects.get(f"{FOLDER}a") is None
    objects.put(f"{FOLDER}a", b"\0content")
    assert objects.get(f"{FOLDER}a") == b"\0content"


def test_only_the_folder_of_the_url_is_reached(objects: LinkedObjects) -> None:
    with pytest.raises(Unavailable, match=r"answers PUT with 404: its pre-authenticated request"):
        objects.put("messages/muster/r2/a", b"")


def test_no_more_is_read_than_a_part_may_have(objects: LinkedObjects) -> None:
    objects.put(f"{FOLDER}large", bytes(3 * tunnel.MAX_PART))
    found = objects.get(f"{FOLDER}large")
    assert found is not None and len(found) == tunnel.MAX_PART + 1
    objects.put(f"{FOLDER}full", bytes(tunnel.MAX_PART))
    assert objects.get(f"{FOLDER}full") == bytes(tunnel.MAX_PART)


def test_a_bucket_that_fails_says_how(service: OciService, objects: LinkedObjects) -> None:
    service.storage.refuses = 503
    for call in (lambda: objects.put("a", b""), lambda: objects.get("a")):
        with pytest.raises(Unavailable, match="with 503"):
            call()


def test_a_connection_that_the_service_has_closed_is_made_again(tmp_path: Path) -> None:
    service = OciService(tmp_path)
    service.storage.links["s"] = {"objectName": FOLDER}
    with service.serving():
        objects = LinkedObjects(link(service))
        objects.put(f"{FOLDER}a", b"1")
        service.drop_connections()
        assert objects.get(f"{FOLDER}a") == b"1"
    service.drop_connections()
    with pytest.raises(Unavailable, match="does not answer"):
        objects.get(f"{FOLDER}a")
    objects.close()


@pytest.fixture
def dial(service: OciService, objects: LinkedObjects) -> Iterator[Callable[[], socket.socket]]:
    """Connects to a process that carries connections, which ends afterwards."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, link(service), FOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition(":")
        yield lambda: socket.create_connection((host, int(port)), 120)
        process.stdin.close()
        assert process.wait(120) == 0


def test_it_hangs_up_while_there_is_no_supervisor(dial: Callable[[], socket.socket]) -> None:
    with dial() as sock:
        assert sock.recv(1) == b""


def test_it_carries_what_a_node_server_says(
    dial: Callable[[], socket.socket], service: OciService, objects: LinkedObjects
) -> None:
    objects.put(tunnel.supervisor_name(FOLDER), b"s1")
    up, down = tunnel.up_folder(FOLDER, "s1"), tunnel.down_folder(FOLDER, "s1")
    with dial() as sock:
        sock.sendall(b"hello")
        until(lambda: any(name.startswith(up) for name in [*service.storage.objects]), "it came")
        [name] = [name for name in service.storage.objects if name.startswith(up)]
        connection = name.removeprefix(up).partition("/")[0]
        here, there = socket.socketpair()
        end = End(there, objects, connection, down, up, lambda: True, lambda _why: None)
        carrying = threading.Thread(target=end.run)
        carrying.start()
        here.settimeout(120)
        assert here.recv(100) == b"hello"
        here.sendall(b"welcome")
        assert sock.recv(100) == b"welcome"
    assert here.recv(100) == b"", "its end has arrived"
    here.close()
    carrying.join(120)


def test_it_hangs_up_when_there_is_another_supervisor(
    dial: Callable[[], socket.socket], service: OciService, objects: LinkedObjects
) -> None:
    objects.put(tunnel.supervisor_name(FOLDER), b"s1")
    with dial() as sock:
        sock.sendall(b"hello")
        up = tunnel.up_folder(FOLDER, "s1")
        until(lambda: any(name.startswith(up) for name in [*service.storage.objects]), "it came")
        objects.put(tunnel.supervisor_name(FOLDER), b"s2")
        assert sock.recv(1) == b""


@pytest.mark.parametrize(
    ("url", "endpoint", "seen"),
    [
        ("http://127.0.0.1:80/p/", "http://host.internal:80", "http://host.internal:80/p/"),
        ("https://localhost:8/p/", "https://host.internal:8", "https://host.internal:8/p/"),
        ("http://127.0.0.1:80/p/", "http://host.internal:81", "http://127.0.0.1:80/p/"),
        ("http://127.0.0.1:80/p/", "https://host.internal:80", "http://127.0.0.1:80/p/"),
        (
            "https://objects.example.com/p/",
            "https://host.internal",
            "https://objects.example.com/p/",
        ),
        ("http://127.0.0.1:80/p/", "", "http://127.0.0.1:80/p/"),
    ],
)
def test_a_server_on_loopback_has_the_name_that_it_gives_nodes(
    url: str, endpoint: str, seen: str
) -> None:
    environ = {"OCI_CLI_ENDPOINT": endpoint} if endpoint else {}
    assert Place(url, FOLDER).seen_from(environ) == Place(seen, FOLDER)
