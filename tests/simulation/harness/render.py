"""A trace as text: the virtual time, then what happened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec.structs import asdict

from muster.lifecycle.effects import Effect, Entry, SignalNodes, StartNodes
from muster.lifecycle.policy import Policy
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.status import NodeRef
from simulation.harness.faults import FaultPlan, to_json
from simulation.harness.trace import (
    Command,
    Fact,
    Line,
    Loaded,
    Note,
    Received,
    Restarted,
    Step,
    Trace,
)


def render(trace: Trace) -> Iterator[str]:
    """The lines of a trace."""
    yield f"seed {trace.seed}"
    yield from _policy(trace.policy)
    yield from faults(trace.plan)
    yield ""
    for line in trace.lines:
        yield from (f"{line.at:9.3f}  {text}" for text in _line(line))
    yield ""
    yield f"{trace.result}: {trace.recorded}"


def faults(plan: FaultPlan) -> Iterator[str]:
    """A plan of faults as text, and as JSON for `--plan`."""
    yield "faults:" if plan else "no faults"
    for fault in plan:
        yield f"  {fault}"
    if plan:
        yield f"  {to_json(plan)}"


def _policy(policy: Policy) -> Iterator[str]:
    for group in policy.groups:
        yield f"  {_fields(asdict(group), skip=('name',), title=group.name)}"
    for rule in policy.rules:
        yield f"  {_fields(asdict(rule), skip=('name',), title=rule.name)}"
    yield f"  {_fields(asdict(policy), skip=('groups', 'rules'), title='run')}"


def _fields(fields: dict[str, object], *, skip: Sequence[str], title: str) -> str:
    shown = (f"{k}={v}" for k, v in fields.items() if k not in skip and v not in (None, ()))
    return f"{title}: {' '.join(shown)}"


def _line(line: Line) -> Iterator[str]:
    match line:
        case Fact():
            end = "" if line.end is None or line.what != "ended" else f" {_end(line)}"
            yield f"            . node-{line.rank}/{line.incarnation} {line.what}{end}"
        case Received() | Restarted():
            yield f"  receives  {line.event}"
        case Step():
            state = f"{line.before.state} -> {line.after.state}"
            alarm = (
                "" if line.after.alarm is None else f", wakes {line.after.alarm - line.now:+.3f}"
            )
            yield f"step {line.number} by {line.by} at {line.now:.3f}: {state}{alarm}"
            yield from (f"  entry     {_entry(entry)}" for entry in line.entries)
        case Command():
            again = " (repeated)" if line.again else ""
            yield f"  does      {_effect(line.effect)}{again}"
        case Note():
            yield f"*** {line.kind} {line.text}"
        case Loaded():
            pass


def _entry(entry: Entry) -> str:
    return f"{entry.kind} {json.dumps(entry.data)}"


def _effect(effect: Effect) -> str:
    what = type(effect).__name__
    if isinstance(effect, StartNodes):
        what += f" attempt {effect.attempt}"
    elif isinstance(effect, SignalNodes):
        what += f" {effect.signal}"
    return f"{what}: {_refs(effect.nodes)}"


def _refs(refs: Sequence[NodeRef]) -> str:
    numbers = sorted({ref.incarnation for ref in refs})
    parts = [
        (number, format_ranks(ref.rank for ref in refs if ref.incarnation == number))
        for number in numbers
    ]
    return ", ".join(f"{ranks} (incarnation {number})" for number, ranks in parts)


def _end(fact: Fact) -> str:
    end = fact.end
    if end is None:
        return ""
    signal = f" by signal {end.signal}" if end.signal else ""
    return f"with {end.exit_code}{signal}, {end.reason} {end.message}".rstrip()
