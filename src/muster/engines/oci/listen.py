"""The address of this machine that nodes of the service reach."""

from __future__ import annotations

from muster.engines.oci.profile import OciProfile
from muster.node.machine import own_address


def listen_address(profile: OciProfile) -> str | None:
    """The address that nodes dial; None: it is not known.

    Nodes of a service on this machine may have a network of their own, in which the address of the
    loopback is theirs.
    """
    if profile.address is not None or not profile.is_here:
        return profile.address
    try:
        return own_address()
    except OSError:  # it has no network
        return "127.0.0.1"


def is_reachable(profile: OciProfile) -> bool:
    """Whether nodes reach this machine, as far as the profile says how."""
    return profile.bucket is not None or listen_address(profile) is not None
