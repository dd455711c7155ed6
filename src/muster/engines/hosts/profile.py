"""The machines of an engine `hosts`, as its profile lists them (`engines.profiles`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.node.reservation import FOLDER
from muster.spec.quantities import is_bare_number, no_unit, parse_duration
from muster.spec.toml_file import unknown_setting
from muster.spec.wording import Refused, say, short

#: [USER@]HOST[:PORT]; an IPv6 address in brackets if a port follows. Nothing that ssh, or the shell
#: that it starts there, could take for something else.
_ADDRESS = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?"
    r"(?:\[(?P<six>[^]\[@]+)\]|(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
#: An IPv6 address, perhaps of one interface (`fe80::1%eth0`); `ipaddress` checks the rest.
_SIX = re.compile(r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?")
#: A path from / or ~/, or the name of a program.
_PYTHON = re.compile(r"(?:~?/)?[A-Za-z0-9_.+][A-Za-z0-9_./+-]*")
_MOST = 65_535


class Machine(Struct, frozen=True):
    """A machine that ssh reaches."""

    #: A host name, an address, or a name in ssh's configuration.
    host: str
    #: None: as ssh's configuration says.
    user: str | None = None
    #: None: as ssh's configuration says.
    port: int | None = None
    #: How many GPUs runs may use. None: all that are found there.
    gpus: int | None = None
    #: How many nodes of one run it runs at a time; without GPUs, of all runs.
    slots: int = 1
    #: The interpreter of Muster's program there, and of `python` jobs: a path, or a name on PATH.
    python: str = "python3"

    @property
    def name(self) -> str:
        """For people, as in the profile."""
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{self.user}@" * bool(self.user) + host + f":{self.port}" * bool(self.port)


class HostsProfile(Struct, frozen=True):
    """What an engine `hosts` is made of."""

    machines: tuple[Machine, ...]
    #: Where nodes have their files there.
    folder: str = "~/.local/state/muster-nodes"
    #: The folder with the queue for a machine there, the same for all of its users.
    queue: str = FOLDER
    #: A configuration file of ssh in place of the user's (`ssh -F`). None: the user's.
    ssh_config: str | None = None
    #: Seconds without contact after which a machine ends its node by itself, and another one may
    #: take its place. None: never.
    isolation_timeout: float | None = None


_OF_MACHINES = ("gpus", "slots", "python")
#: What the paths start with. All users of a machine have to mean the same queue.
_PATHS = {"folder": ("/", "~/"), "queue": ("/",), "ssh_config": ("/", "~/")}
_KEYS = ("hosts", *_OF_MACHINES, *_PATHS, "isolation_timeout")


def read_address(text: str) -> Machine:
    """A machine from [USER@]HOST[:PORT]. Raises ValueError with the reason."""
    user, at, host = text.rpartition("@")
    # one without a port may lack the brackets
    found = _ADDRESS.fullmatch(f"{user}{at}[{host}]" if _is_six(host) else text)
    if found is None or (found["six"] is not None and not _is_six(found["six"])):
        raise ValueError(f"must be [USER@]HOST[:PORT], not {short(text)}")
    port = None if found["port"] is None else int(found["port"])
    if port is not None and not 1 <= port <= _MOST:
        raise ValueError(f"the port of {text} must be between 1 and {_MOST}")
    return Machine(found["six"] or found["host"], found["user"], port)


def _is_six(text: str) -> bool:
    """Whether it is an IPv6 address."""
    if ":" not in text or not _SIX.fullmatch(text):
        return False
    from ipaddress import IPv6Address  # few are given as addresses

    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def read_settings(table: Mapping[str, Any]) -> HostsProfile:
    """The profile with these settings, as TOML has them. Raises InvalidInput with every problem;
    their paths are keys."""
    problems = list(_problems(table))
    if problems:
        raise InvalidInput(*problems)
    common = {key: table[key] for key in _OF_MACHINES if key in table}
    timeout = table.get("isolation_timeout")
    return HostsProfile(
        tuple(_machine(given, common) for given in table["hosts"]),
        isolation_timeout=None if timeout is None else parse_duration(timeout),
        **{key: table[key] for key in _PATHS if key in table},
    )


def _machine(given: str | Mapping[str, Any], common: Mapping[str, Any]) -> Machine:
    if isinstance(given, str):
        return replace(read_address(given), **common)
    own = {key: value for key, value in given.items() if key != "address"}
    return replace(read_address(given["address"]), **{**common, **own})


def _problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _unknown_keys(table, _KEYS, "")
    yield from _setting_problems(table, "")
    for key, starts in _PATHS.items():
        path = table.get(key, "/")
        plain = isinstance(path, str) and path.isprintable()
        if not plain or not path.startswith(starts):
            text = f"must be a path from {' or '.join(starts)}, not {say(path)}"
            yield Problem(key, text)
    yield from _timeout_problems(table.get("isolation_timeout", "1s"))
    hosts = table.get("hosts")
    if not isinstance(hosts, list) or not hosts:
        hint = 'as in hosts = ["ana@gpu1", "gpu2:2222"]'
        yield Problem("hosts", "must be a list of one machine or more", hint)
        return
    seen: set[object] = set()
    for number, given in enumerate(hosts):
        path = f"hosts[{number}]"
        address = given
        if isinstance(given, dict):
            yield from _unknown_keys(given, ("address", *_OF_MACHINES), path)
            yield from _setting_problems(given, f"{path}.")
            address = given.get("address")
        if not isinstance(address, str):
            hint = 'as in "ana@gpu1" or {address = "gpu2", gpus = 4}'
            yield Problem(path, "must be a machine", hint)
            continue
        try:
            machine = read_address(address)
        except ValueError as error:
            yield Problem(path, str(error))
            continue
        if machine in seen:
            yield Problem(path, f"{address} is listed twice", "`slots` lets it run several nodes")
        seen.add(machine)


def _timeout_problems(timeout: object) -> Iterator[Problem]:
    try:
        seconds = parse_duration(timeout)
    except Refused as error:
        yield Problem("isolation_timeout", error.message, error.hint)
        return
    if is_bare_number(timeout):
        yield Problem("isolation_timeout", *no_unit(timeout, '"'))
    elif seconds <= 0:
        hint = 'as in "10m"; without the setting, it never ends'
        yield Problem("isolation_timeout", "must be longer than 0", hint)


def _unknown_keys(table: Mapping[str, Any], known: tuple[str, ...], path: str) -> Iterator[Problem]:
    for key in table:
        if key not in known:
            yield unknown_setting(f"{path}.{key}" if path else key, key, known)


def _setting_problems(table: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for key, least in (("gpus", 0), ("slots", 1)):
        value = table.get(key, least)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 1024:
            yield Problem(path + key, f"must be between {least} and 1024, not {say(value)}")
    python = table.get("python", "python3")
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        hint = "a path, or the name of a program there"
        yield Problem(f"{path}python", f"must be an interpreter, not {say(python)}", hint)
