"""What a firewall lets through (`openings`), in the words of each: rules that can be applied."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from muster.frameworks.openings import Opening, Peers
from muster.spec.formats.yaml_write import dump

#: The framework's name, its openings, who may connect -> the text.
_Form = Callable[[str, Sequence[Opening], Peers], str]


def security_list(framework: str, wanted: Sequence[Opening], peers: Peers) -> str:
    """OCI: the value of `oci network security-list update --ingress-security-rules`."""
    rules = [_ingress(framework, opening, source) for source in peers.sources for opening in wanted]
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


def nftables(framework: str, wanted: Sequence[Opening], peers: Peers) -> str:
    """nftables: a ruleset of its own table, which replaces an earlier one of the same framework."""
    rules = [
        f'    {family} saddr {network} tcp dport {_dashed(opening)} accept comment "{text}"'
        for family, network in map(_saddr, peers.sources)
        for opening in wanted
        for text in [f"{framework}: {opening.why}"[:120].replace('"', "'")]
    ]
    table = "muster_" + re.sub(r"\W", "_", framework)
    return _NFTABLES.format(framework=framework, table=table, rules="\n".join(rules))


def _saddr(network: str) -> tuple[str, str]:
    return "ip" if ipaddress.ip_network(network).version == 4 else "ip6", network


def _dashed(opening: Opening) -> str:
    one = opening.first == opening.last
    return str(opening.first) if one else f"{opening.first}-{opening.last}"


def ufw(framework: str, wanted: Sequence[Opening], peers: Peers) -> str:
    """ufw: a command for each rule."""
    lines = []
    for source in peers.sources:
        for opening in wanted:
            where = [] if opening.everything else ["port", _dashed(opening).replace("-", ":")]
            # ufw takes no apostrophes in comments
            comment = f"{framework}: {opening.why}".replace("'", "")
            words = ["ufw", "allow", "proto", "tcp", "from", source, "to", "any", *where]
            lines.append(shlex.join([*words, "comment", comment]))
    return "\n".join(lines) + "\n"


def network_policy(framework: str, wanted: Sequence[Opening], peers: Peers) -> str:
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
            "ingress": [{"from": [labels, *blocks], "ports": list(map(_policy_port, wanted))}],
        },
    }
    said = "".join(f"#   {line}\n" for line in _explained(wanted))
    return f"# All that the pods of a {framework} cluster let in:\n{said}{dump(policy)}"


def _policy_port(opening: Opening) -> dict[str, Any]:
    if opening.everything:
        return {"protocol": "TCP"}
    last = {} if opening.first == opening.last else {"endPort": opening.last}
    return {"protocol": "TCP", "port": opening.first, **last}


def _explained(wanted: Sequence[Opening]) -> Iterator[str]:
    for opening in wanted:
        yield f"{'all of TCP' if opening.everything else _dashed(opening)}: {opening.why}"


#: By what `muster ports --as` calls them.
FORMS: Mapping[str, _Form] = {
    "security-list": security_list,
    "nftables": nftables,
    "ufw": ufw,
    "network-policy": network_policy,
}
