"""What a server fetches for its users is not in its own network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from muster.storage.private_addresses import is_public, private_sources
from muster.storage.sync_process import REFUSED, Access, sync_process
from support.servers import serving

#: 127.0.0.1 is the public internet here.
PUBLIC_LOOPBACK = """
import sys
from muster.storage import private_addresses, sync
private_addresses.is_public = "127.0.0.1".__eq__
sys.exit(sync.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("0.0.0.0", False),
        ("169.254.169.254", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("::ffff:169.254.169.254", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("::7f00:1", False),
        ("::ffff:0:127.0.0.1", False),
        ("64:ff9b:1::a9fe:a9fe", False),
        ("fec0::1", False),
        ("5f00::1", False),
        ("3fff::1", False),
        ("192.0.0.8", False),
        ("localhost", False),
    ],
)
def test_addresses_of_the_public_internet(address: str, public: bool) -> None:
    assert is_public(address) == public


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("http://169.254.169.254/latest", "it leads to an address of the server's own network"),
        ("http://localhost/x", "own network"),
        ("http://127.1/x", "own network"),
        ("http://[::1]:80/x", "own network"),
        ("HTTP://0x7f000001/x", "own network"),
        ("sftp://me:hunter2@10.0.0.1/x", "sftp://me@10.0.0.1/x: it leads"),
        ("zip://*.csv::http://192.168.0.1/a.zip", "own network"),
        ("hdfs://namenode/x", "cannot check where hdfs:// leads"),
        ("s3://bucket/x", ""),
        ("http://93.184.216.34/x", ""),
        ("http://nowhere.invalid/x", ""),
        ("volume:data", ""),
    ],
)
def test_urls_are_checked_before_they_are_fetched(source: str, found: str) -> None:
    text = "\n".join(map(str, private_sources({source: "mounts[0].source"})))
    assert found in text if found else not text
    assert not text or "allow_private_addresses in server.toml" in text


class Redirecting(BaseHTTPRequestHandler):
    """To another host."""

    target = ""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.target)
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[int]:
    """The port of a server of the machine."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_text("word")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    server = ThreadingHTTPServer(("0.0.0.0", 0), handler)
    with serving(server):
        yield server.server_port


def fetch(
    url: str, folder: Path, program: str | None = None, own: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    access = Access({**os.environ, **more}, public_only=True, own_storage=own)
    argv, environ = sync_process("need", folder, url, access)
    if program is not None:
        argv = [sys.executable, "-c", program, *argv[4:]]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_an_address_of_the_machine_is_not_fetched(inner: int, tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost"):
        done = fetch(f"http://{host}:{inner}/file", tmp_path / "folder")
        assert done.returncode == REFUSED
        assert "it leads to an address of the server's own network: " in done.stderr
    assert [*(tmp_path / "folder").iterdir()] == []


def test_the_objects_of_the_server_itself_are(inner: int, tmp_path: Path) -> None:
    own, connect = f"localhost:{inner}", "import socket\nfrom muster.storage import sync\n"
    connect += "def run(url, copy): socket.create_connection(url.split('//')[1].split(':'))\n"
    connect += "sync._run = run\nsync.main(['need', '/tmp'])\n"
    assert fetch(f"oci://127.0.0.1:{inner}", tmp_path, connect, own=own).returncode == 0
    for url in (f"http://127.0.0.1:{inner}", f"oci://127.0.0.2:{inner}", "oci://127.0.0.1:1"):
        done = fetch(url, tmp_path, connect, own=own)
        assert "is not an address of the public internet" in done.stderr


def test_nor_does_a_redirect_lead_there(inner: int, tmp_path: Path) -> None:
    class ToInner(Redirecting):
        target = f"http://127.0.0.2:{inner}/file"

    outer = ThreadingHTTPServer(("127.0.0.1", 0), ToInner)
    with serving(outer):
        direct = fetch(f"http://127.0.0.1:{inner}/file", tmp_path / "a", PUBLIC_LOOPBACK)
        url = f"http://127.0.0.1:{outer.server_port}/file"
        redirected = fetch(url, tmp_path / "b", PUBLIC_LOOPBACK)
    assert direct.returncode == 0, direct.stderr
    assert (tmp_path / "a" / "file").read_text() == "word"
    assert redirected.returncode == REFUSED
    assert redirected.stderr.endswith("the server's own network: 127.0.0.2\n")
    assert [*(tmp_path / "b").iterdir()] == []


def test_code_of_the_submitter_is_not_run(tmp_path: Path) -> None:
    """It could connect anywhere."""
    called, home = tmp_path / "called", tmp_path / "home"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = home / ".local" / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "usercustomize.py").write_text(f"open({str(called)!r}, 'w')")
    config = home / "config"
    config.write_text(f"[default]\ncredential_process = touch {called}\n")
    variables = {"HOME": str(home), "AWS_CONFIG_FILE": str(config), "PYTHONUSERBASE": str(site)}
    done = fetch("s3://bucket/x", tmp_path / "folder", **variables)
    assert done.returncode == 1
    assert "a server starts no programs to copy files" in done.stderr
    assert not called.exists()
