"""Tokens of runs: with them, programs of a run act as the run (OCI: resource principal session
tokens, RPST, version 2.2). Each node has its own, which is of use on the node's host only. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.identity import new_id
from muster.lifecycle.status import NodeRef
from muster.signed_tokens import InvalidToken, PublicKey, SignedTokens, key_of, previous_key_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

#: Seconds that a token can be used.
LIFETIME = 3600.0
#: OCI: the type of the resource.
_TYPE = "datasciencejobrun"
#: The claim `ptype` of a token that is a resource's, not a user's.
_RESOURCE = "resource"
#: The most addresses of a host that a token has, as it is sent with each request: a host of
#: Kubernetes may have thousands, one for each service.
_MOST_ADDRESSES = 40


class RunIdentity(Struct, frozen=True):
    """What a token says of its run; clients read all but the id."""

    run_id: str
    ocid: str
    """Of the job run."""
    tenancy: str
    """An OCID."""
    compartment: str
    """An OCID: the project of the run."""


class Place(Struct, frozen=True):
    """The host from which a token can be used."""

    addresses: tuple[str, ...]
    """Those that its requests may come from."""
    boot: str
    """Identifies the start of its kernel; "" if unknown. Every host has loopback addresses: they
    are this one's for a server that runs on it."""

    def includes(self, address: str, boot: str) -> bool:
        """Whether a request is from here. address: where it comes from. boot: see above, of the
        server's machine."""
        found = _plain(address)
        if found not in self.addresses:
            return False
        return not ip_address(found).is_loopback or (bool(boot) and boot == self.boot)


def place_of(addresses: Iterable[str], boot: str, main: str = "") -> Place | None:
    """The place of a host with these addresses; None if there are none. main: the address from
    which it reaches others, of a host that has too many for a token."""
    # those of one link only (fe80::) say nothing without the link
    found = sorted({one for one in addresses if not one.startswith("fe80:")})
    if len(found) > _MOST_ADDRESSES:
        found = [one for one in found if one in (main, "127.0.0.1", "::1")]
    return Place(tuple(found), boot) if found else None


def _plain(address: str) -> str:
    """An address as interfaces have it: a server that listens on IPv6 sees those of IPv4 in
    ::ffff:0:0/96. Others, such as "" of a client at a Unix socket, stay as they are."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


class RunToken(Struct, frozen=True):
    """A verified token."""

    id: str
    run_id: str
    ocid: str
    """Of the job run."""
    keys: tuple[RSAPublicKey, ...]
    """Requests of the run are signed with one of them."""
    expires_at: float
    """Epoch seconds."""
    node: NodeRef | None = None
    """Which start of which node it is for; None: it is not for programs, but for what Muster copies
    for the run."""
    place: Place | None = None
    """None: it is not known from where its requests come."""

    @property
    def credential(self) -> str:
        """What names it, in the audit log."""
        return f"run {self.run_id}" + ("" if self.node is None else f" node {self.node.rank}")


def issue(
    tokens: SignedTokens,
    run: RunIdentity,
    key: RSAPublicKey | PublicKey,
    now: float,
    lifetime: float = LIFETIME,
    previous: RSAPublicKey | PublicKey | None = None,
    node: NodeRef | None = None,
    place: Place | None = None,
) -> str:
    """A token for the programs of a run. now: epoch seconds. previous: the key of the token that
    this one replaces, for clients that have read that key and then read this token. node, place:
    see `RunToken`."""
    claims = {
        "sub": run.ocid,
        "jti": new_id(),
        "iat": int(now),
        "exp": int(now + lifetime),
        "ptype": _RESOURCE,
        "res_type": _TYPE,
        "res_id": run.ocid,
        "res_tenant": run.tenancy,
        "res_compartment": run.compartment,
        "run": run.run_id,
    }
    if node is not None:
        claims |= {"rank": node.rank, "incarnation": node.incarnation}
    if place is not None:
        claims |= {"addresses": place.addresses, "boot": place.boot}
    return tokens.sign(claims, key, previous)


def is_of_run(claims: Mapping[str, Any]) -> bool:
    """Whether claims are those of a run's token."""
    return claims.get("ptype") == _RESOURCE


def run_token(claims: Mapping[str, Any], now: float) -> RunToken:
    """The token with these claims. Raises InvalidToken if it has expired, or is none of a run."""
    if not is_of_run(claims):
        raise InvalidToken("it is not of a run")
    node: NodeRef | None = None
    place: Place | None = None
    try:
        name, run_id, ocid = (str(claims[one]) for one in ("jti", "run", "res_id"))
        expires_at = float(claims["exp"])
        if "rank" in claims:
            node = NodeRef(int(claims["rank"]), int(claims["incarnation"]))
        if "addresses" in claims:
            place = Place(tuple(map(str, claims["addresses"])), str(claims["boot"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidToken(f"it lacks something: {error}") from None
    if expires_at <= now:
        raise InvalidToken(f"{name} of run {run_id} has expired")
    keys = tuple(key for key in (key_of(claims), previous_key_of(claims)) if key is not None)
    return RunToken(name, run_id, ocid, keys, expires_at, node, place)
