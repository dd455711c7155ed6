"""Whether a job's cluster could come together: a run of its nodes that looks at them."""

from __future__ import annotations

import ipaddress
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from muster.client.client import Client
from muster.client.run import JobRun
from muster.client.urls import Looks, urls_of
from muster.drafting import Draft
from muster.interrupt import Held
from muster.spec.models import JobSpec
from muster.spec.reader import spec_from_mapping
from muster.storage.mounts import classify_source

#: Clocks may differ by this (seconds): beyond it, files and certificates from another node seem
#: to be of the future.
_SKEW = 1.0
#: Of the Job whose runs look: it must be no version of a Job of somebody's own.
NAME = "muster-check"
_CHECKS = ("framework", "address", "names", "ports", "clocks", "folders", "disk")
#: Of nodes that lack the same ports of the same nodes, so many are named one by one.
_NAMED = 8


class Line(Struct, frozen=True):
    """One thing that was looked at. texts: what was found, the troubles first."""

    what: str
    ok: bool
    texts: tuple[str, ...]


class Report(Struct, frozen=True):
    """What was found. engine: where; nodes: how many were asked for."""

    engine: str
    nodes: int
    lines: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        return all(line.ok for line in self.lines)


def check(client: Client, draft: Draft) -> Report:
    """Start the nodes of a drafted run with a program that looks around, and say what they saw.

    The URLs that the job names are looked at meanwhile, from here. Raises InvalidInput or
    EngineError.
    """
    job, new = client.service.draft_job(_survey(draft.spec))
    run: JobRun | None = None
    with Looks(urls_of(draft)) as looks:
        try:
            with Held(signal.SIGINT):  # no run is started that nobody ends
                run = client.start(client.draft(job, new_job=new))
            told = _told(run, len(run.nodes))
        finally:
            if run is not None:
                ended = run.refresh().details
                run.cancel("its nodes have been looked at").wait()
        found = looks.found()
    lines = (*_lines(told, draft.spec.framework), *_url_lines(found))
    silent = [node for node in run.nodes if node.rank not in told]
    if silent:
        names = ", ".join(node.fqdn for node in silent)
        text = f"nothing was heard from {names}{f': {ended}' if ended else ''}"
        lines = (Line("nodes", False, (text,)), *lines)
    report = Report(run.to_dict()["engine"], len(run.nodes), lines)
    if report.ok:
        run.delete()  # what went wrong can be looked at
        client.service.forget_job(run.job_id)
    return report


def _survey(spec: JobSpec) -> JobSpec:
    """The same nodes, with another program. Mounts by URL are looked at from here: nodes whose
    files cannot be fetched would not even start."""
    data: dict[str, Any] = to_builtins(spec)
    data["mounts"] = _mounts(data["mounts"])
    kept = ("node_groups", "network", "subdomain", "mounts")
    made = {name: data[name] for name in kept if data[name] is not None}
    made["node_groups"] = [_group(group) for group in data["node_groups"]]
    return spec_from_mapping(
        {
            **made,
            "name": NAME,
            "command": [sys.executable, "-m", "muster.node.survey"],
            "framework": "survey",
            "framework_options": {
                "framework": spec.framework,
                "options": dict(spec.framework_options),
                "installed": not (spec.requirements or spec.conda or _has_image(spec)),
            },
            "max_runtime": 120,
        }
    )


def _has_image(spec: JobSpec) -> bool:
    return bool(spec.image) or any(group.image for group in spec.node_groups)


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("name", "nodes", "replicas", "env", "resources", "shape", "mounts", "hostname")
    made = {name: group[name] for name in kept if group.get(name) is not None}
    return {**made, **({"mounts": _mounts(made["mounts"])} if "mounts" in made else {})}


def _mounts(mounts: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if mounts is None:
        return None
    return [mount for mount in mounts if classify_source(mount["source"]) != "url"]


def _told(run: JobRun, nodes: int) -> dict[int, dict[str, Any]]:
    """What each node has said, by rank, once all have or the run has ended."""
    told: dict[int, dict[str, Any]] = {}
    for record in run.logs(follow=True, streams=["stdout"]):
        said = _said(record.message)
        if said is not None and record.rank is not None:
            told[record.rank] = said
        if len(told) == nodes:
            break
    return dict(sorted(told.items()))  # they tell in no order


def _said(line: str) -> dict[str, Any] | None:
    """What the program of a node says; None for what others write, a sitecustomize.py, say."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return (
        said
        if isinstance(said, dict) and {"rank", "address", "found", "offset"} <= set(said)
        else None
    )


def _url_lines(found: list[tuple[bool, str]]) -> Iterator[Line]:
    if found:
        wrong = tuple(text for ok, text in found if not ok)
        yield Line("urls", not wrong, wrong or tuple(text for _, text in found))


def _lines(told: Mapping[int, Mapping[str, Any]], framework: str) -> tuple[Line, ...]:
    found = (_line(what, told, framework) for what in _CHECKS)
    return tuple(line for line in found if line is not None)


def _line(what: str, told: Mapping[int, Mapping[str, Any]], framework: str) -> Line | None:
    if what == "clocks":
        return _clocks(told)
    found = [(rank, one) for rank, node in told.items() for one in node["found"]]
    found = [(rank, one) for rank, one in found if one["what"] == what]
    if not found:
        return None
    wrong = [f"node-{rank}: {one['text']}" for rank, one in found if not one["ok"]]
    if what == "ports" and wrong:
        wrong = [*wrong[:_NAMED], *_unnamed(wrong), *_rules(found, told, framework)]
    texts = wrong or list(dict.fromkeys(_short(what, found)))
    return Line(what, not wrong, tuple(texts))


def _short(what: str, found: list[tuple[int, Mapping[str, Any]]]) -> Iterator[str]:
    """What is said where all is well."""
    if what == "address":
        yield f"{len(found)} nodes, each with an address of its own"
    elif what == "ports":
        yield from _reached(found)
    else:
        first = found[0][0]
        for rank, one in found:
            if rank == first:
                yield one["text"]


def _unnamed(wrong: list[str]) -> Iterator[str]:
    if len(wrong) > _NAMED:
        yield f"and {len(wrong) - _NAMED} more of the kind"


def _reached(found: list[tuple[int, Mapping[str, Any]]]) -> Iterator[str]:
    """A sentence for each port, by its name."""
    of: dict[str, dict[int, int]] = {}
    for _, one in found:
        of.setdefault(_kind(one["name"]), {})[one["of"]] = one["port"]
    for name, ports in sorted(of.items(), key=lambda item: (len(item[1]), item[0])):
        if len(ports) == 1:
            ((rank, port),) = ports.items()
            yield f"port {port} ({name}) of node-{rank} is reached"
        elif name == "any":
            yield f"a port that was chosen at random is reached on {len(ports)} nodes"
        else:
            yield f"{name} are reached on {len(ports)} nodes"


def _kind(name: str) -> str:
    """What a sampled port is of: `worker_ports` of `worker_ports_8700`."""
    return name.rstrip("0123456789").rstrip("_")


def _rules(
    found: list[tuple[int, Mapping[str, Any]]],
    told: Mapping[int, Mapping[str, Any]],
    framework: str,
) -> Iterator[str]:
    """What a firewall has to let through that it does not."""
    closed = [one for _, one in found if not one["ok"] and "port" in one]
    if not closed:
        return
    chosen = any(one["name"] == "any" for one in closed)
    numbers = sorted({one["port"] for one in closed})
    ports = "every TCP port" if chosen else f"TCP {', '.join(map(str, numbers))}"
    ranks = sorted({one["of"] for one in closed})
    nodes = ", ".join(f"node-{rank}" for rank in ranks)
    sources = common_networks([node["address"] for node in told.values()])
    given = " ".join(f"--source {source}" for source in sources)
    yield (
        f"a rule is missing: open {ports} on {nodes} to {' and '.join(sources)} "
        f"(`muster ports {framework} --as nftables {given}` prints it; --as also takes "
        "security-list, ufw and network-policy)"
    )


def common_networks(addresses: list[str]) -> list[str]:
    """The smallest network (CIDR) of IPv4, and of IPv6, that all addresses of its kind are in."""
    parsed = [ipaddress.ip_address(address) for address in addresses]
    found = []
    for version in sorted({address.version for address in parsed}):
        same = [address for address in parsed if address.version == version]
        network = ipaddress.ip_network(same[0])
        while not all(address in network for address in same):
            network = network.supernet()
        found.append(str(network))
    return found


def _clocks(told: Mapping[int, Mapping[str, Any]]) -> Line | None:
    offsets = {rank: node["offset"] for rank, node in told.items() if node["offset"] is not None}
    if not offsets:
        return None
    wrong = [
        f"node-{rank}: its clock is {-offset:+.1f} s from that of node-0"
        for rank, offset in offsets.items()
        if abs(offset) > _SKEW
    ]
    widest = max(abs(offset) for offset in offsets.values())
    return Line("clocks", not wrong, tuple(wrong) or (f"within {widest * 1000:.0f} ms",))
