"""Where supervisors listen for nodes."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from muster.engines.remote.dialing import first_free
from muster.engines.remote.port_range import read_ports


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("7000-7100", (7000, 7100)),
        ("7000", (7000, 7000)),
        (7000, (7000, 7000)),
        ("7100-7000", None),
        ("0-10", None),
        ("7000-65536", None),
        ("7000-", None),
        (True, None),
    ],
)
def test_a_range_of_ports(text: object, ports: tuple[int, int] | None) -> None:
    assert read_ports(text) == ports


class Ports:
    """Ports of a machine: those that are given are in use."""

    def __init__(self, *used: int, code: int = errno.EADDRINUSE) -> None:
        self._used, self._code = used, code
        self.tried: list[int] = []

    def listen(self, port: int) -> Any:
        self.tried.append(port)
        if port in self._used:
            raise OSError(self._code, "no")
        return port


@pytest.mark.parametrize(
    ("before", "ports", "tried"),
    [(0, None, [0]), (0, (5, 9), [5, 6, 7]), (6, (5, 9), [6]), (8, None, [8])],
)
def test_the_first_free_port_is_taken(
    before: int, ports: tuple[int, int] | None, tried: list[int]
) -> None:
    used = Ports(5) if before else Ports(5, 6)
    assert first_free(used.listen, before, ports) == tried[-1]
    assert used.tried == tried


def test_all_ports_are_in_use() -> None:
    with pytest.raises(OSError, match="all ports from 5 to 6 are in use: set more `ports`"):
        first_free(Ports(5, 6).listen, 0, (5, 6))


def test_the_port_of_nodes_that_run_is_the_only_one() -> None:
    with pytest.raises(OSError, match="no"):
        first_free(Ports(7).listen, 7, (5, 9))


def test_another_error_is_the_same_at_all_ports() -> None:
    used = Ports(5, code=errno.EADDRNOTAVAIL)
    with pytest.raises(OSError, match="no"):
        first_free(used.listen, 0, (5, 9))
    assert used.tried == [5]
