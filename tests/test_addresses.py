"""Which hosts are this machine."""

from __future__ import annotations

import pytest

from muster.addresses import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "10.0.0.1", "0.0.0.0", "127.example.org", "localhost.x"])
def test_others(host: str) -> None:
    assert not is_loopback(host)
