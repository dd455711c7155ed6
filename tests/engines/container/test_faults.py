"""What happens when the engine, an image or a container fails: with a Podman of the tests' own."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engines.container.conftest import MakeSession
from muster.client import api
from muster.client.client import Client
from muster.engines import profiles
from muster.engines.base import RunContext
from muster.engines.container import bodies, containers
from muster.engines.container.api import CannotReach, Daemon
from muster.engines.container.sockets import NoSocket, find_socket
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.registry import engine_named
from muster.engines.remote.code import RUN
from muster.errors import EngineError, MusterError
from muster.node import unix_sockets
from muster.plan.model import MountPlan, ResourcePlan, RunPlan
from muster.storage.home import Home
from support import podman_service
from support.faults import until
from support.podman_service import IMAGE, PodmanService
from support.sessions import Session, make_plan

PlanOf = Callable[..., RunPlan]
WAITS = "echo up; exec sleep 1000"


# --- no engine


def test_an_engine_that_is_absent_is_named_with_what_to_do(own_home: Path, tmp_path: Path) -> None:
    path = tmp_path / "absent.sock"
    with pytest.raises(NoSocket, match=f"{path}: there is no such socket.*podman.socket"):
        find_socket(str(path), {})
    with pytest.raises(NoSocket, match=f"{path}: there is no such socket"):
        find_socket("", {"DOCKER_HOST": f"unix://{path}"})


def test_a_socket_to_which_nobody_listens(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    with pytest.raises(NoSocket, match=f"{path}: nothing listens there"):
        find_socket(str(path), {})


def test_a_socket_without_permission_names_the_group_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp

    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "sock"
    group = next(one for one in grp.getgrall() if one.gr_gid)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    monkeypatch.setattr("os.stat", lambda path: type("Stat", (), {"st_gid": group.gr_gid}))
    monkeypatch.setattr("muster.engines.container.sockets.socket.socket.connect", refuse)
    with pytest.raises(NoSocket, match=f"for the members of group {group.gr_name} .*usermod"):
        find_socket(str(path), {})


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:2375", "ssh://ana@gpu1", "relative.sock"])
def test_an_engine_elsewhere_is_refused(address: str) -> None:
    with pytest.raises(NoSocket, match=r"is not the path of a Unix socket.*engines add hosts"):
        find_socket("", {"DOCKER_HOST": address})


ANSWERS = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"SSH-2.0-OpenSSH_9.2\r\n", b""]


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_not_the_api_is_said_to_be_none(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(65536)
                sock.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(CannotReach, match=r"not Docker's API|the connection was lost"):
            Daemon(str(path)).get("version")
        thread.join()


# --- images


def refused(run: MakeSession) -> str:
    """Why a node could not be started."""
    one = run("true")
    one.start(0)
    ended = one.ended_after_all(0)[0]
    assert ended["reason"] == "not_started"
    assert one.close() == 0
    return str(ended["message"])


def test_an_image_that_is_nowhere(run: MakeSession, podman: PodmanService, own_home: Path) -> None:
    name = "127.0.0.1:1/none:1"
    podman_service.add_engine(own_home, podman, image=name)
    assert f"image {name} cannot be pulled: " in refused(run)


def test_nodes_say_what_is_pulled(run: MakeSession, podman: PodmanService, own_home: Path) -> None:
    name = "127.0.0.1:1/none:1"
    podman_service.add_engine(own_home, podman, image=name)
    one = run("true")
    one.start(0)
    assert next_of(one, "NodeQueued", 0)["why"] == f"pulling {name}"
    one.ended_after_all(0)
    assert one.close() == 0


def test_a_folder_that_cannot_be_written_is_not_the_fault_of_the_engine(
    run: MakeSession, own_home: Path
) -> None:
    one = run("true")
    (one.folder / "containers").write_text("in the way")
    one.start(0)
    message = one.ended_after_all(0)[0]["message"]
    assert message.startswith("what containers need cannot be made: ")
    assert str(one.folder / "containers") in message
    (one.folder / "containers").unlink()
    one.close()


def test_an_image_that_is_not_to_be_pulled(
    run: MakeSession, podman: PodmanService, own_home: Path
) -> None:
    podman_service.add_engine(own_home, podman, image="localhost/none:1", pull="never")
    assert "image localhost/none:1 is not on this machine, and pull is `never`" in refused(run)


def test_an_image_for_another_processor(
    run: MakeSession, podman: PodmanService, own_home: Path
) -> None:
    archive = own_home / "layer.tar"
    archive.write_bytes(podman_service.layer())
    podman.podman("import", "--arch=s390x", str(archive), "localhost/other:1")
    podman_service.add_engine(own_home, podman, image="localhost/other:1")
    assert "image localhost/other:1 is for s390x, and this machine is" in refused(run)


def test_a_server_that_cannot_start_is_quoted(
    run: MakeSession, podman: PodmanService, own_home: Path, tmp_path: Path
) -> None:
    podman_service.add_engine(own_home, podman, mounts=[f"{tmp_path}:{bodies.PROGRAM}"])
    assert "its node server has not started: its container exited with 1" in refused(run)


def test_what_is_to_be_mounted_is_not_made(
    run: MakeSession, podman: PodmanService, own_home: Path, tmp_path: Path, plan_of: PlanOf
) -> None:
    absent = tmp_path / "absent"
    podman_service.add_engine(own_home, podman, mounts=[f"{absent}:/mnt/data:ro"])
    text = f"engine container mounts {absent}, which is not on this machine"
    engine = engine_named("container", Home(own_home))
    (problem,) = engine.check(plan_of(nodes=1), own_home, {"workers": 1})
    assert (problem.message, "create it" in problem.hint) == (text, True)
    failed = [finding for finding in engine.findings() if not finding.works]
    assert [(finding.name, finding.says) for finding in failed] == [("mounts", text)]
    assert f"{absent} is not on this machine: it was to be at /mnt/data" in refused(run)
    assert not absent.exists()


# --- containers


@pytest.fixture
def restarted(podman: PodmanService) -> Iterator[None]:
    """The service runs for the next test, too, if this one has stopped it."""
    yield
    if podman.process is None:
        podman.start()


def test_a_container_that_is_removed_ends_its_node_which_can_be_started_again(
    run: MakeSession, podman: PodmanService
) -> None:
    one = run(WAITS, 2)
    one.start(0, 1)
    one.ready(0, 1)
    before = [each["Id"] for each in podman.containers(one.plan.run_id)]
    podman.podman("rm", "--force", "--time=0", f"muster-{one.plan.run_id}-1")
    ended = one.ended_after_all(1)[1]
    assert ended["reason"] == "node_lost"
    assert "its container was removed" in ended["message"]
    one.start(1, incarnation=1)
    until(lambda: one.event()["event"] == "NodeReady", "the new node is ready")
    after = [each["Id"] for each in podman.containers(one.plan.run_id)]
    assert len(set(before) & set(after)) == 1, "the other one was left alone"
    assert len(after) == 2
    one.kill(0)
    one.ended_after_all(0)
    one.kill(1, incarnation=1)
    one.ended_after_all(1, incarnation=1)
    assert one.close() == 0


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (None, "its container was killed (137)"),
        (256 << 20, "killed (137), as when it uses more memory than its limit of 256MiB"),
    ],
)
def test_a_server_that_is_killed_ends_its_node(
    run: MakeSession, podman: PodmanService, memory: int | None, text: str
) -> None:
    one = run(WAITS, resources=ResourcePlan(memory=memory))
    one.start(0)
    one.ready(0)
    podman.podman("kill", f"muster-{one.plan.run_id}-0")
    assert text in one.ended_after_all(0)[0]["message"]
    assert one.close() == 0


def test_nodes_go_on_while_the_service_is_restarted(
    run: MakeSession, podman: PodmanService
) -> None:
    one = run(WAITS, 2)
    one.start(0, 1)
    one.ready(0, 1)
    podman.stop()
    podman.start()
    podman.podman("rm", "--force", "--time=0", f"muster-{one.plan.run_id}-0")
    assert one.ended_after_all(0)[0]["reason"] == "node_lost"
    one.kill(1)
    assert one.ended_after_all(1)[1]["signal"] == 9
    assert one.close() == 0


def test_a_container_that_ends_while_nobody_drives_the_run(
    run: MakeSession, podman: PodmanService
) -> None:
    one = run(WAITS, 2)
    one.start(0, 1)
    one.ready(0, 1)
    one._kill()
    podman.podman("rm", "--force", "--time=0", f"muster-{one.plan.run_id}-0")
    podman.podman("kill", f"muster-{one.plan.run_id}-1")
    one.replaced()
    ended = one.ended_after_all(0, 1)
    assert "was removed while nobody drove the run" in ended[0]["message"]
    assert "was killed" in ended[1]["message"]
    assert one.close() == 0


@pytest.mark.parametrize("verb", ["kill", "rm"])
def test_what_a_lost_node_has_written_is_kept(
    run: MakeSession, podman: PodmanService, verb: str
) -> None:
    script = (
        "echo up; until [ -e go ]; do sleep 0.01; done; echo last; echo own > $MUSTER_OUTPUTS/own"
    )
    script = script.replace("go", "$MUSTER_OUTPUTS/go")
    one = run(f"{script}; exec sleep 1000")
    one.start(0)
    one.ready(0)
    one._kill()
    (outputs,) = one.host_folder(0).glob("*/outputs")
    (outputs / "rank-0/go").touch()
    own = outputs / "rank-0/own"
    until(lambda: own.exists() and own.read_text() == "own\n", "the node has written")
    options = ["--force", "--time=0"] if verb == "rm" else []
    podman.podman(verb, *options, f"muster-{one.plan.run_id}-0")
    one.replaced()
    message = one.ended_after_all(0)[0]["message"]
    outputs = Path(message.rpartition(" are in ")[2])
    assert outputs.parent.parent == one.folder / "lost"
    assert (outputs / "rank-0/own").read_text() == "own\n"
    assert (one.folder / "logs/0/workers-0.out").read_text() == "up\nlast\n"
    assert one.close() == 0
    assert [path.name for path in outputs.parent.iterdir()] == ["outputs"]


@pytest.mark.parametrize(
    "place",
    [
        "node",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("logs", "run/outputs", "logs/0")),
        pytest.param("logs/0/workers-0.out", marks=pytest.mark.slow),
    ],
)
def test_links_of_a_program_lead_nobody_to_files_of_this_machine(
    run: MakeSession, podman: PodmanService, tmp_path: Path, place: str
) -> None:
    victim = tmp_path / "victim"
    for file in ("logs/0/workers-0.out", "run/outputs/x"):
        (victim / file).parent.mkdir(parents=True)
        (victim / file).write_text("secret\n")
    source = victim if place == "node" else victim / place
    place = place if place == "node" else f"node/{place.replace('run/', f'{RUN}/')}"
    script = f"cd /muster/slot; mv {place} old; ln -s {source} {place}; exec sleep 1000"
    one = run(f"echo up; until [ -e $MUSTER_OUTPUTS/go ]; do sleep 0.01; done; {script}")
    one.start(0)
    one.ready(0)
    one._kill()
    (outputs,) = one.host_folder(0).glob("*/outputs")
    (outputs / "rank-0/go").touch()
    until((one.host_folder(0).parent / place).is_symlink, "there is a link")
    podman.podman("kill", f"muster-{one.plan.run_id}-0")
    one.replaced()
    assert "was killed" in one.ended_after_all(0)[0]["message"]
    assert one.close() == 0
    assert (victim / "logs/0/workers-0.out").read_text() == "secret\n"
    assert (victim / "run/outputs/x").read_text() == "secret\n"
    assert "secret" not in (one.folder / "logs/0/workers-0.out").read_text()
    assert not [
        path
        for path in (one.folder / "lost").rglob("*")
        if path.is_file() and not path.is_symlink() and "secret" in path.read_text()
    ]


def test_a_socket_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    with unix_sockets.listen(str(tmp_path), "socket"):
        (tmp_path / "node/socket").symlink_to(tmp_path / "socket")
        assert not containers.accepts(tmp_path / "node")
        (tmp_path / "other").symlink_to(tmp_path)
        assert not containers.accepts(tmp_path / "other")
        assert containers.accepts(tmp_path)


def test_the_logs_of_a_node_that_is_lost_while_its_supervisor_lags_are_complete(
    run: MakeSession, podman: PodmanService
) -> None:
    one = run("echo up; until [ -e $MUSTER_OUTPUTS/go ]; do sleep 0.01; done; seq 100000; sleep 99")
    one.start(0)
    one.ready(0)
    one.process.send_signal(signal.SIGSTOP)
    (outputs,) = one.host_folder(0).glob("*/outputs")
    (outputs / "rank-0/go").touch()
    log = next(outputs.parent.parent.glob("logs/0/workers-0.out"))
    until(lambda: log.read_bytes().endswith(b"\n100000\n"), "the node has written")
    podman.podman("kill", f"muster-{one.plan.run_id}-0")
    one.process.send_signal(signal.SIGCONT)
    one.ended_after_all(0)
    text = (one.folder / "logs/0/workers-0.out").read_text()
    assert text.split() == ["up", *map(str, range(1, 100001))]
    assert one.close() == 0
    assert not (one.folder / "lost").exists() or not list((one.folder / "lost").rglob("*.out"))


def next_of(one: Session, kind: str, rank: int) -> dict[str, Any]:
    """The next event of a kind about a node."""
    while True:
        event = one.event()
        if (event["event"], event.get("rank")) == (kind, rank):
            return event


def test_a_session_attaches_to_nodes_while_the_engine_does_not_answer(
    run: MakeSession, podman: PodmanService, restarted: None
) -> None:
    one = run(WAITS, 2)
    one.start(0, 1)
    one.ready(0, 1)
    one._kill()
    podman.stop()
    one.replaced()
    next_of(one, "NodeReachable", 0)
    one.kill(0)
    assert one.ended_after_all(0)[0]["signal"] == signal.SIGKILL
    podman.start()
    podman.podman("rm", "--force", "--time=0", f"muster-{one.plan.run_id}-1")
    assert one.ended_after_all(1)[1]["reason"] == "node_lost"
    assert one.close() == 0


def test_nodes_that_wait_for_an_engine_that_does_not_answer_say_so(
    run: MakeSession, podman: PodmanService, restarted: None
) -> None:
    one = run(WAITS, 2)
    one.start(0)
    one.ready(0)
    one._kill()
    podman.stop()
    one.replaced()
    one.start(1)
    queued = next_of(one, "NodeQueued", 1)
    text = f"the container engine at {podman.socket} cannot be reached: "
    assert queued["why"].startswith(text)
    podman.start()
    next_of(one, "NodeReady", 1)
    one.kill(0, 1)
    one.ended_after_all(0, 1)
    assert one.close() == 0


def test_a_first_session_needs_an_engine(own_home: Path, tmp_path: Path) -> None:
    text = profiles.profile_text("container", "container", {"socket": str(tmp_path / "absent")})
    profiles.write_profile(profiles.file_of(Home(own_home), "container"), text)
    engine = engine_named("container", Home(own_home))
    plan = make_plan("true")
    (own_home / "runs" / plan.run_id).mkdir(parents=True)
    context = RunContext(plan, Home(own_home), {}, sys.executable)
    with (
        closing(EventLoop()) as loop,
        pytest.raises(EngineError, match=r"no container engine answers .*absent: there is"),
    ):
        engine.open(context, RunLoop(loop, print), print)


@pytest.fixture
def losing(podman: PodmanService, tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """A socket before that of the service. The answer to the first request that begins with given
    bytes is lost."""
    listener = socket.socket(socket.AF_UNIX)
    path = tmp_path / "losing.sock"
    listener.bind(str(path))
    listener.listen(64)
    to_lose: list[bytes] = []

    def carry(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(podman.socket))
            request = client.recv(1 << 20)
            is_lost = bool(to_lose) and request.startswith(to_lose[0])
            if is_lost:
                to_lose.clear()
            server.sendall(request)
            other = threading.Thread(target=pump, args=(client, server), daemon=True)
            other.start()
            while part := server.recv(65536):
                if is_lost:
                    client.shutdown(socket.SHUT_RDWR)
                    break
                try:
                    client.sendall(part)
                except OSError:
                    break

    def pump(client: socket.socket, server: socket.socket) -> None:
        try:
            while part := client.recv(65536):
                server.sendall(part)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=carry, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()

    def lose(start: bytes) -> Path:
        to_lose.append(start)
        return path

    yield lose
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize("call", ["create?", "muster-", ""])
def test_a_call_whose_answer_is_lost_is_not_done_twice(
    run: MakeSession,
    podman: PodmanService,
    own_home: Path,
    losing: Callable[[bytes], Path],
    call: str,
) -> None:
    start = {"create?": b"POST /containers/create?", "": b"POST /networks/create"}
    path = losing(start.get(call, b"DELETE /containers/"))
    podman_service.add_engine(own_home, podman, socket=str(path))
    one = run(WAITS, network="cluster")
    one.start(0)
    one.ready(0)
    assert len(podman.containers(one.plan.run_id)) == 1
    one.kill(0)
    one.ended(0)
    assert one.close() == 0


# --- what is left


def test_what_a_killed_supervisor_has_left_is_removed(
    run: MakeSession, podman: PodmanService, own_home: Path
) -> None:
    one = run(WAITS, 2, network="cluster")
    one.start(0, 1)
    one.ready(0, 1)
    one._kill()
    run_id = one.plan.run_id
    assert len(podman.containers(run_id)) == 2
    engine_named("container", Home(own_home)).clean_up(run_id)
    assert podman.containers(run_id) == []
    assert f"muster-{run_id}" not in podman.networks()
    assert not (one.folder / "containers").exists()


def test_containers_are_removed_when_an_engine_answers_again(
    run: MakeSession, podman: PodmanService, restarted: None
) -> None:
    one = run("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", 2, network="cluster")
    one.start(0, 1)
    one.ready(0, 1)
    for rank in (0, 1):
        one.wait_for_output("up", rank)
    servers = one.servers()
    podman.stop()
    one.signal(signal.SIGTERM, 0, 1)
    one.ended_after_all(0, 1)
    assert one.process.stdin is not None
    one.process.stdin.close()  # which closes the session
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in servers), "servers have left")
    podman.refuse(8)
    podman.start()
    assert one.process.wait(240) == 0


def test_what_is_left_of_a_run_is_removed_with_the_run(
    podman: PodmanService, own_home: Path, client: Client
) -> None:
    podman_service.add_engine(own_home, podman)
    one = api.run(command="true", engine="container").wait(240)
    (own_home / "runs" / one.id / "containers").mkdir()  # as where it could not be removed
    label = f"muster.run={one.id}"
    podman.podman("create", "--label", label, "--label", "muster.slot=0", IMAGE, "true")
    podman_service.add_engine(own_home, podman, socket=str(own_home / "absent"))
    with pytest.raises(MusterError, match="is not deleted: its containers could not be removed"):
        one.delete()
    assert client.run(one.id).state == "SUCCEEDED"
    podman_service.add_engine(own_home, podman)
    one.delete()
    assert podman.containers(one.id) == []
    assert client.runs() == []


def test_that_nothing_is_left_has_to_be_confirmed(
    run: MakeSession, podman: PodmanService, own_home: Path, tmp_path: Path
) -> None:
    podman_service.add_engine(own_home, podman, socket=str(tmp_path / "absent"))
    with pytest.raises(EngineError, match="its containers could not be removed: no container eng"):
        engine_named("container", Home(own_home)).clean_up("r1")


# --- what containers have


def test_nodes_find_each_other_by_name_on_a_network_of_their_own(run: MakeSession) -> None:
    script = (
        "import socket, os; print(socket.gethostname(), len({socket.gethostbyname(n) for n in "
        "('node-0', 'node-1')}), flush=True)"
    )
    one = run(f'exec "$PYTHON" -c "{script}"', 2, network="cluster", env=python())
    one.start(0, 1)
    ends = one.ended(0, 1)
    assert {end["exit_code"] for end in ends.values()} == {0}
    assert [one.output(rank) for rank in (0, 1)] == ["node-0 2\n", "node-1 2\n"]
    assert one.close() == 0


def python() -> dict[str, str]:
    return {"PYTHON": sys.executable}


def test_the_user_of_an_image_runs_its_nodes(
    run: MakeSession, podman: PodmanService, own_home: Path, tmp_path: Path
) -> None:
    podman_service.add_engine(own_home, podman, image=podman_service.USERS_IMAGE)
    volume = MountPlan("volume:kept", "volume", "/mnt/kept", "MUSTER_MOUNT_KEPT")
    one = run("id -u; id -u > /mnt/kept/user; id -u > $MUSTER_OUTPUTS/own", mounts=(volume,))
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    assert one.close() == 0
    user = f"{podman_service.USER}\n"
    assert one.output() == user
    assert (own_home / "volumes/kept/user").read_text() == user
    assert (one.folder / "outputs/rank-0/own").read_text() == user


def test_mounts_are_at_their_paths(run: MakeSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in").write_text("in\n")
    mounts = (
        MountPlan(str(tmp_path / "data"), "directory", "/mnt/data", "MUSTER_MOUNT_DATA", True),
        MountPlan("scratch:run/s", "scratch", "/mnt/s", "MUSTER_MOUNT_S"),
    )
    command = (
        "cat /mnt/data/in; touch /mnt/data/out 2> /dev/null && echo writable; touch /mnt/s/$RANK"
    )
    command += "; until [ -e /mnt/s/0 ] && [ -e /mnt/s/1 ]; do sleep 0.01; done"
    one = run(command, 2, mounts=mounts)
    one.start(0, 1)
    one.ended(0, 1)
    assert one.output(0) == "in\n"
    assert one.close() == 0
