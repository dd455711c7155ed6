"""The file with which Python runs the node side of Muster where it is not installed."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import muster
from muster import node
from muster.engines import node_program as module
from muster.engines.node_program import node_program, program_key
from muster.node.greeting import PROTOCOL
from muster.node.messages import Ended, HostFacts, Leave, Ready, Started
from muster.node.processes import state_of
from support.agents import launch_data
from support.faults import until
from support.interpreters import python
from support.node_servers import Supervisor, server_pid

SOURCE = Path(node.__file__).parent
VERSION = f"muster-node {muster.__version__} (protocol {PROTOCOL})\n"
#: Packages that modules import when they are imported: programs of the job's environment.
OF_FRAMEWORKS = {"torch", "horovod"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "muster-node.pyz"
    path.write_bytes(node_program())
    path.chmod(0o755)
    return path


@pytest.fixture(params=["3.9", "this"])
def interpreter(request: pytest.FixtureRequest) -> str:
    return sys.executable if request.param == "this" else python(request.param)


def run(*argv: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it in a folder, and with an environment, without Muster."""
    defaults = {"capture_output": True, "text": True, "env": {}, "cwd": "/"}
    done = subprocess.run(list(map(str, argv)), check=False, **(defaults | options))
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("options", [[], ["-I", "-S"]])
def test_it_runs_by_itself(interpreter: str, options: list[str], program: Path) -> None:
    done = run(interpreter, *options, program, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, "")


def test_its_exit_code_is_that_of_the_command(program: Path) -> None:
    done = run(sys.executable, program, "bogus")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "muster-node: unknown command 'bogus'; see `muster-node --help`\n"


def test_it_can_be_called_as_a_program(program: Path) -> None:
    assert program.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    done = run(program, "--version", env={"PATH": os.environ["PATH"]})
    assert done.stdout == VERSION


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8"])
def test_older_interpreters_say_what_is_needed(version: str, program: Path) -> None:
    old = python(version)
    done = run(old, program, "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"muster-node: Python 3.9 or newer is required; {old} is {version}\n"


def test_it_is_small() -> None:
    assert len(node_program()) < 300_000


# --- its modules

IMPORT_ALL = """
import importlib, json, os, sys, types, zipfile
from importlib.machinery import ModuleSpec

program, absent = sys.argv[1], json.loads(sys.argv[2])

class Absent(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})

class Finder:
    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self) if name.split(".")[0] in absent else None
    def create_module(self, spec):
        return Absent(spec.name)
    def exec_module(self, module):
        pass

sys.path.insert(0, program)
sys.meta_path.append(Finder())
names = [n[:-3].replace("/", ".") for n in zipfile.ZipFile(program).namelist() if "/" in n]
for name in names:
    importlib.import_module(name.replace(".__init__", ""))
library = os.path.dirname(os.__file__) + os.sep
places = {}
for name, module in sys.modules.items():
    place = getattr(module, "__file__", None) or ""
    if isinstance(module, Absent):
        places.setdefault("absent", []).append(name)
    elif place.startswith(program + os.sep):
        places.setdefault("program", []).append(name)
    elif place and not place.startswith(library) or "site-packages" in place:
        places.setdefault("other", []).append(place)
json.dump([names, places], sys.stdout)
"""


def test_every_module_can_be_imported(interpreter: str, program: Path) -> None:
    """Each imports only others of the program, and the standard library: nothing else is there, but
    empty modules in place of those of frameworks."""
    absent = json.dumps(sorted(OF_FRAMEWORKS))
    done = run(interpreter, "-I", "-S", "-c", IMPORT_ALL, program, absent)
    assert done.returncode == 0, done.stderr
    names, places = json.loads(done.stdout)
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    modules = {f"muster.node.{path[:-3].replace('/', '.')}" for path in found}
    assert set(names) == modules | {"muster.__init__"}
    assert {name.replace(".__init__", "") for name in names} == set(places.pop("program"))
    assert {name.split(".")[0] for name in places.pop("absent")} == OF_FRAMEWORKS
    assert places == {}


def test_a_module_runs_with_it_as_search_path(interpreter: str, program: Path) -> None:
    argv = [interpreter, "-m", "muster.node.cluster_lifetime", "--help"]
    done = run(*argv, env={"PYTHONPATH": str(program)})
    assert done.stdout.startswith("usage: muster.node.cluster_lifetime "), done.stderr


DECODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from muster.node import messages, records
for record in [*messages._TYPES.values(), messages.ExitReport]:
    assert records._forms(record).keys() == set(record._fields)
data = json.load(sys.stdin)
json.dump(messages.encode(messages.decode(data)), sys.stdout)
"""


def test_it_reads_messages(interpreter: str, program: Path, tmp_path: Path) -> None:
    probe = {"period": 1, "timeout": 1.5, "threshold": 3, "initial_delay": 0, "port": 80}
    launch = launch_data(tmp_path, copies=2, error_files=True, probe=probe, hang_timeout=5.5)
    outputs = {"folder": "/f", "archives": {"": "12", "rank-0": "34"}}
    data = {"type": "restart", "launch": launch, "outputs": outputs}
    done = run(interpreter, "-I", "-S", "-c", DECODE, program, input=json.dumps(data))
    launch["probe"] |= {"command": None, "file": None, "http": None}
    assert json.loads(done.stdout) == data


# --- its bytes


def test_it_serves_a_node(interpreter: str, program: Path, tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "n", program=(interpreter, "-I", "-S", str(program)))
    facts = supervisor.greet().expect(HostFacts)
    assert facts.folder == str(tmp_path / "n")
    supervisor.start(0, "sh", "-c", "echo out; exit 3")
    supervisor.expect(Started)
    supervisor.expect(Ready)
    assert supervisor.expect(Ended).report.exit_code == 3
    output = supervisor.streams.open({"kind": "read", "path": f"{tmp_path}/n/logs/0.out"})
    assert supervisor.collect(output) == b"out\n"
    pid = server_pid(tmp_path / "n")
    supervisor.send(Leave())
    until(lambda: state_of(pid) in ("", "Z"), "the server has left")
    supervisor.disconnect()


def test_the_same_source_gives_the_same_bytes_everywhere(tmp_path: Path) -> None:
    package = tmp_path / "elsewhere" / "muster"
    shutil.copytree(SOURCE.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for number, path in enumerate(sorted(package.rglob("*"))):
        os.utime(path, (number * 10**6, number * 10**6))
        if path.is_file():
            path.chmod(0o700 if number % 2 else 0o604)
    (package / "node" / "__pycache__").mkdir()
    (package / "node" / "__pycache__" / "agent.cpython-311.pyc").write_bytes(b"")
    (package / "node" / ".#agent.py").symlink_to("someone@somewhere")
    (package / "node" / "notes.txt").write_text("")
    changed = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7", "USER": "someone"}
    done = subprocess.run(
        [sys.executable, "-m", "muster", "node-program"],
        check=True,
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, **changed, "PYTHONPATH": str(package.parent)},
        umask=0o077,
    )
    assert done.stdout == node_program()


def test_another_source_gives_other_bytes(tmp_path: Path) -> None:
    package = tmp_path / "node"
    shutil.copytree(SOURCE, package)
    assert node_program(package) == node_program()
    (package / "sub").mkdir()
    (package / "sub" / "new.py").write_text("")
    assert node_program(package) != node_program()
    assert "muster/node/sub/new.py" in _archive(node_program(package)).namelist()


def test_names_dates_and_modes_are_fixed() -> None:
    archive = _archive(node_program())
    assert archive.testzip() is None
    assert archive.namelist() == sorted(archive.namelist())
    for entry in archive.infolist():
        assert entry.date_time == (1980, 1, 1, 0, 0, 0)
        assert (entry.create_system, entry.external_attr >> 16) == (3, 0o100644)
        assert entry.compress_type == zipfile.ZIP_DEFLATED
        name = entry.filename.removeprefix("muster/node/")
        if name != entry.filename:
            assert archive.read(entry) == (SOURCE / name).read_bytes()


def _archive(content: bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(content))


def test_the_key_depends_on_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    key = program_key()
    assert program_key() == key
    modules = module._modules(SOURCE)
    name, content = next((name, content) for name, content in modules.items() if content)
    changed = {**modules, name: bytes([content[0] ^ 1]) + content[1:]}
    for other in (changed, {**modules, "new.py": b""}):
        monkeypatch.setattr(module, "_modules", lambda folder, found=other: found)
        assert program_key() != key
