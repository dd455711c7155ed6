"""Connections over ssh: what is said on them, and about them. With a real sshd: test_hosts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from muster.engines.hosts.profile import Machine
from muster.engines.hosts.ssh import (
    GREETING,
    UPLOAD,
    HostPipes,
    Lacks,
    Opening,
    SshSettings,
    socket_folder,
    upload,
    why,
)
from muster.errors import EngineError
from support.faults import until

OWNER = {"user": "ana@pc", "run_id": "r1", "run": "r-1", "rank": 0}
SETTINGS = {"run_id": "r1", "rank": 0, "reserve": {"slots": 1, "owner": OWNER}}
LINE = json.dumps(SETTINGS).encode() + b"\n"
TICKET = {
    "owner": {"user": "bob@pc", "run_id": "x", "run": "x-1", "rank": 0},
    "since": 1,
    "wanted": 1,
}
BUSY = {"free": 0, "holders": [TICKET], "before": []}


def offer(situation: Mapping[str, Any]) -> bytes:
    said = {"offer": {"queue": "q", "wanted": 2, "situation": situation}}
    return json.dumps(said).encode() + b"\n"


OFFER, FREE = offer(BUSY), offer({"free": 2, "holders": [], "before": []})
WAITS = json.dumps({"waits": BUSY}).encode() + b"\n"
HAS = b'{"has": ["gpu0", "gpu1"]}\n'
RUNS = b'{"has": []}\n'
SSH = SshSettings(Path("/run/s"))


def opening(*, restarts: bool = False, absent: Callable[[str], None] | None = None) -> Opening:
    return Opening(SETTINGS, restarts=restarts, absent=absent)


def test_the_steps_of_a_conversation() -> None:
    one = opening()
    assert one.receive(GREETING) == b""
    assert one.unsent == LINE
    one.unsent = b""
    one.receive(OFFER)
    assert one.offer is not None
    assert (one.offer.queue, one.offer.wanted, one.offer.free) == ("q", 2, False)
    assert (one.unsent, one.entered) == (b"", False)
    one.enter(4)
    one.enter(4)
    assert (one.unsent, one.entered) == (b"enter 4\n", True)
    one.unsent = b""
    one.receive(WAITS)
    assert one.situation is not None
    assert one.situation.holders[0].owner.user == "bob@pc"
    one.receive(HAS)
    assert (one.has, one.done, one.unsent) == (True, False, b"")
    one.start()
    one.start()
    assert (one.done, one.unsent) == (True, b"start\n")
    assert one.receive(b"hello") == b"hello"


def test_a_server_is_started_again_on_a_free_machine() -> None:
    one = opening(restarts=True, absent=pytest.fail)
    one.receive(UPLOAD + FREE + HAS)
    assert one.unsent == upload() + LINE + b"enter 2\n" + b"start\n"
    assert one.done


@pytest.mark.parametrize("said", [OFFER, FREE + WAITS])
def test_a_server_is_not_started_again_on_a_machine_in_use(said: bytes) -> None:
    found: list[str] = []
    one = opening(restarts=True, absent=found.append)
    with pytest.raises(OSError, match=r"^its server does not run any more$"):
        one.receive(GREETING + said)
    assert found == ["others use it now"]


def test_a_server_is_not_started_again_on_a_machine_that_lacks_something() -> None:
    found: list[str] = []
    one = opening(restarts=True, absent=found.append)
    with pytest.raises(OSError, match=r"^its server does not run any more$"):
        one.receive(GREETING + b'{"lacks": "it has no GPUs"}\n')
    assert found == ["it has no GPUs"]


@pytest.mark.parametrize("said", [FREE, OFFER])
def test_a_server_that_is_to_leave_is_not_started_again(said: bytes) -> None:
    found: list[str] = []
    one = opening(absent=found.append)
    with pytest.raises(OSError, match=r"^its server does not run any more$"):
        one.receive(GREETING + said)
    assert len(found) == 1


def test_a_server_that_an_earlier_connection_starts_is_not_absent() -> None:
    """It has the place of this node, and does not answer yet."""
    taken = {**BUSY, "holders": [{**TICKET, "owner": OWNER}]}
    one = opening(restarts=True, absent=pytest.fail)
    with pytest.raises(OSError, match=r"^its server is starting$"):
        one.receive(GREETING + offer(taken))


def test_a_server_that_runs_talks_at_once() -> None:
    one = opening()
    assert one.receive(GREETING + RUNS + b"\0hel") == b"\0hel"
    assert (one.has, one.done, one.offer, one.entered) == (True, True, None, False)
    one.start()
    assert one.unsent == LINE, "it is not told to start"
    assert one.receive(b"lo\n") == b"lo\n"


def test_without_a_reservation_the_server_talks_at_once() -> None:
    one = Opening({"run_id": "r1"})
    assert one.receive(GREETING + b"hello") == b"hello"
    assert one.done


@pytest.mark.parametrize(
    "noise", [b"", b"Welcome!\n\nYou have mail.\n", b"no line break: ", b"\xff\0"]
)
def test_byte_by_byte_and_after_noise(noise: bytes) -> None:
    one = opening(restarts=True)
    said = b""
    for byte in noise + GREETING + FREE + HAS + b"hello\n":
        said += one.receive(bytes([byte]))
    assert said == b"hello\n"
    assert one.unsent == LINE + b"enter 2\nstart\n"


@pytest.mark.parametrize("noise", [b"x", b"many lines\n"])
def test_too_much_noise(noise: bytes) -> None:
    one = opening()
    with pytest.raises(OSError, match="it prints too much before the node program starts"):
        for _ in range(1000):
            one.receive(noise * 100)


def test_a_line_that_is_too_long() -> None:
    one = opening()
    one.receive(GREETING)
    with pytest.raises(OSError, match="it sends a line that is too long"):
        for _ in range(20):
            one.receive(b"x" * 65_536)


@pytest.mark.parametrize(
    "line",
    [
        b"Segmentation fault\n",
        b"\n",
        b"[]\n",
        b"{}\n",
        b'"has"\n',
        b'{"has": [], "offer": 1}\n',
        b'{"more": 1}\n',
        b'{"offer": null}\n',
        b'{"offer": {"queue": "q"}}\n',
        b'{"waits": {"free": "none"}}\n',
        b'{"waits": {"free": NaN}}\n',
        b'{"lacks": 1}\n',
        b"\xff\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_a_machine_should_not_say(line: bytes) -> None:
    one = opening()
    one.receive(GREETING)
    with pytest.raises(OSError, match=r"^unexpected reply b") as error:
        one.receive(line)
    assert len(str(error.value)) < 1000


def test_what_a_machine_lacks() -> None:
    one = opening()
    one.receive(GREETING)
    with pytest.raises(Lacks, match=r"^it has no GPUs\?, and 1 are needed$"):
        one.receive(b'{"lacks": "it has no GPUs\\u001b, and 1 are needed"}\n')


# --- the command line


def test_the_command_line() -> None:
    ssh = SshSettings(Path("/run/s"), "/etc/my config")
    words = ("~/my env/python", "-c", "import sys; print('x')", "~/nodes/r1-0", "$HOME", "~")
    argv = ssh.command(Machine("gpu1", "ana", 2222), words)
    assert argv[0] == "ssh"
    assert "-oBatchMode=yes" in argv
    end = argv.index("--")
    assert argv[end - 6 : end] == ["-F", "/etc/my config", "-l", "ana", "-p", "2222"]
    assert argv[end + 1] == "gpu1"
    (line,) = argv[end + 2 :]
    shell = ["sh", "-c", line.replace("exec ~", "printf '%s\\n' ~")]
    done = subprocess.run(
        shell, env={"HOME": "/home/ana"}, capture_output=True, check=True, text=True
    )
    assert done.stdout.splitlines() == [
        "/home/ana/my env/python",
        "-c",
        "import sys; print('x')",
        "/home/ana/nodes/r1-0",
        "$HOME",
        "~",
    ]


def test_what_is_not_given_is_left_to_the_configuration() -> None:
    argv = SSH.command(Machine("::1"), ("true",))
    assert not {"-F", "-l", "-p"} & set(argv)
    assert argv[-3:] == ["--", "::1", "exec true"]


def test_each_machine_has_a_socket_with_a_short_name() -> None:
    machines = [Machine("a"), Machine("b"), Machine("a", "u"), Machine("a", None, 22)]
    machines.append(Machine("x" * 1000))
    names = {SSH._socket_name(machine) for machine in machines}
    names.add(SshSettings(Path("/run/s"), "/c")._socket_name(Machine("a")))
    assert len(names) == len(machines) + 1
    assert {len(name) for name in names} == {16}
    assert SSH._socket_name(Machine("a", gpus=1)) == SSH._socket_name(Machine("a", python="p"))


@pytest.mark.skipif(not shutil.which("ssh"), reason="OpenSSH is not installed")
def test_ssh_accepts_the_options() -> None:
    argv = SSH.command(Machine("gpu1", "ana", 2222), ("true",))
    argv[1:1] = ["-G", "-F", "/dev/null"]
    argv.remove("exec true")
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert found["controlpath"].startswith("/run/s/")
    assert (found["user"], found["port"], found["batchmode"]) == ("ana", "2222", "yes")


@pytest.mark.parametrize(
    ("name", "used"),
    [("run", True), ("x" * 60, False), ("100%h", False), ("a b", False), ("missing/run", False)],
)
def test_the_folder_of_sockets(name: str, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(f"/tmp/ssh-test-{os.getpid()}")
    folder = base / name
    (folder if "/" not in name else base).mkdir(parents=True)
    try:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        found = socket_folder()
        assert found == (folder / "muster-ssh" if used else Path(f"/tmp/muster-ssh-{os.getuid()}"))
        assert stat.S_IMODE(found.stat().st_mode) == 0o700
        assert socket_folder() == found
        longest = f"{found}/{SSH._socket_name(Machine('a'))}.{'x' * 16}"
        assert len(longest) <= 107
    finally:
        shutil.rmtree(base)


def test_a_folder_of_sockets_that_others_can_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = Path(f"/tmp/ssh-test-{os.getpid()}")
    (base / "muster-ssh").mkdir(parents=True)
    try:
        (base / "muster-ssh").chmod(0o755)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
        with pytest.raises(EngineError, match="is not a folder that only this user can use"):
            socket_folder()
    finally:
        shutil.rmtree(base)


# --- why ssh has ended: texts of OpenSSH 9.2

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r
Host key for gpu1 has changed and you have requested strict checking.\r
Host key verification failed.\r
"""
UNKNOWN = """\
No ED25519 host key is known for gpu1 and you have requested strict checking.\r
Host key verification failed.\r
"""
INSTALL = "install Python 3.9 or newer there, or name its path in the profile (`python`)"


@pytest.mark.parametrize(
    ("machine", "code", "text", "says"),
    [
        (
            Machine("gpu1"),
            255,
            CHANGED,
            "its host key has changed, so it may be another machine; if that is expected: "
            "`ssh-keygen -R 'gpu1'`, then `ssh gpu1` once",
        ),
        (
            Machine("gpu1", "ana", 2222),
            255,
            CHANGED,
            "its host key has changed, so it may be another machine; if that is expected: "
            "`ssh-keygen -R '[gpu1]:2222'`, then `ssh -p 2222 ana@gpu1` once",
        ),
        (
            Machine("gpu1"),
            255,
            CHANGED.replace("Host key for", "Offending RSA key in /a b/known:3\r\nHost key for"),
            "its host key has changed, so it may be another machine; if that is expected: "
            "`ssh-keygen -f '/a b/known' -R 'gpu1'`, then `ssh gpu1` once",
        ),
        (
            Machine("gpu1", "ana", 22),
            255,
            CHANGED,
            "its host key has changed, so it may be another machine; if that is expected: "
            "`ssh-keygen -R 'gpu1'`, then `ssh -p 22 ana@gpu1` once",
        ),
        (
            Machine("gpu1"),
            255,
            UNKNOWN,
            "its host key is not known here: `ssh gpu1` once, and compare the key",
        ),
        (
            Machine("gpu1", "ana"),
            255,
            "ana@gpu1: Permission denied (publickey).\r\n",
            "it refuses the key (ana@gpu1: Permission denied (publickey).): "
            "`ssh ana@gpu1 true` has to work without a password",
        ),
        (
            Machine("gpu1"),
            255,
            "ssh: connect to host gpu1 port 22: Connection refused\r\n",
            "ssh: connect to host gpu1 port 22: Connection refused",
        ),
        (
            Machine("gpu1"),
            255,
            "ssh: Could not resolve hostname gpu1: Name or service not known\r\n",
            "ssh: Could not resolve hostname gpu1: Name or service not known",
        ),
        (
            Machine("gpu1"),
            255,
            "Timeout, server gpu1 not responding.\r\n",
            "Timeout, server gpu1 not responding.",
        ),
        (
            Machine("gpu1"),
            127,
            "bash: line 1: exec: python3: not found\n",
            f"it cannot run python3: {INSTALL}",
        ),
        (
            Machine("gpu1", python="/opt/python"),
            126,
            "sh: 1: exec: /opt/python: Permission denied\n",
            f"it cannot run /opt/python: {INSTALL}",
        ),
        (
            Machine("gpu1", python="python2"),
            2,
            "Unknown option: -I\nusage: python2 [option] ... [-c cmd | -m mod | file | -] [arg]\n"
            "Try `python -h' for more information.\n",
            f"its python2 is too old: {INSTALL}",
        ),
        (
            Machine("gpu1"),
            1,
            "Python 3.9 or newer is needed, and /usr/bin/python3 is 3.6\n",
            "Python 3.9 or newer is needed, and /usr/bin/python3 is 3.6",
        ),
        (
            Machine("gpu1"),
            1,
            "muster-node: [Errno 13] Permission denied: '/data/r1-0'\n",
            "[Errno 13] Permission denied: '/data/r1-0'",
        ),
        (Machine("gpu1"), 1, "a\x1b[2J\n\n", "a?[2J"),
        (Machine("gpu1"), 1, "x" * 1000, "x" * 300),
        (Machine("gpu1"), 255, "", "ssh ended with exit code 255"),
        (Machine("gpu1"), -9, "", "ssh was ended by signal 9"),
        (Machine("gpu1"), None, " \n", "ssh has closed its output"),
    ],
)
def test_why(machine: Machine, code: int | None, text: str, says: str) -> None:
    assert why(SSH, machine, code, text) == says


def test_how_to_log_in_with_another_configuration() -> None:
    found = SshSettings(Path("/s"), "/my config").login(Machine("gpu1", "ana", 22))
    assert shlex.split(found) == ["ssh", "-F", "/my config", "-p", "22", "ana@gpu1"]
    assert "`ssh -F /c gpu1` once" in why(
        SshSettings(Path("/s"), "/c"), Machine("gpu1"), 255, UNKNOWN
    )


# --- with programs in the place of ssh


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A shell script that is run as ssh."""
    path = tmp_path / "bin" / "ssh"
    path.parent.mkdir()
    path.touch(0o755)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    yield path


def pipes(*, restarts: bool = True) -> HostPipes:
    return HostPipes(SSH, Machine("gpu1"), "/nodes/r1-0", opening(restarts=restarts))


def received(one: HostPipes) -> bytes:
    """What it receives until its end."""
    found = b""

    def ended() -> bool:
        nonlocal found
        try:
            found += one.recv(3)
        except BlockingIOError:
            return False
        except OSError as error:
            found += str(error).encode()
            return True
        return False

    until(ended, pause=0.001)
    return found


def test_the_program_is_uploaded_and_the_server_talks(fake_ssh: Path, tmp_path: Path) -> None:
    size = len(upload())
    fake_ssh.write_text(f"""#!/bin/sh
echo noise; printf {shlex.quote(UPLOAD.decode())}
head -c {size} > {tmp_path}/program
read settings; echo "$settings" > {tmp_path}/settings
printf {shlex.quote((FREE + HAS).decode())}
read first; read second; echo "$first,$second" > {tmp_path}/told
printf hello
echo why >&2; exit 3
""")
    one = pipes()
    try:
        assert one.waits_to_write is False
        assert received(one) == b"hellowhy"
    finally:
        one.close()
    assert (tmp_path / "program").read_bytes() == upload()
    assert (tmp_path / "settings").read_bytes() == LINE
    assert (tmp_path / "told").read_text() == "enter 2,start\n"


def test_one_that_ends_at_once(fake_ssh: Path) -> None:
    fake_ssh.write_text(
        "#!/bin/sh\necho 'ana@gpu1: Permission denied (publickey).' >&2; exit 255\n"
    )
    one = pipes()
    try:
        assert received(one).startswith(b"it refuses the key")
    finally:
        one.close()


def test_one_that_ends_during_the_upload(fake_ssh: Path) -> None:
    fake_ssh.write_text(
        "#!/bin/sh\necho muster-node upload; exec 0<&-; echo no space >&2; exit 1\n"
    )
    one = pipes()
    try:
        assert received(one) == b"no space"
    finally:
        one.close()


def test_one_that_closes_its_output_and_stays(fake_ssh: Path) -> None:
    fake_ssh.write_text("#!/bin/sh\nexec >&-; exec sleep 1000\n")
    one = pipes()
    try:
        assert received(one) == b"ssh has closed its output"
    finally:
        one.close()


def test_closing_leaves_no_process_and_no_descriptor(fake_ssh: Path) -> None:
    fake_ssh.write_text("#!/bin/sh\nexec sleep 1000\n")
    before = os.listdir("/proc/self/fd")
    one = pipes()
    pid = one._process.pid
    assert os.getpgid(pid) == pid, "a signal of the terminal does not reach it"
    with pytest.raises(BlockingIOError):
        one.recv(1)
    one.close()
    one.close()
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def test_ssh_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match=r"^ssh is not installed on this machine$"):
        pipes()
