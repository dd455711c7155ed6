"""Preflight check: a run of a job's nodes that checks whether they could work together."""

from __future__ import annotations

import ipaddress
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from muster.api.prepared import PreparedRun
from muster.client.client import Client
from muster.client.run import JobRun
from muster.client.urls import UrlChecks, urls_of
from muster.describe.words import plural
from muster.frameworks.packages import python_of
from muster.interrupt import Delivered, Held
from muster.lifecycle.states import RunState
from muster.plan.model import RunPlan
from muster.spec.kinds import classify_source
from muster.spec.models import JobSpec
from muster.spec.reader import spec_from_mapping

#: Seconds by which clocks may differ. Beyond this, files and certificates of another node seem to
#: be from the future.
_MAX_SKEW = 1.0
#: Name of the check's Job. No user's Job has this name, so the check never adds a version to one.
NAME = "muster-check"
_CHECKS = ("framework", "address", "names", "ports", "clocks", "folders", "disk")
#: What a node says of names that nothing gives to nodes.
_UNKNOWN = re.compile(r"[^ ;]+ is not known(; [^ ;]+ is not known)*")
#: The number of unreachable ports that are listed one by one.
_MAX_LISTED = 8
#: Signals that end a check early, and with it its run.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Line(Struct, frozen=True):
    """The result of one check."""

    #: Its name.
    what: str
    ok: bool
    #: Findings, problems first.
    texts: tuple[str, ...]


class Report(Struct, frozen=True):
    """The results of all checks."""

    #: The engine that ran the nodes.
    engine: str
    #: The number of nodes of the job.
    nodes: int
    lines: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        return all(line.ok for line in self.lines)


def check(
    client: Client, prepared: PreparedRun, waits: Callable[[str], object] = lambda _: None
) -> Report:
    """Start the nodes of a prepared run with a program that checks them, and report the results.

    The URLs in the job are checked meanwhile, from this machine. waits: gets what the nodes are
    waiting for if they cannot start, as a phrase, and again when that changes. Raises InvalidInput,
    EngineError.
    """
    job = client.api.prepare_job(_check_spec(prepared.spec))
    with UrlChecks(urls_of(prepared)) as url_checks:
        with Held(*_ENDING):  # they come while the answers are awaited, or after the cancel
            run = client.start(client.prepare_run(job.record, new_job=job.new))
            why = "the check was interrupted"
            try:
                with Delivered(*_ENDING):
                    answers = _answers(run, len(run.nodes), waits)
                why = "its nodes were checked"
            finally:
                ended = run.refresh().details
                run.cancel(why)
        run.wait()
        urls = url_checks.results()
    if any(node.host for node in run.refresh().nodes):
        _judge_elsewhere(answers, prepared.plan)
    lines = (*_lines(answers, prepared.spec.framework), *_url_lines(urls))
    if not any(line.what == "framework" for line in lines):
        lines = (*_package_lines(client, prepared), *lines)
    silent = [node for node in run.nodes if node.rank not in answers]
    if silent:
        names = ", ".join(node.fqdn for node in silent)
        text = f"no answer from {names}{f': {ended}' if ended else ''}"
        lines = (Line("nodes", False, (text,)), *lines)
    report = Report(run.to_dict()["engine"], len(run.nodes), lines)
    if report.ok:
        run.delete()  # a run that found problems is kept for inspection
        client.api.delete_unused_job(run.job_id)
    return report


def _judge_elsewhere(answers: Mapping[int, Mapping[str, Any]], plan: RunPlan) -> None:
    """Change what nodes on other machines have found. Nothing gives nodes names there, so programs
    use addresses; and which packages there are, only the machines know."""
    programs = [group for group in plan.groups if group.role.program]
    pythons = [python_of(group.command, plan.file_of(group)) for group in programs]
    own = all(python is not None and "/" not in python for python in pythons)
    for one in (one for node in answers.values() for one in node["found"]):
        if one["what"] == "packages" and own:
            one["what"] = "framework"
        elif one["what"] == "names" and not one["ok"] and _UNKNOWN.fullmatch(one["text"]):
            text = "machines do not know the nodes by names: programs use addresses"
            one.update(ok=True, text=text)


def _package_lines(client: Client, prepared: PreparedRun) -> Iterator[Line]:
    """The result of looking for the framework's packages for the Python of the job's program."""
    if prepared.missing:
        missing = tuple(f"{one.message}: {one.hint}" for one in prepared.missing)
        yield Line("framework", False, missing)
        return
    framework = prepared.spec.framework
    checked = client.api.check_framework(prepared.plan)
    found = (f"{framework} is installed for {python}" for python in checked.pythons)
    if texts := (*found, *checked.notes):
        yield Line("framework", True, texts)


def _check_spec(spec: JobSpec) -> JobSpec:
    """The spec with the program that checks, and without what only the job's own program needs.

    Mounts by URL are left out: nodes would not start if their files cannot be fetched. They are
    checked from this machine.
    """
    data: dict[str, Any] = to_builtins(spec)
    data["mounts"] = _mounts(data["mounts"])
    kept = ("node_groups", "engine", "network", "subdomain", "mounts")
    made = {name: data[name] for name in kept if data[name] is not None}
    made["node_groups"] = [_group(group) for group in data["node_groups"]]
    return spec_from_mapping(
        {
            **made,
            "name": NAME,
            "command": [sys.executable, "-m", "muster.node.preflight"],
            "framework": "preflight",
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


def _answers(run: JobRun, nodes: int, waits: Callable[[str], object]) -> dict[int, dict[str, Any]]:
    """The answer of each node, by rank, once all have answered or the run has ended."""
    answers: dict[int, dict[str, Any]] = {}
    told: set[str] = set()
    for record in run.logs(follow=True, streams=["stdout", "service"]):
        if record.stream == "service":  # something has happened to the run
            for why in _waits_for(run.refresh()):
                if why not in told:
                    told.add(why)
                    waits(why)
            continue
        answer = _answer(record.message)
        if answer is not None and record.rank is not None:
            answers[record.rank] = answer
        if len(answers) == nodes:
            break
    return dict(sorted(answers.items()))


def _waits_for(run: JobRun) -> list[str]:
    """What a run waits for that others use, or its nodes."""
    if run.state == RunState.QUEUED:
        return [run.details]
    return [f"waiting: {node.waits_for}" for node in run.nodes if node.waits_for]


def _answer(line: str) -> dict[str, Any] | None:
    """The answer in a line of output; None for lines of others, such as a sitecustomize.py."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    complete = isinstance(answer, dict) and {"rank", "address", "found", "offset"} <= set(answer)
    return answer if complete else None


def _url_lines(found: list[tuple[bool, str]]) -> Iterator[Line]:
    if found:
        wrong = tuple(text for ok, text in found if not ok)
        yield Line("urls", not wrong, wrong or tuple(text for _, text in found))


def _lines(answers: Mapping[int, Mapping[str, Any]], framework: str) -> tuple[Line, ...]:
    found = (_line(what, answers, framework) for what in _CHECKS)
    return tuple(line for line in found if line is not None)


def _line(what: str, answers: Mapping[int, Mapping[str, Any]], framework: str) -> Line | None:
    if what == "clocks":
        return _clocks(answers)
    found = [(rank, one) for rank, node in answers.items() for one in node["found"]]
    found = [(rank, one) for rank, one in found if one["what"] == what]
    if not found:
        return None
    wrong = [f"node-{rank}: {one['text']}" for rank, one in found if not one["ok"]]
    if what == "ports" and wrong:
        wrong = [
            *wrong[:_MAX_LISTED],
            *_count_more_ports(wrong),
            *_rules(found, answers, framework),
        ]
    texts = wrong or list(dict.fromkeys(_success_texts(what, found)))
    return Line(what, not wrong, tuple(texts))


def _success_texts(what: str, found: list[tuple[int, Mapping[str, Any]]]) -> Iterator[str]:
    """The texts of a check without problems."""
    if what == "address":
        each = "each " if len(found) > 1 else ""
        yield f"{plural(len(found), 'node')}, {each}with its own address"
    elif what == "ports":
        yield from _reachable_ports(found)
    else:
        first = found[0][0]
        for rank, one in found:
            if rank == first:
                yield one["text"]


def _count_more_ports(wrong: list[str]) -> Iterator[str]:
    if len(wrong) > _MAX_LISTED:
        yield f"and {len(wrong) - _MAX_LISTED} more ports"


def _reachable_ports(found: list[tuple[int, Mapping[str, Any]]]) -> Iterator[str]:
    """A sentence for each port, by its name."""
    of: dict[str, dict[int, int]] = {}
    for _, one in found:
        of.setdefault(_kind(one["name"]), {})[one["of"]] = one["port"]
    for name, ports in sorted(of.items(), key=lambda item: (len(item[1]), item[0])):
        if len(ports) == 1:
            ((rank, port),) = ports.items()
            yield f"port {port} ({name}) of node-{rank} is reachable"
        elif name == "any":
            yield f"a random port is reachable on {len(ports)} nodes"
        else:
            yield f"{name} are reachable on {len(ports)} nodes"


def _kind(name: str) -> str:
    """The name of a range from that of a sampled port: `worker_ports` of `worker_ports_8700`."""
    return name.rstrip("0123456789").rstrip("_")


def _rules(
    found: list[tuple[int, Mapping[str, Any]]],
    answers: Mapping[int, Mapping[str, Any]],
    framework: str,
) -> Iterator[str]:
    """The firewall rule that is missing."""
    closed = [one for _, one in found if not one["ok"] and "port" in one]
    if not closed:
        return
    chosen = any(one["name"] == "any" for one in closed)
    numbers = sorted({one["port"] for one in closed})
    ports = "every TCP port" if chosen else f"TCP {', '.join(map(str, numbers))}"
    ranks = sorted({one["of"] for one in closed})
    nodes = ", ".join(f"node-{rank}" for rank in ranks)
    sources = common_networks([node["address"] for node in answers.values()])
    given = " ".join(f"--source {source}" for source in sources)
    yield (
        f"a firewall rule is missing: open {ports} on {nodes} to {' and '.join(sources)} "
        f"(`muster ports {framework} --as nftables {given}` prints it; --as also takes "
        "security-list, ufw and network-policy)"
    )


def common_networks(addresses: list[str]) -> list[str]:
    """The smallest IPv4 and IPv6 networks (CIDR) that contain all addresses of their version."""
    parsed = [ipaddress.ip_address(address) for address in addresses]
    found = []
    for version in sorted({address.version for address in parsed}):
        same = [address for address in parsed if address.version == version]
        network = ipaddress.ip_network(same[0])
        while not all(address in network for address in same):
            network = network.supernet()
        found.append(str(network))
    return found


def _clocks(answers: Mapping[int, Mapping[str, Any]]) -> Line | None:
    offsets = {rank: node["offset"] for rank, node in answers.items() if node["offset"] is not None}
    if not offsets:
        return None
    wrong = [
        f"node-{rank}: its clock differs by {-offset:+.1f} s from that of node-0"
        for rank, offset in offsets.items()
        if abs(offset) > _MAX_SKEW
    ]
    widest = max(abs(offset) for offset in offsets.values())
    return Line("clocks", not wrong, tuple(wrong) or (f"within {widest * 1000:.0f} ms",))
