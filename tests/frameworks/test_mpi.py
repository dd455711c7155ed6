"""MPI with the real MPICH (and, in slow tests, Open MPI) on nodes of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role
from muster.frameworks.mpi import MpiOptions
from muster.frameworks.registry import get_framework, read_options
from muster.service import framework_check
from support.faults import until
from support.mpi import needs_mpich, needs_open_mpi
from support.runs import output, output_of_success, start, start_spec

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "mpi"

MPICH = pytest.param("mpich", marks=needs_mpich)
OPEN_MPI = pytest.param("openmpi", marks=[needs_open_mpi, pytest.mark.slow])

PROGRAM = """
import os, signal, sys
from pathlib import Path
from mpi4py import MPI

comm = MPI.COMM_WORLD
how, culprit = sys.argv[1], int(sys.argv[2])
comm.Barrier()
Path(os.environ["UP"], f"{comm.rank}").write_text("up")
if comm.rank == culprit:
    if how == "raises":
        raise ValueError("bad luck")
    if how == "exits":
        sys.exit(3)
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "orphaned":
        os.kill(os.getppid(), signal.SIGKILL)
    if how == "aborts":
        comm.Abort(7)
if how == "saves":
    saved = Path(os.environ["UP"], f"saved-{comm.rank}")
    signal.signal(signal.SIGUSR1, lambda *_: saved.touch())
    Path(os.environ["UP"], f"waits-{comm.rank}").write_text("up")
    while not saved.exists():
        signal.sigtimedwait([], 1)
comm.Barrier()
if how in ("waits", "orphaned"):
    signal.pause()
"""


def cluster(nodes: int, processes: int = 1, **options: Any) -> Cluster:
    roles = (Role("main", 0, 1, {}), Role("workers", 1, nodes - 1, {}))
    return Cluster(roles[: 1 if nodes == 1 else 2], processes, MpiOptions(**options))


def test_every_node_runs_a_relay_and_the_main_node_the_launcher() -> None:
    setup = get_framework("mpi").setup(cluster(3, 2, flavour="mpich"))
    main, workers = setup.roles["main"], setup.roles["workers"]
    assert " ".join(main.launcher).endswith(
        "muster.node.mpi --flavour mpich --per-node 2 --timeout ${group.ready_timeout} --"
    )
    assert main.processes == 1
    assert not workers.program
    assert not workers.decides
    assert [service.name for service in (*main.services, *workers.services)] == ["relay"] * 2
    assert main.env["MUSTER_RELAYS"] == ",".join(
        f"${{roster.{rank}.address}}:${{port.relay.{rank}}}" for rank in range(3)
    )


def test_an_unknown_flavour_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_options(get_framework("mpi"), {"flavour": "lam"})
    assert "framework_options.flavour" in str(refused.value)


def test_slots_are_at_least_the_ranks_of_a_node() -> None:
    setup = get_framework("mpi").setup(cluster(2, 2, slots=3))
    assert "--slots 3" in " ".join(setup.roles["main"].launcher)
    with pytest.raises(InvalidInput) as refused:
        get_framework("mpi").setup(cluster(2, 2, slots=1))
    assert "framework_options.slots: 1 for 2 processes per node" in str(refused.value)


def start_launcher(port: int, timeout: float) -> subprocess.Popen[str]:
    """Start the launcher of a program on one node, whose relay it expects at the port."""
    where = {"MUSTER_RELAYS": f"127.0.0.1:{port}", "MUSTER_TOKEN": "the run's own"}
    words = ["--flavour", "mpich", "--timeout", str(timeout), "--", "true"]
    return subprocess.Popen(
        [sys.executable, "-m", "muster.node.mpi", *words],
        env={**os.environ, **where},
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_mpich
def test_missing_nodes_are_named_after_the_timeout() -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        with start_launcher(taken.getsockname()[1], 0.2) as program:
            _, output = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "1 of 1 nodes do not answer after 0.2 s: node-0: no relay answers" in output


@needs_mpich
def test_sigterm_ends_a_launcher_that_waits_for_nodes() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        start_launcher(listener.getsockname()[1], 3600.0) as program,
    ):
        listener.accept()[0].close()  # the launcher waits
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=60)
    assert program.returncode == 128 + signal.SIGTERM


def start_program(
    client: Client, folder: Path, flavour: str, how: str, culprit: int = -1, more: str = ""
) -> JobRun:
    """Start PROGRAM on three nodes with two ranks each; every rank creates a file in folder/up."""
    (folder / "up").mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "job.yaml").write_text(
        f"artifact: train.py\nframework: mpi\nframework_options: {{flavour: {flavour}}}\n"
        f"nodes: 3\nprocesses_per_node: 2\nargs: [{how}, '{culprit}']\n"
        f"env: {{UP: {folder / 'up'}}}\n{more}"
    )
    return start(client, folder / "job.yaml")


#: Nodes that only serve end after the whole grace period.
CHECKPOINT = "checkpoint: {signal: SIGUSR1, grace: 20s}\n"


def marks(folder: Path, kind: str) -> set[str]:
    """Names of the files that ranks created in folder/up."""
    return {path.name for path in (folder / "up").glob(f"{kind}-*")}


@pytest.mark.shows("jobset/hpc")
@pytest.mark.parametrize("flavour", [MPICH, OPEN_MPI])
def test_the_example_trains_one_model_with_any_number_of_ranks(
    client: Client, tmp_path: Path, flavour: str
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "mpi")
    spec = tmp_path / "mpi" / "job.yaml"
    spec.write_text(spec.read_text() + f"framework_options: {{flavour: {flavour}}}\n")
    losses = {}
    for nodes in (1, 2):
        run = start(client, spec, nodes=nodes)
        assert run.wait(240).state == "SUCCEEDED", run.details
        messages = [
            (record.rank, record.message) for record in run.logs(streams=["stdout", "stderr"])
        ]
        # lines of two ranks on a node may be joined
        found = ((at, re.findall(r"rank \d+ of \d+ on node-\d+", text)) for at, text in messages)
        ranks = {(at, text) for at, texts in found for text in texts}
        assert ranks == {
            (node, f"rank {rank} of {2 * nodes} on node-{node}")
            for node in range(nodes)
            for rank in (2 * node, 2 * node + 1)
        }
        texts = [text for _, text in messages]
        (accuracy,) = (float(t.split()[-1]) for t in texts if t.startswith("test accuracy"))
        assert accuracy > 0.95
        losses[nodes] = [float(t.split()[-1]) for t in texts if re.match(r"step \d+: loss", t)]
    assert losses[1] == pytest.approx(losses[2], rel=1e-6)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@needs_mpich
def test_a_network_interface_of_the_machine_may_go_away(client: Client, tmp_path: Path) -> None:
    """Such as that of another run: MPICH would take it, as it is the fastest one."""
    (tmp_path / "train.py").write_text(
        "import os, time\n"
        "from mpi4py import MPI\n"
        "print('up', MPI.COMM_WORLD.allreduce(1), flush=True)\n"
        f"while not os.path.exists('{tmp_path / 'go'}'):\n"
        "    time.sleep(0.01)\n"
        "print('sum', MPI.COMM_WORLD.allreduce(1), flush=True)\n"
    )
    spec = {"artifact": "train.py", "framework": "mpi", "nodes": 2}
    options = {"framework_options": {"flavour": "mpich"}, "max_runtime": "10m"}
    name = f"mu-{os.getpid()}"
    subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", f"{name}b"], check=True)
    try:
        for words in (["addr", "add", "10.77.77.1/32", "dev", name], ["link", "set", name, "up"]):
            subprocess.run(["ip", *words], check=True)
        subprocess.run(["ip", "link", "set", f"{name}b", "up"], check=True)
        run = start_spec(client, {**spec, **options}, tmp_path)
        until(lambda: sum(line == "up 2" for line in output(run)) == 2)
    finally:
        subprocess.run(["ip", "link", "del", name], check=True)
    (tmp_path / "go").touch()
    assert [line for line in output_of_success(run) if line == "sum 2"] == ["sum 2"] * 2


@pytest.mark.parametrize(
    ("how", "code", "why"),
    [
        ("raises", 1, "bad luck"),
        ("exits", 3, ""),
        ("dies", 137, "Killed"),
        ("aborts", 7, ""),
    ],
)
@needs_mpich
def test_the_first_failed_rank_is_the_cause(
    client: Client, tmp_path: Path, how: str, code: int, why: str
) -> None:
    run = start_program(client, tmp_path, "mpich", how, culprit=3)
    assert run.wait(240).state == "FAILED"
    assert f"node-1 (group workers, rank 1) failed with exit code {code}" in run.details
    assert why in run.details


@pytest.mark.slow
@needs_open_mpi
def test_open_mpi_a_killed_rank_fails_the_run(client: Client, tmp_path: Path) -> None:
    """Open MPI's launcher may hang then, and exits with 0 when it has lost a node."""
    run = start_program(client, tmp_path, "openmpi", "dies", culprit=5)
    assert run.wait(240).state == "FAILED"


SPAWNING = """
import os, sys
from mpi4py import MPI

if MPI.Comm.Get_parent() == MPI.COMM_NULL:
    info = MPI.Info.Create()
    if len(sys.argv) > 1:
        here = MPI.COMM_WORLD.allgather(os.environ["PMI_HOSTNAME"])
        info.Set("host", here[int(sys.argv[1])])
    child = MPI.COMM_WORLD.Spawn(sys.executable, [os.path.basename(__file__)], 2, info=info)
else:
    own = os.environ["NODE_RANK"], os.environ.get("MUSTER_TOKEN"), os.getcwd()
    cores = len(os.sched_getaffinity(0))
    line = " ".join(map(str, ["spawned", *own, "MPI4PY_LIBMPI" in os.environ, cores]))
    os.write(1, f"{line}\\n".encode())  # in one write: other ranks write to the same file
    child = MPI.Comm.Get_parent()
child.Barrier()
child.Disconnect()
"""


def spawned(client: Client, folder: Path, flavour: str, args: str = "") -> list[list[str]]:
    """Spawn two ranks on two nodes; return node, token, folder, library and cores that they print.

    args: the rank on whose node to spawn them.
    """
    (folder / "train.py").write_text(SPAWNING)
    options = f"{{flavour: {flavour}, slots: 2}}"
    (folder / "job.yaml").write_text(
        f"artifact: train.py\nframework: mpi\nframework_options: {options}\nnodes: 2\n"
        f"args: [{args}]\n"
    )
    run = start(client, folder / "job.yaml")
    assert run.wait(240).state == "SUCCEEDED", run.details
    messages = [record.message.split() for record in run.logs() if "spawned" in record.message]
    return [words[words.index("spawned") + 1 :] for words in messages]


@needs_mpich
def test_spawned_ranks_belong_to_their_node(client: Client, tmp_path: Path) -> None:
    children = spawned(client, tmp_path, "mpich")
    assert sorted(child[:2] for child in children) == [["0", "None"], ["1", "None"]]
    for node, _, folder, library, _ in children:
        assert f"/nodes/{node}/" in folder
        assert library == "True"


@needs_mpich
def test_ranks_are_spawned_on_the_given_node(client: Client, tmp_path: Path) -> None:
    children = spawned(client, tmp_path, "mpich", args="'1'")
    assert [child[0] for child in children] == ["1", "1"]


@pytest.mark.slow
@needs_open_mpi
def test_open_mpi_has_slots_for_spawned_ranks(client: Client, tmp_path: Path) -> None:
    children = spawned(client, tmp_path, "openmpi")
    assert len(children) == 2
    assert {child[3] for child in children} == {"True"}
    assert {child[4] for child in children} == {str(len(os.sched_getaffinity(0)))}


@pytest.mark.parametrize("flavour", [MPICH, OPEN_MPI])
def test_a_rank_whose_shell_is_killed_fails_its_own_node(
    client: Client, tmp_path: Path, flavour: str
) -> None:
    """The rank cannot report its end, and the launcher ends the others."""
    run = start_program(client, tmp_path, flavour, "orphaned", culprit=3)
    assert run.wait(240).state == "FAILED"
    assert "node-1 (group workers, rank 1) failed with exit code 137" in run.details
    assert re.search("muster mpi: (the shell around rank 3, on|a rank on) node-1", run.details)


def children_of(pid: str) -> list[str]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found += file.read_text().split()
    return found


VICTIMS = {
    "rank": r"-m mpi4py train.py waits",
    "proxy": r"hydra_pmi_proxy --control-port|prted --",
    "relay": r"-m muster.node.relay serve",
    "launcher": r"(mpiexec.hydra|prterun) -",
    "helper": r"-m muster.node.mpi --flavour",
}


@pytest.mark.parametrize(
    "victim",
    [v if v in ("rank", "proxy") else pytest.param(v, marks=pytest.mark.slow) for v in VICTIMS],
)
@pytest.mark.parametrize("flavour", [MPICH, OPEN_MPI])
def test_killing_any_of_its_processes_fails_the_run(
    client: Client, tmp_path: Path, alive: Callable[[str], list[str]], flavour: str, victim: str
) -> None:
    run = start_program(client, tmp_path, flavour, "waits")
    until(lambda: len(list((tmp_path / "up").iterdir())) == 6)
    mark = f"UP={tmp_path / 'up'}"
    found = alive(mark)
    found += [child for pid in found for child in children_of(pid)]  # mpiexec does not have it
    pids = [int(pid) for pid in found if re.search(VICTIMS[victim], command_of(pid))]
    assert pids
    os.kill(max(pids), signal.SIGKILL)
    assert run.wait(240).state == "FAILED"
    assert alive(mark) == []


@needs_mpich
def test_a_killed_rank_is_restarted_with_all_others(client: Client, tmp_path: Path) -> None:
    run = start_program(client, tmp_path, "mpich", "waits", more="failure: {max_restarts: 1}\n")
    until(lambda: len(list((tmp_path / "up").iterdir())) == 6)
    (victim,) = [pid for pid in ranks_of(tmp_path) if rank_of(pid) == 4]
    for mark in (tmp_path / "up").iterdir():
        mark.unlink()
    os.kill(victim, signal.SIGKILL)
    try:
        until(lambda: len(list((tmp_path / "up").iterdir())) == 6)
    except AssertionError:
        pytest.fail(
            "\n".join([run.refresh().state, *map(str, [*run.events(), *run.logs(attempt="all")])])
        )
    run.cancel("seen enough")
    assert run.wait(240).state == "CANCELED"


@pytest.mark.slow
@pytest.mark.parametrize("flavour", [MPICH, OPEN_MPI])
def test_a_checkpoint_signal_reaches_every_rank(
    client: Client, tmp_path: Path, flavour: str
) -> None:
    run = start_program(client, tmp_path, flavour, "saves", more=CHECKPOINT)
    until(lambda: len(marks(tmp_path, "waits")) == 6)
    run.suspend()
    assert run.wait(240).state == "SUSPENDED"
    assert marks(tmp_path, "saved") == {f"saved-{rank}" for rank in range(6)}


SAVING = """
import os, signal, sys, time
from pathlib import Path
from mpi4py import MPI

other = MPI.Comm.Get_parent()
kind = "first" if other == MPI.COMM_NULL else "spawned"
if kind == "first":
    info = MPI.Info.Create()
    if sys.argv[1] == "mpich":  # MPICH starts them under another proxy
        info.Set("host", MPI.COMM_WORLD.bcast(os.environ.get("PMI_HOSTNAME"), root=1))
    words = [os.path.basename(__file__), "spawned"]
    other = MPI.COMM_WORLD.Spawn(sys.executable, words, 2, info=info)
name = f"{kind}-{MPI.COMM_WORLD.rank}"
saved = Path(os.environ["UP"], f"saved-{name}")
signal.signal(signal.SIGUSR1, lambda *_: saved.touch())
Path(os.environ["UP"], f"waits-{name}").touch()
while not saved.exists():
    other.Iprobe()  # the other ranks make progress
    time.sleep(0.01)
other.Disconnect()
"""


@pytest.mark.parametrize("flavour", [MPICH, OPEN_MPI])
def test_a_checkpoint_signal_reaches_spawned_ranks(
    client: Client, tmp_path: Path, flavour: str
) -> None:
    (tmp_path / "up").mkdir()
    (tmp_path / "train.py").write_text(SAVING)
    (tmp_path / "job.yaml").write_text(
        f"artifact: train.py\nframework: mpi\nnodes: 2\nenv: {{UP: {tmp_path / 'up'}}}\n"
        f"framework_options: {{flavour: {flavour}, slots: 2}}\nargs: [{flavour}]\n{CHECKPOINT}"
    )
    run = start(client, tmp_path / "job.yaml")
    until(lambda: len(marks(tmp_path, "waits")) == 4)
    run.suspend()
    assert run.wait(240).state == "SUSPENDED"
    ranks = ("first-0", "first-1", "spawned-0", "spawned-1")
    assert marks(tmp_path, "saved") == {f"saved-{rank}" for rank in ranks}


@needs_mpich
def test_canceling_leaves_no_process(
    client: Client, tmp_path: Path, alive: Callable[[str], list[str]]
) -> None:
    run = start_program(client, tmp_path, "mpich", "waits")
    until(lambda: len(list((tmp_path / "up").iterdir())) == 6)
    run.cancel("seen enough")
    assert run.wait(240).state == "CANCELED"
    assert alive(f"UP={tmp_path / 'up'}") == []


@needs_mpich
def test_a_failed_rank_is_named_without_namespaces(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alive: Callable[[str], list[str]],
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    run = start_program(client, tmp_path, "mpich", "dies", culprit=4)
    assert run.wait(240).state == "FAILED"
    assert "node-2 (group workers, rank 2) failed with exit code 137" in run.details
    assert alive(f"UP={tmp_path / 'up'}") == []


@needs_mpich
def test_mpi_on_an_isolated_network(client: Client, tmp_path: Path) -> None:
    run = start_program(client, tmp_path, "mpich", "ends", more="network: isolated\n")
    assert run.wait(240).state == "SUCCEEDED", run.details


@needs_mpich
def test_a_failed_rank_without_output_is_named(client: Client, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "command: [sh, -c, 'test \"$PMI_RANK\" != 1 || exit 3']\n"
        "framework: mpi\nframework_options: {flavour: mpich}\nnodes: 2\n"
    )
    run = start(client, tmp_path / "job.yaml")
    assert run.wait(240).state == "FAILED"
    assert "failed with exit code 3:\nmuster mpi: rank 1, on node-1, ended with 3" in run.details


@pytest.mark.slow
@needs_open_mpi
def test_open_mpi_without_host_names_fails_with_an_explanation(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    run = start_program(client, tmp_path, "openmpi", "waits")
    assert run.wait(240).state == "FAILED"
    assert "Open MPI needs a host name for each node" in run.details


def test_a_missing_mpi_is_reported(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "job.yaml").write_text(
        f"command: /bin/true\nframework: mpi\nnodes: 2\nenv: {{PATH: {tmp_path / 'empty'}}}\n"
    )
    with pytest.raises(InvalidInput, match="no mpiexec on PATH"):
        start(client, tmp_path / "job.yaml")
    # as for an image, of which this is not known
    monkeypatch.setattr(framework_check, "_check_launcher", lambda *_: ())
    run = start(client, tmp_path / "job.yaml")
    assert run.wait(240).state == "FAILED"
    assert "failed with exit code 127" in run.details
    assert "no MPICH or Open MPI for /" in run.details
    assert "(no mpiexec on PATH; " in run.details
    assert "): pip install 'muster-jobs[mpi]'" in run.details


def command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def ranks_of(folder: Path) -> list[int]:
    mark = f"UP={folder / 'up'}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark not in (path / "environ").read_bytes().split(b"\0"):
                continue
        except OSError:
            continue
        if "python" in command_of(path.name).split(" ")[0] and rank_of(int(path.name)) is not None:
            found.append(int(path.name))
    return found


def rank_of(pid: int) -> int | None:
    env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((int(v[9:]) for v in env if v.startswith(b"PMI_RANK=")), None)
