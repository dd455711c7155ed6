"""Which hosts are this machine, and which URLs are those of servers."""

from __future__ import annotations

import pytest

from muster.addresses import is_loopback, is_server_url


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "10.0.0.1", "0.0.0.0", "127.example.org", "localhost.x"])
def test_others(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "url", ["http://10.0.0.5:8431", "https://jobs.example.org/", "http://[::1]:1", "https://a/b"]
)
def test_urls_of_servers(url: str) -> None:
    assert is_server_url(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "10.0.0.5:8431", "ftp://a", "http://", "http://a:x", "http://[a", "http://a:0"),
        *("http://me@a", "http://a?b", "http://a#b"),
    ],
)
def test_other_urls(url: str) -> None:
    assert not is_server_url(url)
