"""What a firewall has to let through between the nodes of a framework: which TCP ports, from where.

What is printed of it, in the words of each firewall, is `firewall`'s.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Framework

_ALL = (1, 65535)
#: Kubernetes: keys and values of labels, names of objects and of namespaces.
_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_LABEL = re.compile(rf"(?P<key>({_DOMAIN}/)?{_WORD})=(?P<value>({_WORD})?)")
_NAME = re.compile(_DOMAIN)


class Opening(Struct, frozen=True):
    """TCP ports from `first` to `last`. why: who listens there, for people."""

    first: int
    last: int
    why: str

    @property
    def everything(self) -> bool:
        return (self.first, self.last) == _ALL


class Peers(Struct, frozen=True, kw_only=True):
    """Who may connect. sources: networks (CIDR). labels: of the nodes' pods; name, namespace: of
    the policy that chooses them by these."""

    sources: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    name: str = ""
    namespace: str = ""


def openings(framework: Framework) -> tuple[Opening, ...]:
    """In ascending order. Where nodes listen on any port somewhere, it is all of them."""
    found = []
    for need in framework.needs:
        why = re.split(r"[;,:]", need.why)[0]
        found += [Opening(first, last, why) for first, last in _numbers(need.ports)]
    whole = [one.why for one in found if one.everything]
    if whole:
        return (Opening(*_ALL, " and ".join(dict.fromkeys(whole))),)
    return tuple(sorted(found, key=lambda one: (one.first, one.last)))


def _numbers(ports: str) -> Iterator[tuple[int, int]]:
    """Of `8786`, `8700-8800` and `any`."""
    ranges = re.findall(r"\b([0-9]+)(?:-([0-9]+))?\b", ports)
    if not ranges:
        yield _ALL
    for first, last in ranges:
        yield int(first), int(last or first)


def read_peers(
    form: str, sources: Sequence[str], selectors: Sequence[str], name: str, namespace: str
) -> Peers:
    """What was said in options of `muster ports`. Raises InvalidInput with every problem."""
    problems: list[Problem] = []
    pods = form == "network-policy"
    if pods and not selectors:
        hint = "labels of the nodes' pods: --selector jobset.sigs.k8s.io/jobset-name=train"
        problems.append(Problem("--selector", "is missing", hint))
    if not pods and not sources:
        hint = "the network that the nodes are in, such as --source 10.0.1.0/24"
        problems.append(Problem("--source", "is missing", hint))
    given = {"--selector": bool(selectors), "--name": bool(name), "--namespace": bool(namespace)}
    for option, said in given.items():
        if said and not pods:
            text = f"means something to --as network-policy only, not to {form}"
            problems.append(Problem(option, text, "leave it out"))
    for option, text in (("--name", name), ("--namespace", namespace)):
        if text and not (_NAME.fullmatch(text) and len(text) <= 253):
            hint = "lower-case letters, digits, - and ."
            problems.append(Problem(option, f"{text!r} is no name of Kubernetes", hint))
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
        return Problem("--source", f"{text!r} is no network", hint)
    said = f"{text!r} is an address inside a network, not the network"
    return Problem("--source", said, f"did you mean {meant}?")


def _label(text: str, problems: list[Problem]) -> tuple[str, str]:
    match = _LABEL.fullmatch(text)
    if match is None:
        hint = "write KEY=VALUE, such as app=train"
        problems.append(Problem("--selector", f"{text!r} is no label of Kubernetes", hint))
        return text, ""
    return match["key"], match["value"]
