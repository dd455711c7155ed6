"""Parts of the local engine that can be asked alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from muster.engines.local import addresses, cgroups, gpus, ports
from muster.engines.local.isolation import check_setting
from muster.engines.local.machine import (
    Limits,
    Machine,
    check_fit,
    held_to,
    limits_of,
    shape_notes,
    share_of_cpus,
    share_of_gpus,
    share_of_memory,
)
from muster.errors import EngineError, InvalidInput
from muster.frameworks.base import Port
from muster.plan.model import ResourcePlan, RunPlan
from support.sessions import make_plan

GIB = 1 << 30


def plan(resources: ResourcePlan, nodes: int = 1) -> RunPlan:
    return make_plan("x", nodes, resources=resources)


# --- addresses and ports


def test_addresses_are_a_run_s_own() -> None:
    one, two = addresses.allot("shared", 300), addresses.allot("shared", 300)
    assert len(set(one)) == 300
    assert all(a.startswith("127.") and not a.startswith("127.0.") for a in one)
    assert not set(one) & set(two)


def test_isolated_addresses() -> None:
    found = addresses.allot("isolated", 1000)
    assert (found[0], found[254], found[255]) == ("10.77.0.1", "10.77.0.255", "10.77.1.0")
    with pytest.raises(InvalidInput, match="network: isolated holds 1000 nodes"):
        addresses.allot("isolated", 1001)


def test_a_held_port_is_free_for_its_run_and_taken_for_others() -> None:
    import socket

    held = ports.Ports([Port("master", 29500)], 1, own=False)
    number = held.numbers["master"]
    assert ports.hold(number) is None, "another run looks elsewhere"
    with socket.create_server(("", number)):
        assert ports.hold(number) is None
    held.close()
    again = ports.hold(number)
    assert again is not None
    again.close()


def test_ports_the_owner_or_the_network_fixes() -> None:
    assert ports.Ports([Port("a", 7, fixed=True)], 1, own=False).numbers == {"a": 7}
    assert ports.Ports([Port("a", 29500)], 1, own=True).numbers == {"a": 29500}


def free_number() -> int:
    number, held = ports.find_row(1)
    for one in held:
        one.close()
    return number


def test_a_number_that_programs_count_on_is_taken_where_it_is_free() -> None:
    wanted = [Port("master", free_number(), preferred=True)]
    first = ports.Ports(wanted, 1, own=False)
    assert first.numbers["master"] == wanted[0].number
    second = ports.Ports(wanted, 1, own=False)
    assert second.numbers["master"] != wanted[0].number, "the first one has it"
    first.close()
    second.close()


def test_a_server_on_all_addresses_shares_its_number_with_no_other_node() -> None:
    number = free_number()
    wanted = [Port("server", number, fixed=True, each=True, wildcard=True)]
    held = ports.Ports(wanted, 2, own=False)
    assert held.numbers["server.0"] == number != held.numbers["server.1"]
    held.close()
    assert set(ports.Ports(wanted, 2, own=True).numbers.values()) == {number}


def test_a_port_that_every_node_has() -> None:
    held = ports.Ports([Port("relay", 7070, each=True), Port("one", 1)], 3, own=False)
    assert sorted(held.numbers) == ["one", "relay.0", "relay.1", "relay.2"]
    assert len(set(held.numbers.values())) == 4
    assert all(ports.hold(number) is None for number in held.numbers.values())
    held.close()
    own = ports.Ports([Port("relay", 7070, each=True)], 2, own=True)
    assert own.numbers == {"relay.0": 7070, "relay.1": 7070}


def test_ports_in_a_row() -> None:
    held = ports.Ports([Port("range", 9000, count=5, each=True)], 2, own=False)
    for first in held.numbers.values():
        assert 20000 <= first <= 32000 - 5
        assert [ports.hold(first + more) for more in range(5)] == [None] * 5
    one, two = held.numbers.values()
    assert abs(one - two) >= 5
    held.close()


def test_ports_that_nobody_holds_are_still_each_node_s_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = ports.Ports([Port("range", 1, count=8)], 1, own=False)
    first = free.numbers["range"]
    free.close()
    monkeypatch.setattr(ports, "_RANGE", range(first, first + 8))
    monkeypatch.setattr(ports.random, "sample", lambda numbers, _: list(numbers))
    found = ports.Ports([Port("range", 1, count=4, each=True, held=False)], 2, own=False)
    assert sorted(found.numbers.values()) == [first, first + 4]
    again = [ports.hold(number) for number in range(first, first + 8)]
    assert None not in again
    for one in again:
        assert one is not None
        one.close()
    found.close()


def test_a_row_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few ports one in the middle is taken: only one row of three is left."""
    free = ports.Ports([Port("range", 1, count=7)], 1, own=False)
    first = free.numbers["range"]
    free.close()
    monkeypatch.setattr(ports, "_RANGE", range(first, first + 7))
    monkeypatch.setattr(ports.random, "sample", lambda numbers, _: list(numbers))
    taken = ports.hold(first + 2)
    assert taken is not None
    wanted = [Port("range", 1, count=4), Port("range", 1, count=5)]
    held = ports.Ports(wanted[:1], 1, own=False)
    assert held.numbers == {"range": first + 3}
    held.close()
    with pytest.raises(EngineError, match="no 5 free ports in a row"):
        ports.Ports(wanted[1:], 1, own=False)
    taken.close()
    assert all(
        one is not None and one.close() is None for one in map(ports.hold, range(first, first + 7))
    )


# --- what fits


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ResourcePlan(cpus=3), "resources.cpus: a node needs 3 CPUs, this machine has 2"),
        (ResourcePlan(memory=9 * GIB), "a node needs 9.0 GiB, this machine has 8.0 GiB"),
        (ResourcePlan(gpus=5), "a node needs 5 GPUs, this machine has 4"),
    ],
)
def test_demands_that_cannot_be_met(asked: ResourcePlan, message: str) -> None:
    (problem,) = check_fit(plan(asked), Machine(2, 8 * GIB, 4))
    assert message in str(problem)


def test_no_gpus_at_all_is_a_sentence() -> None:
    (problem,) = check_fit(plan(ResourcePlan(gpus=1)), Machine(2, 8 * GIB, 0))
    assert problem.path == "node_groups[workers].resources.gpus"
    assert problem.message == "a node needs 1 GPU, this machine has none"
    assert problem.hint.startswith("leave gpus out to run on CPUs")


def test_gpus_add_up_and_cpus_do_not() -> None:
    machine = Machine(2, 8 * GIB, 4)
    assert check_fit(plan(ResourcePlan(cpus=2, gpus=1), nodes=4), machine) == []
    (problem,) = check_fit(plan(ResourcePlan(gpus=2), nodes=4), machine)
    assert "all nodes together need 8 GPUs, this machine has 4" in str(problem)


SMALL = ResourcePlan(cpus=1, memory=GIB, shape="small")
LARGE = ResourcePlan(cpus=128, memory=64 * GIB, gpus=8, shape="BM.GPU4.8")


@pytest.mark.parametrize(
    ("asked", "cpus", "memory"),
    [
        (ResourcePlan(), None, None),
        (SMALL, 1, GIB),
        (LARGE, None, None),
        (ResourcePlan(cpus=8, memory=GIB, shape="mixed"), None, GIB),
        (ResourcePlan(cpus=2, memory=8 * GIB, shape="alike"), None, None),
        (ResourcePlan(cpus=2, memory=8 * GIB), 2, 8 * GIB),
        (ResourcePlan(cpus=2, memory=64 * GIB, shape="own", exact=("cpus",)), 2, None),
    ],
)
@pytest.mark.shows("jobs/job-shape")
def test_what_nodes_are_held_to(asked: ResourcePlan, cpus: int | None, memory: int | None) -> None:
    """Demands always; of a shape, what is less than the machine has."""
    machine = Machine(2, 8 * GIB, 0)
    assert limits_of(asked, machine) == Limits(cpus, memory)
    one = plan(asked, 4)
    assert share_of_cpus(one, one.groups[0], machine) == (1 if cpus is None else cpus)
    assert share_of_memory(one, one.groups[0], machine) == (memory or 2 * GIB)


def test_a_shape_that_is_larger_than_the_machine() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert check_fit(plan(LARGE), machine) == []
    (note,) = shape_notes(plan(LARGE), machine)
    assert note == (
        "group workers: shape BM.GPU4.8 is larger than this machine (2 CPUs, 8.0 GiB, 0 GPUs); "
        "its nodes run with what there is"
    )
    assert shape_notes(plan(SMALL), machine) == []
    exact = ResourcePlan(cpus=3, memory=64 * GIB, shape="own", exact=("cpus",))
    assert [str(p) for p in check_fit(plan(exact), machine)] == [
        "node_groups[workers].resources.cpus: a node needs 3 CPUs, this machine has 2 "
        "(ask for at most 2)"
    ]


def test_shapes_that_are_larger_together() -> None:
    machine = Machine(2, 8 * GIB, 0)
    assert shape_notes(plan(SMALL, 2), machine) == []
    assert shape_notes(plan(SMALL, 10), machine) == [
        "the shapes of 10 nodes have 10 CPUs together, this machine 2: they share it",
        "the shapes of 10 nodes have 10.0 GiB of memory together, this machine 8.0 GiB: "
        "they share it",
    ]


@pytest.mark.parametrize(
    ("available", "nodes", "shares"),
    [(8, 1, [8]), (16, 2, [8, 8]), (3, 2, [2, 1]), (1, 2, [1, 0]), (0, 2, [0, 0]), (9, 1, [8])],
)
def test_gpus_of_shapes_are_shared_out(available: int, nodes: int, shares: list[int]) -> None:
    one = plan(LARGE, nodes)
    assert [share_of_gpus(one, rank, available) for rank in range(nodes)] == shares
    exact = plan(ResourcePlan(gpus=2), nodes)
    assert [share_of_gpus(exact, rank, available) for rank in range(nodes)] == [2] * nodes


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ResourcePlan(), ""),
        (ResourcePlan(shape="local"), "shape local: each node has what this machine has"),
        (SMALL, "shape small: each node has 1 CPU, 1.0 GiB of memory"),
        (LARGE, "shape BM.GPU4.8: each node has 4 GPUs at most"),
        (ResourcePlan(cpus=0.5, gpus=1), "each node has 0.5 CPUs, 1 GPU"),
    ],
)
def test_what_nodes_have_in_words(asked: ResourcePlan, said: str) -> None:
    assert held_to(asked, Machine(2, 8 * GIB, 4)) == said


# --- GPUs


def test_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus.devices(tmp_path) == [0, 1, 10]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,10")
    assert gpus.devices(tmp_path) == [1, 10]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.devices(tmp_path) == []


@pytest.mark.shows("distributed-jobs/gpu-nodes")
def test_gpus_are_never_shared(tmp_path: Path) -> None:
    one, two = gpus.GpuPool(tmp_path, [0, 1, 2]), gpus.GpuPool(tmp_path, [0, 1, 2])
    assert one.take(2) == (0, 1)
    with pytest.raises(EngineError, match="needs 2 GPUs, but only 1 of 3 are free"):
        two.take(2)
    assert two.take(1) == (2,), "a refusal holds nothing"
    one.release([0])
    assert two.take(1) == (0,)
    one.release([1])
    two.release([0, 2])


def test_gpus_of_a_killed_run_are_free(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from muster.engines.local.gpus import GpuPool;"
        "p = GpuPool(Path(sys.argv[1]), [0]); p.take(1); print('held', flush=True); time.sleep(99)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        pool = gpus.GpuPool(tmp_path, [0])
        with pytest.raises(EngineError):
            pool.take(1)
        holder.kill()
    assert pool.take(1) == (0,)
    pool.release([0])


# --- control groups


def tree(root: Path, own: str, *folders: str) -> tuple[Path, Path]:
    for folder in folders:
        (root / folder).mkdir(parents=True)
    (root / "own").write_text(own)
    return root, root / "own"


def test_version_1(tmp_path: Path) -> None:
    own = "4:memory:/a\n3:cpu,cpuacct:/b\n2:freezer:/\n0::/\n"
    found = cgroups.hierarchies(*tree(tmp_path, own, "memory/a", "cpu/b"))
    assert found["memory"] == cgroups.Hierarchy("memory", tmp_path / "memory/a", 1)
    assert found["cpu"].parent == tmp_path / "cpu/b"


def test_version_2(tmp_path: Path) -> None:
    root, own = tree(tmp_path, "0::/user/me\n", "user/me")
    assert cgroups.hierarchies(root, own) == {}
    (root / "user/me/cgroup.subtree_control").write_text("cpu memory pids")
    found = cgroups.hierarchies(root, own)
    assert {h.version for h in found.values()} == {2}
    assert set(found) == {"cpu", "memory"}


def test_no_control_groups(tmp_path: Path) -> None:
    assert cgroups.hierarchies(tmp_path, tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    ("own", "limits", "found"),
    [
        ("0::/a/b\n", {"a/memory.max": "4096\n", "a/b/memory.max": "max\n"}, 4096),
        ("0::/a/b\n", {"a/memory.max": "4096", "a/b/memory.max": "1024"}, 1024),
        ("0::/\n", {"memory.max": "2048"}, 2048),
        ("0::/\n", {}, None),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "512"}, 512),
        ("4:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "512"}, None),
    ],
)
def test_the_memory_that_control_groups_leave_us(
    tmp_path: Path, own: str, limits: dict[str, str], found: int | None
) -> None:
    root, place = tree(tmp_path, own)
    for file, text in limits.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    assert cgroups.memory_limit(root, place) == found


def test_no_limit_without_control_groups(tmp_path: Path) -> None:
    assert cgroups.memory_limit(tmp_path, tmp_path / "nothing") is None


@pytest.mark.skipif(len(cgroups.hierarchies()) < 2, reason="control groups are not writable here")
def test_limits_are_real() -> None:
    limits = cgroups.NodeLimits(f"test-{os.getpid()}", cpus=0.5, memory=64 << 20)
    pid = os.fork()
    if pid == 0:
        limits.join()
        bytearray(256 << 20)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    assert limits.out_of_memory() == 1
    limits.remove()
    for hierarchy in cgroups.hierarchies().values():
        assert not list(hierarchy.parent.glob(f"muster-test-{os.getpid()}"))


# --- namespaces, as root or not


def in_namespaces(code: str, *args: str) -> str:
    """Run code where a supervisor would."""
    prelude = """
        import os, sys
        from muster.engines.local.isolation import enclose, settle
        if not enclose().namespaces:
            print("no namespaces")
            sys.exit()
        if os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
        settle()
    """
    text = textwrap.dedent(prelude) + textwrap.dedent(code)
    argv = [sys.executable, "-c", text, *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout == "no namespaces\n":
        pytest.skip("the kernel refuses namespaces")
    return done.stdout


def test_mountpoints_are_made_without_touching_the_machine(tmp_path: Path) -> None:
    """A folder that is not there is laid over its parent; what the parent held stays in sight."""
    base = tmp_path / "base"
    (base / "kept").mkdir(parents=True)
    (base / "kept" / "file").write_text("old")
    (base / "link").symlink_to("kept/file")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("new")
    code = """
        from pathlib import Path
        from muster.engines.local.mounting import bind_mounts
        from muster.plan.model import MountPlan
        base, data, scratch = map(Path, sys.argv[1:])
        target = str(base / "deep" / "er")
        bind_mounts([MountPlan("s", "directory", target, "V", True)], {"s": data}, scratch)
        print(open(base / "kept" / "file").read(), open(base / "link").read(),
              open(base / "deep/er/x").read())
        try:
            open(base / "deep/er/y", "w")
        except OSError as error:
            print(error.strerror)
    """
    out = in_namespaces(code, str(base), str(tmp_path / "data"), str(tmp_path / "scratch"))
    assert out == "old old new\nRead-only file system\n"
    assert not (base / "deep").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", []),
        ("plain", []),
        ("namespaces", []),
        (
            "plian",
            [
                "MUSTER_ISOLATION: there is no isolation 'plian' "
                '("plain" for none; unset it for namespaces where the kernel allows them)'
            ],
        ),
    ],
)
def test_an_unknown_isolation_is_refused(
    asked: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", asked)
    assert [str(problem) for problem in check_setting()] == said


@pytest.mark.parametrize("parent", ["base", "/no-such-root"])
def test_many_mountpoints_beside_each_other_are_as_many_mounts(tmp_path: Path, parent: str) -> None:
    """What their parent holds is shown once, and not again for each."""
    (tmp_path / "base").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("new")
    (tmp_path / "scratch").mkdir()
    code = """
        from pathlib import Path
        from muster.engines.local.mounting import bind_mounts
        from muster.plan.model import MountPlan
        parent, data, scratch = map(Path, sys.argv[1:])
        paths = [f"{parent}/{n}/deep" for n in range(50)]
        mounts = [MountPlan("s", "directory", path, "V") for path in paths]
        bind_mounts(mounts, {"s": data}, scratch)
        held = Path("/proc/self/mounts").read_text().splitlines()
        print(sum(f" {parent}/" in line for line in held), {open(f"{p}/x").read() for p in paths})
    """
    where = str(tmp_path / parent)
    out = in_namespaces(code, where, str(tmp_path / "data"), str(tmp_path / "scratch"))
    assert out == "50 {'new'}\n"


def test_mountpoints_beside_those_of_the_root_directory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("new")
    (tmp_path / "scratch").mkdir()
    code = """
        from pathlib import Path
        from muster.engines.local.mounting import bind_mounts
        from muster.plan.model import MountPlan
        data, scratch = map(Path, sys.argv[1:])
        bind_mounts([MountPlan("s", "directory", "/no-such-root/x", "V")], {"s": data}, scratch)
        print(open("/no-such-root/x/x").read(), (data / "x").read_text())
    """
    assert in_namespaces(code, str(tmp_path / "data"), str(tmp_path / "scratch")) == "new new\n"
    assert not Path("/no-such-root").exists()


@pytest.mark.shows("distributed-jobs/communication-secured", "jobs/creation-networking")
@pytest.mark.parametrize("nodes", [2, 40])
def test_isolated_network(nodes: int, client: Any) -> None:
    """Nodes reach each other by name on any port; the machine is out of reach."""
    code = (
        "import os, socket, sys\n"
        "n, me = int(sys.argv[1]), int(os.environ['NODE_RANK'])\n"
        "server = socket.create_server(('', 80))\n"
        "if me:\n"
        "    while True:\n"
        "        try:\n"
        "            socket.create_connection(('node-0', 80)).close()\n"
        "            break\n"
        "        except ConnectionRefusedError:\n"
        "            pass\n"
        "else:\n"
        "    seen = {server.accept()[1][0] for _ in range(n - 1)}\n"
        "    assert len(seen) == n - 1, seen\n"
        "try:\n"
        "    socket.create_connection(('192.0.2.1', 9), 1)\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    argv = ["python", "-c", code, str(nodes)]
    job, new = client.job(None, command=argv, name="net", network="isolated")
    from muster.spec.overrides import overrides_from_mapping

    draft = client.draft(job, overrides_from_mapping({"nodes": nodes}), new_job=new)
    run = client.start(draft).wait(60)
    assert run.state == "SUCCEEDED", run.details
    assert {record.message for record in run.logs(streams=["stdout", "stderr"])} == {
        "Network is unreachable"
    }
