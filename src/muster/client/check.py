"""Whether a job's cluster could come together: a run of its nodes that looks at them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from muster.client.client import Client
from muster.client.run import JobRun
from muster.drafting import Draft
from muster.interrupt import Held
from muster.spec.models import JobSpec
from muster.spec.reader import spec_from_mapping

#: Clocks may differ by this (seconds): beyond it, files and certificates from another node seem
#: to be of the future.
_SKEW = 1.0
#: Of the Job whose runs look: it must be no version of a Job of somebody's own.
NAME = "muster-check"
_CHECKS = ("framework", "address", "names", "ports", "clocks", "folders", "disk")


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

    Raises InvalidInput or EngineError.
    """
    job, new = client.service.draft_job(_survey(draft.spec))
    run: JobRun | None = None
    try:
        with Held(signal.SIGINT):  # no run is started that nobody ends
            run = client.start(client.draft(job, new_job=new))
        told = _told(run, len(run.nodes))
    finally:
        if run is not None:
            ended = run.refresh().details
            run.cancel("its nodes have been looked at").wait()
    lines = _lines(told)
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
    """The same nodes, with another program."""
    data: dict[str, Any] = to_builtins(spec)
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
    return {name: group[name] for name in kept if group.get(name) is not None}


def _told(run: JobRun, nodes: int) -> dict[int, dict[str, Any]]:
    """What each node has said, by rank, once all have or the run has ended."""
    told: dict[int, dict[str, Any]] = {}
    for record in run.logs(follow=True, streams=["stdout"]):
        said = _said(record.message)
        if said is not None and record.rank is not None:
            told[record.rank] = said
        if len(told) == nodes:
            break
    return told


def _said(line: str) -> dict[str, Any] | None:
    """What the program of a node says; None for what others write, a sitecustomize.py, say."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and {"rank", "found", "offset"} <= set(said) else None


def _lines(told: Mapping[int, Mapping[str, Any]]) -> tuple[Line, ...]:
    return tuple(line for what in _CHECKS if (line := _line(what, told)) is not None)


def _line(what: str, told: Mapping[int, Mapping[str, Any]]) -> Line | None:
    if what == "clocks":
        return _clocks(told)
    found = [(rank, one) for rank, node in told.items() for one in node["found"]]
    found = [(rank, one) for rank, one in found if one["what"] == what]
    if not found:
        return None
    wrong = [f"node-{rank}: {one['text']}" for rank, one in found if not one["ok"]]
    texts = wrong or list(dict.fromkeys(_short(what, found)))
    return Line(what, not wrong, tuple(texts))


def _short(what: str, found: list[tuple[int, Mapping[str, Any]]]) -> Iterator[str]:
    """What is said where all is well."""
    if what == "address":
        yield f"{len(found)} nodes, each with an address of its own"
    elif what == "ports":
        yield from dict.fromkeys(one["text"] for _, one in found)
    else:
        first = found[0][0]
        for rank, one in found:
            if rank == first:
                yield one["text"]


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
