"""What nodes on other machines get: nothing of the submitter's machine is true there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.frameworks.base import Port, RoleSetup, Service, Succeeds
from support.faults import until
from support.sessions import Session

MakeSession = Callable[..., Session]


@pytest.fixture
def kind(prepare: Callable[[str], str]) -> str:
    return prepare("servers")


def test_programs_inherit_the_environment_of_their_host(
    session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_SUBMITTER", "yes")
    one = session("echo $OF_HOST, $OF_SUBMITTER, $MINE, $PATH", env={"MINE": "given"})
    one.start(0)
    one.ended(0)
    assert one.close() == 0
    of_host, of_submitter, mine, path = one.output().strip().split(", ")
    assert (of_host, of_submitter, mine) == ("yes", "", "given")
    assert path.startswith(f"{one.home}/host/python/bin:"), "the folder of its Python is first"


FIND = """
import importlib.util, sys
print(sys.executable, importlib.util.find_spec("muster"))
"""


def test_programs_are_run_by_the_python_of_the_host_and_do_not_see_muster(
    session: MakeSession,
) -> None:
    one = session(f"python -c '{FIND}'")
    one.start(0)
    one.ended(0)
    assert one.close() == 0
    assert one.output() == f"{one.home}/host/python/bin/python None\n"


def test_programs_of_frameworks_find_their_modules(session: MakeSession) -> None:
    """A module that needs others of its package, and the folder in which it starts."""
    module = ("${python}", "-m", "muster.node.requirements", "generic")
    shown = Succeeds((*module, "mine"))
    service = Service("serving", (*module, "serving"), ready=shown)
    write = "for name in mine serving; do echo 'import time' > $name.py; done; "
    write += "echo 'time.sleep(1000)' >> serving.py"
    prepare = Service("prepare", ("sh", "-c", f"{write}; exec sleep 1000"), output="node")
    role = RoleSetup(services=(prepare, service), launcher=(*module[:3], "generic", "timeit", "-h"))
    one = session("true", role=role)
    one.start(0)
    ended = one.ended(0)[0]
    assert one.close() == 0
    assert ended["exit_code"] == 0, (ended, one.output(stream="err"))
    assert "Tool for measuring execution time" in one.output()


SERVE = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("serving", os.environ["MUSTER_RESTART"], flush=True)
print("as an error", file=sys.stderr, flush=True)
signal.sigwait({signal.SIGTERM})
print("stopped")
"""


def test_output_of_services_is_copied_as_it_grows(session: MakeSession) -> None:
    service = Service("serving", ("python", "-c", SERVE))
    quiet = Service("quiet", ("sleep", "1000"))
    program = "until [ -e stop ]; do sleep 0.01; done"
    one = session(program, role=RoleSetup(services=(quiet, service)))
    log = one.folder / "logs/0/workers-0.serving.log"
    expected = ""
    for incarnation in (0, 1):
        one.start(0, incarnation=incarnation)
        expected += f"serving {incarnation}\nas an error\n"
        until(lambda text=expected: log.exists() and log.read_text() == text, "its output")  # type: ignore[misc]
        (one.folder / "hosts/0/node/work/stop").touch()
        assert one.ended(0, incarnation=incarnation)[0]["exit_code"] == 0
        expected += "stopped\n"
        assert log.read_text() == expected
    assert (one.folder / "logs/0/workers-0.quiet.log").read_text() == ""
    assert one.close() == 0


LISTEN = """
import os, socket, time
servers = [socket.create_server(("", int(port))) for port in os.environ["MINE"].split()]
print(os.environ["ALL"], flush=True)
time.sleep(1000)
"""


def test_nodes_of_two_runs_on_a_machine_have_different_ports(session: MakeSession) -> None:
    ports = (Port("relay", 7070, each=True), Port("head", 7070))
    numbers = "${port.relay.0} ${port.relay.1} ${port.head}"
    found = []
    both = []
    for _ in range(2):
        one = session(
            f"exec python -c '{LISTEN}'",
            nodes=2,
            keep=True,
            ports=ports,
            framework_env={"MINE": "${port.relay}", "ALL": numbers},
        )
        one.start(0, 1)
        for rank in (0, 1):
            one.wait_for_output("\n", rank)
        both.append(one)
    for one in both:
        found += one.output().split()
        assert one.output(1) == one.output()
        one.kill(0)
        one.ended(0)
        one.start(0, incarnation=1)
        one.wait_for_output("\n", 0)
        until(lambda one=one: one.output().count("\n") == 2, "its restart")  # type: ignore[misc]
        first, second = one.output().splitlines()
        assert first == second, "others know its ports"
        one.kill(0, incarnation=1)
        one.ended(0, incarnation=1)
        one.kill(1)
        one.ended(1)
        assert one.close() == 0
    assert len(set(found)) == 6


def test_nothing_is_left_on_the_host(session: MakeSession) -> None:
    one = session("mkdir read-only; touch read-only/a; chmod 500 read-only; sleep 1000 &", nodes=2)
    one.start(0, 1)
    one.ended(0, 1)
    assert (one.folder / "hosts/1/node").exists()
    assert one.close() == 0
    assert list((one.folder / "hosts").iterdir()) == []


# --- outputs


def outputs_of(one: Session) -> dict[str, str]:
    root = one.folder / "outputs"
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def test_outputs_are_on_the_host_until_their_node_has_ended(session: MakeSession) -> None:
    one = session(
        'echo $MUSTER_OUTPUTS; echo $MUSTER_RESTART >> "$MUSTER_OUTPUTS/own"; '
        'echo of $RANK > "$MUSTER_RUN_OUTPUTS/of-$RANK"; [ $MUSTER_RESTART = 0 ]',
        nodes=2,
        keep=True,
    )
    for incarnation in (0, 1):
        one.start(0, 1, incarnation=incarnation)
        one.ended(0, 1, incarnation=incarnation)
        numbers = "".join(f"{number}\n" for number in range(incarnation + 1))
        assert outputs_of(one) == {
            **{f"rank-{rank}/own": numbers for rank in (0, 1)},
            **{f"of-{rank}": f"of {rank}\n" for rank in (0, 1)},
        }, "when the end is reported, they are here"
        for rank in (0, 1):
            place = one.folder / f"hosts/{rank}/run/outputs/rank-{rank}"
            assert one.output(rank).splitlines() == [str(place)] * (incarnation + 1)
    assert one.close() == 0


def test_outputs_that_are_written_after_the_end(session: MakeSession) -> None:
    """By a command that was run in the node and is left, for instance."""
    one = session('echo early > "$MUSTER_OUTPUTS/own"', nodes=2)
    one.start(0, 1)
    one.ended(0, 1)
    for rank in (0, 1):
        (one.folder / f"hosts/{rank}/run/outputs/rank-{rank}/late").write_text("late")
    assert one.close() == 0
    assert outputs_of(one) == {
        f"rank-{rank}/{name}": text
        for rank in (0, 1)
        for name, text in (("own", "early\n"), ("late", "late"))
    }


def test_what_is_written_after_the_end_and_cannot_be_kept_is_logged(
    session: MakeSession, capfd: pytest.CaptureFixture[str]
) -> None:
    one = session("true")
    one.start(0)
    one.ended(0)
    (one.folder / "hosts/0/run/outputs/rank-0/late").write_text("late")
    outputs = one.folder / "outputs"
    subprocess.run(["rm", "-rf", outputs], check=True)
    outputs.write_text("in the way")
    assert one.close() == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "last outputs" in line]
    (line,) = lines
    assert line.startswith("muster: node 0: its last outputs were not copied, and stay in ")


def test_outputs_that_cannot_be_kept_fail_the_node(session: MakeSession) -> None:
    one = session("echo x > $MUSTER_OUTPUTS/own; exit $CODE", env={"CODE": "0"})
    (one.folder / "outputs").write_text("in the way")
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (1, "output_lost")
    assert re.match(r"its outputs could not be copied from \S+ on its host: ", ended["message"])
    (one.folder / "outputs").unlink()
    one.start(0, incarnation=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 0
    assert one.close() == 0
    assert outputs_of(one) == {"rank-0/own": "x\n"}


def test_outputs_for_which_the_disk_here_has_no_room_fail_the_node(
    session: MakeSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run continues: its session does not end with the first file that cannot be written."""
    patch = tmp_path / "patch" / "sitecustomize.py"
    patch.parent.mkdir()
    patch.write_text(NO_SPACE)
    monkeypatch.setenv("PYTHONPATH", str(patch.parent), prepend=os.pathsep)
    one = session("head -c 3000000 /dev/zero > $MUSTER_OUTPUTS/own")
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (1, "output_lost")
    text = r"its outputs could not be copied from (\S+) on its host: No space left on device"
    found = re.fullmatch(text, ended["message"])
    assert found is not None, ended["message"]
    assert one.close() == 0
    assert [path.stat().st_size for path in Path(found[1]).rglob("own")] == [3_000_000], "it stays"


#: Has temporary files of this process on a device that is full.
NO_SPACE = """
import tempfile
tempfile.TemporaryFile = lambda **_: open("/dev/full", "w+b", buffering=1 << 20)
"""


def test_a_failure_is_not_hidden_by_outputs_that_cannot_be_kept(session: MakeSession) -> None:
    one = session("exit 3")
    (one.folder / "outputs").write_text("in the way")
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (3, "exit")
    assert one.close() == 0


@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="cloudpickle is not installed")
def test_a_function_gets_its_arguments_and_returns_its_value(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.py").write_text(FUNCTION)
    argv = [sys.executable, "mine.py"]
    done = subprocess.run(argv, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[7, 8] yes\n", done.stderr


FUNCTION = """
import os
import muster

@muster.job(nodes=2, engine="servers")
def add(one, two=0):
    return one + two + int(os.environ["NODE_RANK"]), os.environ["OF_HOST"]

if __name__ == "__main__":
    found = add.submit(3, two=4).results(60)
    print([value for value, _ in found], found[0][1])
"""
