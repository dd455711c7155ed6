"""A simulated run as a person reads it: virtual time, then what happened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec.structs import asdict

from muster.lifecycle.census import ranges
from muster.lifecycle.effects import Effect, Entry, SignalNodes, StartNodes
from muster.lifecycle.policy import Policy
from muster.lifecycle.status import NodeRef
from muster.simulation.faults import Plan, to_json
from muster.simulation.story import Act, Fact, Line, Loaded, Note, Step, Story, Told


def trace(story: Story) -> Iterator[str]:
    """Lines of text."""
    yield f"seed {story.seed}"
    yield from _policy(story.policy)
    yield from faults(story.plan)
    yield ""
    for line in story.lines:
        yield from (f"{line.at:9.3f}  {text}" for text in _line(line))
    yield ""
    yield f"{story.verdict}: {story.recorded}"


def faults(plan: Plan) -> Iterator[str]:
    """A plan of faults, and as JSON for `--plan`."""
    yield "faults:" if plan else "no faults"
    for fault in plan:
        yield f"  {fault}"
    if plan:
        yield f"  {to_json(plan)}"


def _policy(policy: Policy) -> Iterator[str]:
    for group in policy.groups:
        yield f"  {_said(asdict(group), skip=('name',), title=group.name)}"
    for rule in policy.rules:
        yield f"  {_said(asdict(rule), skip=('name',), title=rule.name)}"
    yield f"  {_said(asdict(policy), skip=('groups', 'rules'), title='run')}"


def _said(fields: dict[str, object], *, skip: Sequence[str], title: str) -> str:
    said = (f"{k}={v}" for k, v in fields.items() if k not in skip and v not in (None, ()))
    return f"{title}: {' '.join(said)}"


def _line(line: Line) -> Iterator[str]:
    match line:
        case Fact():
            end = "" if line.end is None or line.what != "ended" else f" {_end(line)}"
            yield f"            . node-{line.rank}/{line.incarnation} {line.what}{end}"
        case Told():
            yield f"  heard     {line.event}"
        case Step():
            state = f"{line.before.state} -> {line.after.state}"
            alarm = (
                "" if line.after.alarm is None else f", wakes {line.after.alarm - line.now:+.3f}"
            )
            yield f"step {line.number} by {line.by} at {line.now:.3f}: {state}{alarm}"
            yield from (f"  entry     {_entry(entry)}" for entry in line.entries)
        case Act():
            again = " (left to do)" if line.again else ""
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
    lives = sorted({ref.incarnation for ref in refs})
    parts = [(life, ranges(ref.rank for ref in refs if ref.incarnation == life)) for life in lives]
    return ", ".join(f"{ranks} (life {life})" for life, ranks in parts)


def _end(fact: Fact) -> str:
    end = fact.end
    if end is None:
        return ""
    signal = f" by signal {end.signal}" if end.signal else ""
    return f"with {end.exit_code}{signal}, {end.reason} {end.message}".rstrip()
