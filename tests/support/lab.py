"""Machines in network namespaces: each has a network and a queue of its own, and a real sshd.

    laptop --+
             +-- a switch, in a namespace of its own
    m1, m2 --+

Links can be cut, also in one direction, slowed down, and made lossy; machines can be frozen. Needs
root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.faults import until
from support.ssh_hosts import CACHE, CLIENT_CONFIG, CONFIG, SSHD, can_use_ssh, make_key


def _can_make_namespaces() -> bool:
    """Whether this process may do what a lab does."""
    if os.getuid() != 0 or not can_use_ssh() or not all(map(shutil.which, ("ip", "tc", "nft"))):
        return False
    argv = ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c"]
    script = "mount -t tmpfs none /mnt && ip link add v0 type veth peer name v1"
    return subprocess.run([*argv, script], capture_output=True, check=False).returncode == 0


needs_lab = pytest.mark.skipif(
    not _can_make_namespaces(),
    reason="needs root, namespaces, OpenSSH, iproute2 and nftables",
)
_NETWORK = "10.97.0"
#: Creates the namespaces of a machine, and keeps them.
_HOLD = (
    "hostname {name}; mount -t tmpfs none {queue}; mount --bind {own} {nodes}; "
    "mkdir -p /run/sshd; echo ready; cat"
)


class Machine:
    """One machine. sshd: whether it runs one."""

    def __init__(self, lab: Lab, name: str, number: int, *, sshd: bool) -> None:
        self.lab, self.name, self.address = lab, name, f"{_NETWORK}.{number}"
        self.folder = lab.folder / name
        self.folder.mkdir()
        #: What others see as the machine's files of nodes.
        self.nodes = self.folder / "nodes"
        self.nodes.mkdir()
        argv = ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c"]
        hold = _HOLD.format(name=name, queue=lab.queue, own=self.nodes, nodes=lab.nodes)
        pipe = subprocess.PIPE
        self._holder = subprocess.Popen([*argv, hold], stdin=pipe, stdout=pipe, text=True)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        self._network = os.readlink(f"/proc/{self._holder.pid}/ns/net")
        self._link = f"v{number}"  # its end at the switch
        run = lab.on_switch
        run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0")
        run("ip", "link", "set", "eth0", "netns", str(self._holder.pid))
        run("ip", "link", "set", self._link, "master", "switch", "up")
        for words in (
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
            "link set lo up",
        ):
            self.run("ip", *words.split())
        self.sshd: subprocess.Popen[bytes] | None = None
        if sshd:
            make_key(self.folder / "host_key")
            self.start_sshd()

    def inside(self, *argv: str) -> list[str]:
        """A command line that runs another one in the machine's namespaces."""
        return ["nsenter", "-t", str(self._holder.pid), "-n", "-u", "-m", "--", *argv]

    def run(self, *argv: str) -> str:
        """Run a command on the machine. Returns its output."""
        return _run(self.inside(*argv))

    def start_sshd(self) -> None:
        """Start its sshd, and wait until it accepts connections."""
        settings = (
            (CONFIG + CACHE)
            .format(folder=self.folder)
            .replace(f"{self.folder}/user_key.pub", f"{self.lab.folder}/user_key.pub")
        )
        (self.folder / "sshd_config").write_text(settings + "Port 22\n")
        argv = [SSHD, "-D", "-f", str(self.folder / "sshd_config"), "-E", str(self.folder / "log")]
        self.sshd = subprocess.Popen(self.inside(*argv))
        log = self.folder / "log"
        until(lambda: log.exists() and "listening on" in log.read_text(), "sshd listens")

    def kill_sshd(self) -> None:
        """Kill its sshd, with all of its connections."""
        assert self.sshd is not None
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if b"sshd" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                    os.kill(pid, signal.SIGKILL)
        self.sshd.wait(240)
        (self.folder / "log").unlink()

    def pids(self) -> list[int]:
        """The processes on the machine."""
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and os.readlink(f"/proc/{name}/ns/net") == self._network:
                    found.append(int(name))
        return found

    # --- faults

    def cut(self) -> None:
        """Cut its link."""
        self.lab.on_switch("ip", "link", "set", self._link, "down")

    def join(self) -> None:
        """Connect its link again."""
        self.lab.on_switch("ip", "link", "set", self._link, "up")

    def mute(self) -> None:
        """Lose what it sends; it still receives."""
        self._filter("drop")

    def deafen(self) -> None:
        """Lose what is sent to it; it still sends."""
        self._filter("drop", "input")

    def lose(self, percent: int) -> None:
        """Lose some of the packets that it sends."""
        self._filter(f"numgen random mod 100 < {percent} drop")

    def _filter(self, rule: str, hook: str = "output") -> None:
        chain = f"chain packets {{\ntype filter hook {hook} priority 0\n{rule}\n}}"
        table = f"table inet faults {{\n{chain}\n}}\n"
        subprocess.run(self.inside("nft", "-f", "-"), input=table, text=True, check=True)

    def unmute(self) -> None:
        """Lose nothing any more."""
        self.run("nft", "delete", "table", "inet", "faults")

    def slow_down(self, rate: str) -> None:
        """Limit what it sends, as to "200kbit"."""
        self.run(*f"tc qdisc add dev eth0 root tbf rate {rate} burst 8kb latency 200ms".split())

    def freeze(self) -> None:
        """Stop all of its processes."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue them."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self.pids():
            if pid != self._holder.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def end(self) -> None:
        """Kill everything on it."""
        for _ in range(2):  # what was forked meanwhile
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        _close(self._holder)
        if self.sshd is not None:
            self.sshd.wait(240)


class Lab:
    """The machines, and a home with an engine `hosts` that has them. folder: for all files."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        #: Where each machine has its queue, on a file system of its own.
        self.queue = folder / "queue"
        self.queue.mkdir()
        #: Where each machine has the files of nodes, in a folder of its own.
        self.nodes = folder / "nodes"
        self.nodes.mkdir()
        argv = ["unshare", "--net", "sh", "-c", "echo ready; cat"]
        pipe = subprocess.PIPE
        self._switch = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        assert self._switch.stdout is not None
        assert self._switch.stdout.readline() == "ready\n"
        self.on_switch("ip", "link", "add", "switch", "type", "bridge")
        self.on_switch("ip", "link", "set", "switch", "up")
        make_key(folder / "user_key")
        self.machines = [Machine(self, f"m{n}", n, sshd=True) for n in range(1, count + 1)]
        self.laptop = Machine(self, "laptop", 254, sshd=False)
        self.home = folder / "home"
        self.trust_all()
        (folder / "config").write_text(CLIENT_CONFIG.format(folder=folder, port=22))
        self.add_engine()

    def trust_all(self) -> None:
        """Know the host keys of all machines."""
        lines = []
        for one in self.machines:
            kind, key, *_ = (one.folder / "host_key.pub").read_text().split()
            lines.append(f"{one.address} {kind} {key}\n")
        (self.folder / "known_hosts").write_text("".join(lines))

    def add_engine(self, name: str = "hosts", **more: Any) -> None:
        """Write the profile of an engine that has all machines, without `muster engines add`."""
        from support.ssh_hosts import write_profile

        hosts = [one.address for one in self.machines]
        folder = str(self.nodes)
        config = str(self.folder / "config")
        paths = {"folder": folder, "queue": str(self.queue), "ssh_config": config}
        settings = {"hosts": hosts, "python": sys.executable, **paths, **more}
        write_profile(self.home, name, settings)

    def on_switch(self, *argv: str) -> str:
        """Run a command in the switch's network. Returns its output."""
        return _run(["nsenter", "-t", str(self._switch.pid), "-n", "--", *argv])

    # --- runs, from the laptop

    def command(self, *words: str, path: Path | None = None) -> subprocess.Popen[str]:
        """Start a `muster` command on the laptop. path: a folder with Muster; None: the usual."""
        argv = self.laptop.inside(sys.executable, "-m", "muster", *words)
        env = {**os.environ, "MUSTER_HOME": str(self.home)}
        if path is not None:
            env["PYTHONPATH"] = str(path)
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True)

    def muster(self, *words: str, path: Path | None = None) -> tuple[int, str, str]:
        """Run a `muster` command on the laptop. Returns its exit code and its output. path: see
        `command`."""
        with self.command(*words, path=path) as process:
            out, err = process.communicate(timeout=240)
            return process.returncode, out, err

    def start(self, script: str, nodes: int, *words: str, engine: str = "hosts") -> str:
        """Start a run, whose nodes run a script of sh. Returns its name."""
        argv = ["run", "--engine", engine, "--detach", "--nodes", str(nodes), *words]
        code, _, err = self.muster(*argv, "--", "sh", "-c", script)
        assert code == 0, err
        return err.split()[0]

    def supervisors(self) -> list[int]:
        """The supervisors on the laptop."""
        found = []
        for pid in self.laptop.pids():
            with contextlib.suppress(OSError):
                if b"muster: " in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def end(self) -> None:
        """Kill everything."""
        for one in (*self.machines, self.laptop):
            one.end()
        self._switch.kill()
        _close(self._switch)


#: Writes numbered lines until a file exists.
_COUNT = "until [ -e {flag} ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo last $i"


class Counting:
    """A run on both machines that counts until it is told to end. can_start: whether its nodes can
    start at once; if not, `begin` is to be called when they can."""

    def __init__(
        self, lab: Lab, *words: str, engine: str = "hosts", can_start: bool = True
    ) -> None:
        self.lab = lab
        self.flag = lab.folder / "flag"
        self.name = lab.start(_COUNT.format(flag=self.flag), 2, *words, engine=engine)
        if can_start:
            self.begin()

    def begin(self) -> None:
        """Wait until it counts."""
        self.until_state("IN_PROGRESS")
        self.wait_for_lines()

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.lab.home / "runs" / str(self.status()["id"])

    def status(self) -> dict[str, Any]:
        code, out, err = self.lab.muster("status", self.name, "--json")
        assert code == 0, err
        status: dict[str, Any] = json.loads(out)
        return status

    def until_state(self, state: str) -> None:
        until(lambda: self.status()["state"] == state, state, pause=0.2)

    def unreachable(self) -> set[int]:
        return {node["rank"] for node in self.status()["nodes"] if node["unreachable_since"]}

    def until_unreachable(self, *ranks: int) -> None:
        until(lambda: self.unreachable() == set(ranks), f"{ranks} are unreachable", pause=0.2)

    def log(self, rank: int, attempt: int = 0) -> list[str]:
        return (self.folder / f"logs/{attempt}/workers-{rank}.out").read_text().splitlines()

    def wait_for_lines(self) -> None:
        """Wait until more has been written by each node."""
        before = [len(self.log(rank)) for rank in range(2)]
        until(lambda: all(len(self.log(n)) > before[n] for n in range(2)), "more lines", pause=0.2)

    def events(self, kind: str) -> list[dict[str, Any]]:
        code, out, err = self.lab.muster("events", self.name, "--json")
        assert code == 0, err
        return [entry for entry in json.loads(out) if entry["kind"] == kind]

    def end(self) -> None:
        """Let it end, and check that it has been a whole one."""
        self.flag.touch()
        self.until_state("SUCCEEDED")
        assert self.events("restart") == []
        for rank in range(2):
            *lines, last = self.log(rank)
            assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
            assert last == f"last {len(lines)}"


def _close(process: subprocess.Popen[str]) -> None:
    """Wait for a process that was killed."""
    process.wait(240)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def laboratory(folder: Path, count: int) -> Iterator[Lab]:
    """A lab, which is ended."""
    lab = Lab(folder, count)
    try:
        yield lab
    finally:
        lab.end()


def wait(seconds: float) -> None:
    """Let time pass, for a fault that lasts."""
    time.sleep(seconds)
