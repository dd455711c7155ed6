"""Real parts for image builds: a base image made of the running Python, a registry on loopback,
and a package index with a password."""

from __future__ import annotations

import base64
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
from packaging.utils import canonicalize_name

from support.servers import serving

#: Not needed to install packages and run programs, and large.
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idlelib", "tkinter", "site-packages", "config-*", "*.a"
)
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
_TOOLS = ("sh", "cat", "ls", "env", "mkdir", "rm", "chmod", "hostname")
#: Libraries that manylinux wheels expect besides the C library.
_EXPECTED = tuple(
    f"lib{name}"
    for name in ("gcc_s.so.1", "stdc++.so.6", "pthread.so.0", "dl.so.2", "rt.so.1", "m.so.6",
                 "util.so.1", "nss_dns.so.2", "nss_files.so.2")
)  # fmt: skip
_PREFIX = "usr/local"


def make_root(root: Path) -> None:
    """The smallest root folder with this Python and its pip: interpreter, standard library, a few
    tools and the libraries all these need."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = root / _PREFIX / "lib" / version
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=_LEFT_OUT)
    pip = importlib.util.find_spec("pip")
    assert pip is not None
    assert pip.origin is not None
    shutil.copytree(Path(pip.origin).parent, library / "site-packages" / "pip")
    python = root / _PREFIX / "bin" / version
    python.parent.mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), python)
    (python.parent / "python3").symlink_to(version)
    (root / "bin").mkdir()
    for tool in _TOOLS:
        found = shutil.which(tool, path="/bin:/usr/bin")
        assert found is not None, tool
        shutil.copy2(Path(found).resolve(), root / "bin" / tool)
    for program in (python, *(root / "bin").iterdir(), *library.glob("lib-dynload/*.so")):
        _copy_libraries(program, root)
    for folder in ("tmp", "root", "proc", "sys", "dev", "etc", "run", "var/tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")


def _copy_libraries(program: Path, root: Path) -> None:
    listed = subprocess.run(["ldd", program], check=False, capture_output=True, text=True).stdout
    paths = {Path(found) for found in _LIBRARY.findall(listed)}
    near = {path.parent / name for path in paths for name in _EXPECTED}
    for path in paths | {path for path in near if path.exists()}:
        target = root / str(path).lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path.resolve(), target)


def builder_environment(folder: Path) -> dict[str, str]:
    """Separate storage for tests, and settings for containers and small machines."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    driver = "overlay" if os.geteuid() == 0 else "vfs"
    storage = f'[storage]\ndriver = "{driver}"\ngraphroot = "{folder}/graph"\n'
    (folder / "storage.conf").write_text(f'{storage}runroot = "{folder}/runroot"\n')
    limits = f'["nofile={files}:{files}","nproc=32768:32768"]'
    runtime = next((name for name in ("runc", "crun") if shutil.which(name)), "runc")
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = {limits}\n[engine]\nruntime = "{runtime}"\n'
    )
    return {
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "BUILDAH_ISOLATION": "chroot",
    }


@contextmanager
def registry(folder: Path, *, closed: bool = False) -> Iterator[str]:
    """A registry on loopback; yields HOST:PORT. Skips the test if it is not installed.

    closed: it requires a login.
    """
    program = shutil.which("docker-registry") or shutil.which("registry")
    if program is None:
        pytest.skip("no docker-registry on PATH (apt-get install docker-registry)")
    config = folder / f"registry-{closed}.yml"
    login = f"auth: {{htpasswd: {{realm: tests, path: {folder}/users}}}}\n" if closed else ""
    config.write_text(
        "version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/registry}}}}\n"
        f'http: {{addr: "127.0.0.1:0"}}\n{login}'
    )
    with subprocess.Popen(
        [program, "serve", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                found = re.search(r"listening on (127\.0\.0\.1:\d+)", line)
                if found is not None:
                    Thread(target=process.stderr.read, daemon=True).start()
                    yield found[1]
                    return
            pytest.fail("the registry ended before it listened")
        finally:
            process.terminate()


class Index(NamedTuple):
    """A package index at `address` (HOST:PORT), with the paths requested with (`served`) and
    without (`refused`) the password."""

    address: str
    served: list[str]
    refused: list[str]


@contextmanager
def index(wheels: Path, user: str, password: str) -> Iterator[Index]:
    """A package index (PEP 503) that requires the password."""
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    served: list[str] = []
    refused: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == expected
            (served if known else refused).append(self.path)
            body = _answer(wheels, self.path) if known else b""
            self.send_response(401 if not known else 200 if body else 404)
            self.send_header("WWW-Authenticate", 'Basic realm="packages"')
            kind = "application/octet-stream" if self.path.endswith(".whl") else "text/html"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield Index(f"127.0.0.1:{server.server_port}", served, refused)


def _answer(wheels: Path, path: str) -> bytes:
    parts = path.partition("#")[0].strip("/").split("/")
    file = wheels / parts[-1]
    return file.read_bytes() if parts[0] == "files" and file.is_file() else _page(wheels, parts[-1])


def _page(wheels: Path, project: str) -> bytes:
    names = [
        path.name
        for path in sorted(wheels.iterdir())
        if canonicalize_name(path.name.partition("-")[0]) == canonicalize_name(project)
    ]
    links = "".join(f'<a href="/files/{name}">{name}</a>\n' for name in names)
    return f"<!DOCTYPE html><html><body>{links}</body></html>".encode() if names else b""
