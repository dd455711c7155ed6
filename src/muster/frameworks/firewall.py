"""TCP ports that a firewall must open between a framework's nodes, and rules for firewalls."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Framework
from muster.spec.formats.yaml_write import dump

_ALL = (1, 65535)
#: Kubernetes: keys and values of labels, names of objects and of namespaces.
_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_LABEL = re.compile(rf"(?P<key>({_DOMAIN}/)?{_WORD})=(?P<value>({_WORD})?)")
_NAME = re.compile(_DOMAIN)


class Opening(Struct, frozen=True):
    """A range of TCP ports."""

    first: int
    last: int
    why: str
    """What listens there, for people."""

    @property
    def everything(self) -> bool:
        return (self.first, self.last) == _ALL


class Peers(Struct, frozen=True, kw_only=True):
    """Who may connect."""

    sources: tuple[str, ...] = ()
    """Networks (CIDR)."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the nodes' pods."""
    name: str = ""
    """Name of the NetworkPolicy."""
    namespace: str = ""
    """Namespace of the NetworkPolicy."""


def openings(framework: Framework) -> tuple[Opening, ...]:
    """The ports to open, in ascending order; all ports if nodes listen on any port."""
    found = []
    for need in framework.needs:
        why = re.split(r"[;,:]", need.why)[0]
        found += [Opening(first, last, why) for first, last in _numbers(need.ports)]
    whole = [one.why for one in found if one.everything]
    if whole:
        return (Opening(*_ALL, " and ".join(dict.fromkeys(whole))),)
    return tuple(sorted(found, key=lambda one: (one.first, one.last)))


def _numbers(ports: str) -> Iterator[tuple[int, int]]:
    """First and last port of `8786`, `8700-8800` or `any`."""
    ranges = re.findall(r"\b([0-9]+)(?:-([0-9]+))?\b", ports)
    if not ranges:
        yield _ALL
    for first, last in ranges:
        yield int(first), int(last or first)


def read_peers(
    form: str, sources: Sequence[str], selectors: Sequence[str], name: str, namespace: str
) -> Peers:
    """Read the options of `muster ports`. Raises InvalidInput with all problems."""
    problems: list[Problem] = []
    pods = form == "network-policy"
    if pods and not selectors:
        hint = "labels of the nodes' pods: --selector jobset.sigs.k8s.io/jobset-name=train"
        problems.append(Problem("--selector", "is missing", hint))
    if not pods and not sources:
        hint = "the network that the nodes are in, such as --source 10.0.1.0/24"
        problems.append(Problem("--source", "is missing", hint))
    given = {"--selector": bool(selectors), "--name": bool(name), "--namespace": bool(namespace)}
    for option, is_given in given.items():
        if is_given and not pods:
            text = f"applies to --as network-policy only, not to {form}"
            problems.append(Problem(option, text, "leave it out"))
    for option, text in (("--name", name), ("--namespace", namespace)):
        if text and not (_NAME.fullmatch(text) and len(text) <= 253):
            hint = "lower-case letters, digits, - and ."
            problems.append(Problem(option, f"{text!r} is not a valid Kubernetes name", hint))
    peers = Peers(
        sources=tuple(_network(text, problems) for text in dict.fromkeys(sources)),
        labels=tuple(_label(text, problems) for text in dict.fromkeys(selectors)),
        name=name,
        namespace=namespace,
    )
    if problems:
        raise InvalidInput(*problems)
    return peers


def _network(text: str, problems: list[Problem]) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        problems.append(_no_network(text))
        return text


def _no_network(text: str) -> Problem:
    try:
        meant = ipaddress.ip_network(text, strict=False)
    except ValueError:
        hint = "write a network with its length, such as 10.0.1.0/24"
        return Problem("--source", f"{text!r} is not a network", hint)
    message = f"{text!r} is an address in a network, not the network"
    return Problem("--source", message, f"did you mean {meant}?")


def _label(text: str, problems: list[Problem]) -> tuple[str, str]:
    match = _LABEL.fullmatch(text)
    if match is None:
        hint = "write KEY=VALUE, such as app=train"
        problems.append(Problem("--selector", f"{text!r} is not a Kubernetes label", hint))
        return text, ""
    return match["key"], match["value"]


#: (name of the framework, ports to open, who may connect) -> text.
_Form = Callable[[str, Sequence[Opening], Peers], str]


def security_list(framework: str, openings: Sequence[Opening], peers: Peers) -> str:
    """OCI: the value of `oci network security-list update --ingress-security-rules`."""
    rules = [
        _ingress(framework, opening, source) for source in peers.sources for opening in openings
    ]
    return json.dumps(rules, indent=2) + "\n"


def _ingress(framework: str, opening: Opening, source: str) -> dict[str, Any]:
    ports = {"destinationPortRange": {"min": opening.first, "max": opening.last}}
    return {
        "description": f"{framework}: {opening.why}"[:255],
        "protocol": "6",  # TCP, by its number
        "source": source,
        "sourceType": "CIDR_BLOCK",
        "isStateless": False,
        **({} if opening.everything else {"tcpOptions": ports}),
    }


_NFTABLES = """\
#!/usr/sbin/nft -f
# The firewall of a machine that is a node of {framework}: nft -f FILE
# It closes every other port but SSH's. If the machine has a firewall already, put the lines with
# "saddr" into that one's chain instead: what one table drops, no other lets through.
table inet {table}
delete table inet {table}

table inet {table} {{
  chain input {{
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname "lo" accept
    meta l4proto {{ icmp, ipv6-icmp }} accept
    udp dport 546 accept comment "DHCPv6"
    tcp dport 22 accept comment "SSH"
{rules}
  }}
}}
"""


def nftables(framework: str, openings: Sequence[Opening], peers: Peers) -> str:
    """nftables: a ruleset for a separate table, which replaces an earlier one of the framework."""
    rules = [
        f'    {family} saddr {network} tcp dport {_port_text(opening)} accept comment "{text}"'
        for family, network in map(_saddr, peers.sources)
        for opening in openings
        for text in [f"{framework}: {opening.why}"[:120].replace('"', "'")]
    ]
    table = "muster_" + re.sub(r"\W", "_", framework)
    return _NFTABLES.format(framework=framework, table=table, rules="\n".join(rules))


def _saddr(network: str) -> tuple[str, str]:
    return "ip" if ipaddress.ip_network(network).version == 4 else "ip6", network


def _port_text(opening: Opening) -> str:
    one = opening.first == opening.last
    return str(opening.first) if one else f"{opening.first}-{opening.last}"


def ufw(framework: str, openings: Sequence[Opening], peers: Peers) -> str:
    """ufw: a command for each rule."""
    lines = []
    for source in peers.sources:
        for opening in openings:
            where = [] if opening.everything else ["port", _port_text(opening).replace("-", ":")]
            # ufw takes no apostrophes in comments
            comment = f"{framework}: {opening.why}".replace("'", "")
            words = ["ufw", "allow", "proto", "tcp", "from", source, "to", "any", *where]
            lines.append(shlex.join([*words, "comment", comment]))
    return "\n".join(lines) + "\n"


def network_policy(framework: str, openings: Sequence[Opening], peers: Peers) -> str:
    """Kubernetes: a NetworkPolicy of the nodes' pods."""
    labels = {"podSelector": {"matchLabels": dict(peers.labels)}}
    blocks = [{"ipBlock": {"cidr": source}} for source in peers.sources]
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": peers.name or "muster-" + re.sub(r"[^a-z0-9.]+", "-", framework.lower()),
            **({"namespace": peers.namespace} if peers.namespace else {}),
        },
        "spec": {
            **labels,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [labels, *blocks], "ports": list(map(_policy_port, openings))}],
        },
    }
    comment = "".join(f"#   {line}\n" for line in _comment_lines(openings))
    return f"# All that the pods of a {framework} cluster let in:\n{comment}{dump(policy)}"


def _policy_port(opening: Opening) -> dict[str, Any]:
    if opening.everything:
        return {"protocol": "TCP"}
    last = {} if opening.first == opening.last else {"endPort": opening.last}
    return {"protocol": "TCP", "port": opening.first, **last}


def _comment_lines(openings: Sequence[Opening]) -> Iterator[str]:
    for opening in openings:
        yield f"{'all of TCP' if opening.everything else _port_text(opening)}: {opening.why}"


#: By the values of `muster ports --as`.
FORMS: Mapping[str, _Form] = {
    "security-list": security_list,
    "nftables": nftables,
    "ufw": ufw,
    "network-policy": network_policy,
}
