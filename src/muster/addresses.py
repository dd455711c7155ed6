"""Addresses of machines and of servers."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host, an address or a name, is this machine itself: what is sent there crosses no
    network. `localhost` is; other names are not, whatever they begin with."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_on_loopback(url: str) -> bool:
    """Whether a URL's server is at an address of its machine's loopback interface."""
    return is_loopback(urlsplit(url).hostname or "")


def is_server_url(url: str) -> bool:
    """Whether a URL is that of a server: http or https, a host, perhaps a port and a path."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an IPv6 address in them, or a port that is no number
        return False
    return valid and not (parts.query or parts.fragment or "@" in parts.netloc)
