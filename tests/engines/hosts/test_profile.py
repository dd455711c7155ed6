"""The machines of a profile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.engines.hosts.profile import HostsProfile, Machine, read_address, read_settings
from muster.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("gpu1", Machine("gpu1")),
        ("ana@gpu1", Machine("gpu1", "ana")),
        ("gpu1:2222", Machine("gpu1", None, 2222)),
        ("a.b_c-d@gpu-1.lab_2.example:22", Machine("gpu-1.lab_2.example", "a.b_c-d", 22)),
        ("10.0.0.1:65535", Machine("10.0.0.1", None, 65_535)),
        ("::1", Machine("::1")),
        ("[::1]", Machine("::1")),
        ("ana@::1", Machine("::1", "ana")),
        ("ana@[2001:db8::2]:22", Machine("2001:db8::2", "ana", 22)),
        ("::ffff:10.0.0.1", Machine("::ffff:10.0.0.1")),
        ("fe80::1%eth0", Machine("fe80::1%eth0")),
        ("[fe80::1%eth0.5]:22", Machine("fe80::1%eth0.5", None, 22)),
    ],
)
def test_addresses(text: str, machine: Machine) -> None:
    assert read_address(text) == machine
    assert read_address(machine.name) == machine, "what people see can be used"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@gpu1",
        "ana@",
        "-oProxyCommand=sh",
        "ana@-oProxyCommand=sh",
        "-l@gpu1",
        "[-oProxyCommand=sh]",
        "gpu1 ",
        " gpu1",
        "gpu 1",
        "gpu1\n",
        "gpu1\x00",
        "gpu1;id",
        "$(id)",
        "`id`@gpu1",
        "~ana@gpu1",
        "a@b@c",
        "ssh://gpu1",
        "gpu1/",
        "gpü1",
        "gpu1:",
        "gpu1:ssh",
        "gpu1:-1",
        "gpu1:123456",
        "1:2:3",
        "::1::",
        "[::1",
        "::1]:22",
        "[]:22",
        "[gpu1]:22",
        "fe80::1%",
        "fe80::1%$(id)",
        "fe80::1%eth0 -v",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be \[USER@\]HOST\[:PORT\], not '"):
        read_address(text)


@pytest.mark.parametrize("text", ["gpu1:0", "gpu1:65536", "[::1]:00000", "ana@gpu1:99999"])
def test_ports_that_there_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="must be between 1 and 65535") as error:
        read_address(text)
    assert text in str(error.value)


@given(st.text(alphabet="ab1@:[].%-~ \n$;'\"/", max_size=12) | st.text(max_size=12))
def test_no_address_is_an_option_or_has_a_meaning_for_a_shell(text: str) -> None:
    try:
        machine = read_address(text)
    except ValueError:
        return
    for part in (machine.host, machine.user or "x"):
        assert part.isascii()
        assert part.isprintable()
        assert not part.startswith("-")
        assert not set(part) & set(" \t\"'$`;&|<>()*?[]{}~!#\\/@")
    assert read_address(machine.name) == machine


def test_a_long_address_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"must be \[USER@\]HOST"):
        read_address(":" * 100_000 + "x")


def settings(**given: Any) -> HostsProfile:
    return read_settings({"hosts": ["gpu1"], **given})


def test_the_defaults() -> None:
    assert settings() == HostsProfile((Machine("gpu1"),))
    assert settings().machines[0] == Machine("gpu1", None, None, None, 1, "python3")


def test_settings_of_all_machines_and_of_one() -> None:
    found = read_settings(
        {
            "hosts": ["ana@gpu1", {"address": "gpu2:22", "gpus": 0, "python": "~/env/bin/python"}],
            "gpus": 8,
            "slots": 2,
            "folder": "/scratch/my files",
            "queue": "/run/queue",
            "ssh_config": "~/.ssh/lab",
            "isolation_timeout": "10m",
        }
    )
    first = Machine("gpu1", "ana", None, 8, 2)
    second = Machine("gpu2", None, 22, 0, 2, "~/env/bin/python")
    expected = HostsProfile((first, second), "/scratch/my files", "/run/queue", "~/.ssh/lab", 600.0)
    assert found == expected


@pytest.mark.parametrize(
    "python", ["python3.11", "/usr/bin/python3", "~/v/bin/python", "venv/bin/python", "/opt/c++/p"]
)
def test_interpreters(python: str) -> None:
    assert settings(python=python).machines[0].python == python


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        ({"hosts": []}, "hosts", "must be a list of one machine or more"),
        ({"hosts": "gpu1"}, "hosts", "must be a list of one machine or more"),
        ({"hosts": [1]}, "hosts[0]", "must be a machine"),
        ({"hosts": [{}]}, "hosts[0]", "must be a machine"),
        ({"hosts": ["a", {"address": 1}]}, "hosts[1]", "must be a machine"),
        ({"hosts": ["a", "-v"]}, "hosts[1]", "must be [USER@]HOST[:PORT], not '-v'"),
        ({"hosts": ["a", {"address": "a"}]}, "hosts[1]", "a is listed twice"),
        ({"hosts": [{"address": "a", "slot": 1}]}, "hosts[0].slot", "unknown setting"),
        ({"hosts": [{"address": "a", "slots": 0}]}, "hosts[0].slots", "must be between 1 and"),
        ({"host": ["a"]}, "host", "unknown setting"),
        ({"gpus": -1}, "gpus", "must be between 0 and 1024, not -1"),
        ({"gpus": True}, "gpus", "must be between 0 and 1024, not true"),
        ({"gpus": 1.0}, "gpus", "must be between 0 and 1024, not 1.0"),
        ({"slots": 1025}, "slots", "must be between 1 and 1024, not 1025"),
        ({"slots": "2"}, "slots", "must be between 1 and 1024, not '2'"),
        ({"python": "-c"}, "python", "must be an interpreter, not '-c'"),
        ({"python": ""}, "python", "must be an interpreter, not ''"),
        ({"python": "~ana/python"}, "python", "must be an interpreter"),
        ({"python": "python3 -v"}, "python", "must be an interpreter"),
        ({"python": "$(id)"}, "python", "must be an interpreter"),
        ({"python": 3}, "python", "must be an interpreter, not 3"),
        ({"folder": "muster"}, "folder", "must be a path from / or ~/, not 'muster'"),
        ({"folder": "~ana/muster"}, "folder", "must be a path from / or ~/"),
        ({"folder": "/a\nb"}, "folder", "must be a path from / or ~/"),
        ({"folder": 1}, "folder", "must be a path from / or ~/, not 1"),
        ({"queue": "~/queue"}, "queue", "must be a path from /, not '~/queue'"),
        ({"ssh_config": "none"}, "ssh_config", "must be a path from / or ~/"),
        ({"isolation_timeout": "soon"}, "isolation_timeout", "'soon' is not a duration"),
        ({"isolation_timeout": 60}, "isolation_timeout", "60 has no unit"),
        ({"isolation_timeout": 0}, "isolation_timeout", "must be longer than 0"),
        ({"isolation_timeout": "0s"}, "isolation_timeout", "must be longer than 0"),
        ({"isolation_timeout": True}, "isolation_timeout", "must be a duration, not true"),
        ({"isolation_timeout": float("inf")}, "isolation_timeout", "inf is not a duration"),
    ],
)
def test_a_problem_has_its_key_as_path(given: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        settings(**given)
    (problem,) = error.value.problems
    assert problem.path == path
    assert problem.message.startswith(message), problem.message


def test_all_problems_are_reported_at_once() -> None:
    table = {"hosts": ["a b", {"address": "c", "gpus": -1}], "slots": 0, "queu": "/", "folder": ""}
    with pytest.raises(InvalidInput) as error:
        read_settings(table)
    paths = [problem.path for problem in error.value.problems]
    assert sorted(paths) == ["folder", "hosts[0]", "hosts[1].gpus", "queu", "slots"]
    assert 'did you mean "queue"?' in str(error.value)
