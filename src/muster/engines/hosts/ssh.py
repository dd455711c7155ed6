"""Connections to node servers on other machines, which ssh carries."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shlex
import stat
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.engines.hosts.profile import Machine
from muster.engines.node_program import node_program, program_key
from muster.errors import EngineError
from muster.node import starter
from muster.node.connection import Pipes
from muster.node.records import InvalidRecord, read
from muster.node.reservation import Offer, Situation

#: Settings of ssh that do not depend on the machine. It asks for nothing; connections to a machine
#: share one to its sshd, which is given up when it is silent, as after a change of networks.
_OPTIONS = {
    "BatchMode": "yes",
    "ClearAllForwardings": "yes",
    "ConnectTimeout": "10",
    "ControlMaster": "auto",
    "ControlPersist": "60",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "LogLevel": "ERROR",
    "RemoteCommand": "none",  # as the user's configuration may have for logins
    "RequestTTY": "no",
    "ServerAliveCountMax": "3",
    "ServerAliveInterval": "5",
}
#: What the program says when it starts (`node.starter`).
GREETING, UPLOAD = b"muster-node\n", b"muster-node upload\n"
#: Bytes that a machine may print before the program starts, as by its shell's start-up files; of a
#: line in the conversation that follows; of what is read at once.
_MAX_NOISE, _MAX_LINE, _CHUNK = 1 << 16, 1 << 20, 1 << 16
#: Seconds for ssh to end once it has closed its output.
_END_TIMEOUT = 0.25
#: Bytes of the path of a folder of sockets: that of a socket has at most 107, of which a name needs
#: 16, and ssh 17.
_MAX_FOLDER = 107 - 1 - 16 - 17
#: What a user gets from a shell that cannot start a program.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
#: The exit code of ssh when it fails itself, not the program.
_OWN_FAILURE = 255
_SSH_PORT = 22
#: Characters of an error of ssh that are shown.
_SHOWN = 300


class SshSettings(Struct, frozen=True):
    """How ssh is started."""

    #: The folder of the sockets of shared connections; private to the user.
    sockets: Path
    #: See `HostsProfile.ssh_config`.
    config: str | None = None
    #: Whether connections to a machine share one to its sshd; if not, each logs in.
    shared: bool = True

    def command(self, machine: Machine, words: Sequence[str]) -> list[str]:
        """The command line that runs these words on a machine, which its user's shell reads."""
        options = [f"-o{name}={value}" for name, value in _OPTIONS.items()]
        socket = self.sockets / self._socket_name(machine) if self.shared else "none"
        options.append(f"-oControlPath={socket}")
        if self.config is not None:
            options += ["-F", self.config]
        if machine.user is not None:
            options += ["-l", machine.user]
        if machine.port is not None:
            options += ["-p", str(machine.port)]
        return ["ssh", *options, "--", machine.host, f"exec {' '.join(map(_quoted, words))}"]

    def login(self, machine: Machine) -> str:
        """The command with which a person logs in."""
        words = [] if self.config is None else ["-F", self.config]
        words += [] if machine.port is None else ["-p", str(machine.port)]
        host = f"{machine.user}@{machine.host}" if machine.user else machine.host
        return shlex.join(["ssh", *words, host])

    def _socket_name(self, machine: Machine) -> str:
        """A short one. With another configuration, it may be another machine."""
        config = b""
        if self.config is not None:
            with contextlib.suppress(OSError):  # ssh says what is wrong
                config = Path(self.config).expanduser().read_bytes()
        parts = (machine.host, machine.user, machine.port, self.config, config)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _quoted(word: str) -> str:
    """A word for the machine's shell, which replaces a `~/` at its start."""
    home, rest = ("~/", word[2:]) if word.startswith("~/") else ("", word)
    return home + shlex.quote(rest)


def socket_folder() -> Path:
    """The folder of the sockets of shared connections: the user's, who alone can reach it. Raises
    EngineError."""
    uid = os.getuid()
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    # ssh gives some characters of the path a meaning
    plain = re.fullmatch(r"/[A-Za-z0-9_/.+-]+", base) is not None
    if plain and len(base) + len("/muster-ssh") <= _MAX_FOLDER and os.access(base, os.W_OK):
        folder = Path(base) / "muster-ssh"
    else:
        folder = Path(f"/tmp/muster-ssh-{uid}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise EngineError(f"no folder for the connections of ssh: {error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
        raise EngineError(f"{folder} is not a folder that only this user can use; remove it")
    return folder


class Lacks(OSError):  # noqa: N818
    """A machine can be reached, but lacks what is needed. The text says what."""


class Opening:
    """What is said on a connection until the node server talks: see `starter` and `node.bridge`.
    Does no I/O.

    settings: of the node server (`node.serve.Settings`). It reserves something of the machine if
    they say so. restarts: whether a server that does not run is started at once, if there is no
    need to wait for that; else `enter` and `start` do. absent: called if the server does not run,
    and is not started for that reason, which is a phrase; None: the caller decides.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        restarts: bool = False,
        absent: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._reserves = settings.get("reserve") is not None
        self._restarts, self._absent = restarts, absent
        self._started = False
        self._received = b""
        self._noise = 0  # bytes of what came before
        #: What is to be written.
        self.unsent = b""
        #: What the machine offers; None if it has not said so yet, and if the server runs already.
        self.offer: Offer | None = None
        #: What it waits for; None if it does not, or not yet.
        self.situation: Situation | None = None
        #: Whether it has entered the queue.
        self.entered = False
        #: Whether it has what it needs of the machine, or the server runs already.
        self.has = False
        #: Whether the node server talks from now on.
        self.done = False

    def enter(self, share: int) -> None:
        """Enter the queue of the machine. After its offer. share: how many units all nodes of its
        gang need there."""
        if not self.entered:
            self.entered = True
            self.unsent += b"enter %d\n" % share

    def start(self) -> None:
        """Have the server start. After `has`; nothing if it runs."""
        if not self.done:
            self.done = True
            self.unsent += b"start\n"

    def receive(self, data: bytes) -> bytes:
        """Take what has arrived. Returns what the node server has said. Raises OSError if the
        machine says what it should not, and Lacks."""
        self._received += data
        while not self.done and b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            if self._started:
                self._take(line)
            else:
                self._start(line + b"\n")
        if self.done:
            rest, self._received = self._received, b""
            return rest
        if self._started and len(self._received) > _MAX_LINE:
            raise OSError("it sends a line that is too long")
        if not self._started and self._noise + len(self._received) > _MAX_NOISE:
            raise OSError("it prints too much before the node program starts")
        return b""

    def _start(self, line: bytes) -> None:
        if line.endswith(UPLOAD):
            self.unsent += upload()
        elif not line.endswith(GREETING):
            self._noise += len(line)  # of the shell's start-up files
            return
        self._started = True
        self.unsent += json.dumps(self._settings).encode() + b"\n"
        self.done = self.has = not self._reserves

    def _take(self, line: bytes) -> None:
        """Take a line about the reservation. Raises OSError, Lacks."""
        try:
            ((kind, value),) = json.loads(line).items()
            if kind == "offer":
                self.offer = read(Offer, value)
                if self._restarts and self.offer.free:
                    self.enter(self.offer.wanted)
                else:
                    self._refuse_busy(self.offer.situation)
            elif kind == "waits":
                self.situation = read(Situation, value)
                self._refuse_busy(self.situation)  # since the offer
            elif kind == "has":
                self.has, self.done = True, not value
                if self._restarts:
                    self.start()
            elif kind == "lacks" and isinstance(value, str):
                self._refuse_absent(_shown(value))
                raise Lacks(_shown(value))
            else:
                raise InvalidRecord("unknown")
        except (ValueError, AttributeError, RecursionError) as error:
            raise OSError(f"unexpected reply {line[:_SHOWN]!r}: {error}") from None

    def _refuse_busy(self, situation: Situation) -> None:
        """The server does not run, and is not started, unless the caller decides that. Raises
        OSError."""
        if self._absent is not None and self._is_starting(situation):
            raise OSError("its server is starting")
        self._refuse_absent("others use it now")

    def _is_starting(self, situation: Situation) -> bool:
        """Whether an earlier connection starts the server, and may not know that it is lost."""
        own = self._settings.get("reserve", {}).get("owner", {})
        tickets = (*situation.holders, *situation.before)
        return any(
            (one.owner.run_id, one.owner.rank) == (own.get("run_id"), own.get("rank"))
            for one in tickets
        )

    def _refuse_absent(self, why: str) -> None:
        """The server does not run. why: it is not started. Raises OSError, unless the caller
        decides what follows."""
        if self._absent is not None:
            self._absent(why)
            raise OSError("its server does not run any more")


class HostPipes(Pipes):
    """A connection to the node server of a machine, which is started if it does not run.

    Nothing is received until the server talks. Its errors say what is wrong, for people.
    """

    def __init__(self, ssh: SshSettings, machine: Machine, folder: str, opening: Opening) -> None:
        """folder: the node server's, on the machine. Raises OSError."""
        self.opening = opening
        self._ssh, self._machine = ssh, machine
        self._said = b""  # by the node server, and not received yet
        self._process = start_program(ssh, machine, "open", folder)
        assert self._process.stdin is not None and self._process.stdout is not None
        super().__init__(self._process.stdout.fileno(), self._process.stdin.fileno())

    @property
    def waits_to_write(self) -> bool:
        """See `Pipes`."""
        return bool(self.opening.unsent)

    def advance(self) -> None:
        """Read and write what is possible until the node server talks. Raises OSError."""
        self._write()
        try:
            data = os.read(self.reading, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            raise OSError(self._why_ended())
        self._said += self.opening.receive(data)
        self._write()

    def recv(self, size: int) -> bytes:
        """See `Pipes`. Up to `size` bytes once the node server talks."""
        if not self.opening.done or self.opening.unsent:
            self.advance()
        if self._said:
            said, self._said = self._said[:size], self._said[size:]
            return said
        if not self.opening.done:
            raise BlockingIOError
        data = super().recv(size)
        if not data:
            raise OSError(self._why_ended())
        return data

    def close(self) -> None:
        """See `Pipes`. Ends ssh; connections that share its own stay."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self.reading = self.writing = -1
        self._process.wait()

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the next read tells the end
            while self.opening.unsent:
                sent = os.write(self.writing, self.opening.unsent[:_CHUNK])
                self.opening.unsent = self.opening.unsent[sent:]

    def _why_ended(self) -> str:
        """Why ssh has closed its output."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_END_TIMEOUT)  # it is about to end
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        text = self._process.stderr.read() or b""
        return why(self._ssh, self._machine, code, text.decode(errors="replace"))


def start_program(ssh: SshSettings, machine: Machine, *words: str) -> subprocess.Popen[bytes]:
    """Start the node program on a machine, as `node.starter` does. Its standard streams are pipes.
    Raises OSError."""
    python = (machine.python, "-ISc", _starter())
    command = ssh.command(machine, (*python, _key(), *words))
    pipe = subprocess.PIPE
    try:  # in a process group of its own, so that keys pressed on a terminal do not end it
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0)
    except FileNotFoundError:
        raise OSError("ssh is not installed on this machine") from None


@cache
def upload() -> bytes:
    """What is written to where the program is missing. Raises OSError."""
    program = node_program()
    return b"%d %s\n" % (len(program), hashlib.sha256(program).hexdigest().encode()) + program


@cache
def _key() -> str:
    """The program's key. Raises OSError."""
    return program_key()


@cache
def _starter() -> str:
    """Code that runs `node.starter`, whatever the shell that reads it. It names itself in lists of
    processes."""
    text = base64.b64encode(zlib.compress(Path(starter.__file__).read_bytes(), 9)).decode()
    return f'"muster-node";import base64,zlib;exec(zlib.decompress(base64.b64decode("{text}")))'


def why(ssh: SshSettings, machine: Machine, code: int | None, text: str) -> str:
    """Why ssh has ended, for people. code: its exit code, negative after a signal; None if it has
    not ended. text: what it has written to its standard error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last, login = _shown(lines[-1]) if lines else "", ssh.login(machine)
    if code in (_OWN_FAILURE, None):
        if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
            own = machine.port not in (None, _SSH_PORT)
            known = f"[{machine.host}]:{machine.port}" if own else machine.host
            found = re.search(r"^Offending .* key in (.*):\d+\r?$", text, re.MULTILINE)
            file = "" if found is None else f"-f {_shown(shlex.quote(found[1]))} "
            return (
                "its host key has changed, so it may be another machine; if that is expected: "
                f"`ssh-keygen {file}-R '{known}'`, then `{login}` once"
            )
        if "Host key verification failed" in text:
            return f"its host key is not known here: `{login}` once, and compare the key"
        if "Permission denied" in last:
            return f"it refuses the key ({last}): `{login} true` has to work without a password"
    hint = "install Python 3.9 or newer there, or name its path in the profile (`python`)"
    if code == _NOT_FOUND or (code == _NOT_EXECUTABLE and machine.python in text):
        return f"it cannot run {machine.python}: {hint}"
    if "Unknown option: -I" in text:  # of Python 2
        return f"its {machine.python} is too old: {hint}"
    return last.removeprefix("muster-node: ") or _how_it_ended(code)


def _shown(text: str) -> str:
    """What a machine says, for people."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN])


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "ssh has closed its output"
    return f"ssh was ended by signal {-code}" if code < 0 else f"ssh ended with exit code {code}"
