"""Addresses of machines."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, an address or a name, is this machine itself: what is sent there crosses no
    network. `localhost` is; other names are not, whatever they begin with."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
