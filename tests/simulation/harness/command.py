"""The command of `tests/simulate.py`: replay a seed, try many, or report what they covered."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import click
from msgspec import DecodeError

from muster.spec.quantities import format_duration
from simulation.harness import faults as fault_plans
from simulation.harness.batch import Finding, explain, fresh, run_seeds, total
from simulation.harness.coverage import EXPECTED
from simulation.harness.invariants import INVARIANTS, check, name, sentence
from simulation.harness.render import render
from simulation.harness.seeds import case_of, play

#: Seconds between two lines of progress.
_PROGRESS_INTERVAL = 10.0
#: At most this many findings are explained, which takes many runs each.
_MAX_EXPLAINED = 5


@click.command()
@click.option("--seed", type=int, help="Replay this seed.")
@click.option("--trace", "traced", is_flag=True, help="Print its trace.")
@click.option("--plan", help="Use these faults instead of its own (JSON, as in a trace).")
@click.option("--seeds", help="Try a range: 0:10000; or a number of new seeds: 1000000.")
@click.option("--report", type=int, help="Try this many seeds, and print what happened in them.")
@click.option("--list", "listed", is_flag=True, help="List faults and invariants.")
def main(
    seed: int | None,
    traced: bool,
    plan: str | None,
    seeds: str | None,
    report: int | None,
    listed: bool,
) -> None:
    """Simulate runs of Muster. A seed determines its run."""
    if listed:
        _print([*fault_lines(), "", *invariant_lines()])
    elif seed is not None:
        _replay(seed, plan, traced=traced)
    elif report is not None:
        _report(range(report))
    elif seeds is not None:
        _try(_range(seeds))
    else:
        raise click.UsageError("give --seed, --seeds, --report or --list")


def _replay(seed: int, plan: str | None, *, traced: bool) -> None:
    try:
        case = case_of(seed, None if plan is None else fault_plans.from_json(plan))
    except DecodeError as error:
        raise click.BadParameter(str(error), param_hint="--plan") from None
    with TemporaryDirectory() as folder:
        trace = play(case, Path(folder))
    breaches = check(trace)
    if traced:
        _print(render(trace))
    if plan is None and breaches:
        _print(explain(Finding(seed, tuple(breaches))))
    else:
        _print(str(breach) for breach in breaches)
    sys.exit(1 if breaches else 0)


def _range(seeds: str) -> range:
    first, colon, last = seeds.partition(":")
    if first.isdigit() and last.isdigit() and int(first) < int(last):
        return range(int(first), int(last))
    if first.isdigit() and int(first) and not colon:
        return fresh(int(first))
    text = f"{seeds!r} is not a range; write 0:10000, or a number of new seeds"
    raise click.BadParameter(text, param_hint="--seeds")


def _report(seeds: range) -> None:
    started = time.perf_counter()
    tally = total(run_seeds(seeds))
    took = time.perf_counter() - started
    _print(report_lines(seeds, dict(tally.seen), took, len(tally.findings)))
    for finding in tally.findings[:_MAX_EXPLAINED]:
        _print(explain(finding))
    sys.exit(1 if tally.findings else 0)


def _try(seeds: range) -> None:
    """Print progress, findings as they occur, and, when interrupted, the remaining seeds."""
    tried = found = 0
    started = printed = time.perf_counter()
    click.echo(f"seeds {_text(seeds)}")
    try:
        for part in run_seeds(seeds):
            tried += part.seen["runs"]
            for finding in part.findings:
                found += 1
                if found <= _MAX_EXPLAINED:
                    _print(explain(finding))
            now = time.perf_counter()
            if now - printed > _PROGRESS_INTERVAL or tried == len(seeds):
                printed = now
                click.echo(progress(seeds, tried, found, now - started), err=True)
    except KeyboardInterrupt:
        click.echo(f"left: make seeds SEEDS={_text(seeds[tried:])}")
        sys.exit(130)
    if found:
        click.echo(f"{found:,} of {len(seeds):,} seeds break an invariant")
    sys.exit(1 if found else 0)


def progress(seeds: range, tried: int, found: int, took: float) -> str:
    """A line of progress. took: seconds."""
    left = took / tried * (len(seeds) - tried)
    broken = f", {found:,} of them broken" if found else ""
    return (
        f"{tried:,} of {len(seeds):,}{broken}; {took / tried * 1000:.1f} ms a seed; "
        f"{format_duration(round(left))} left"
    )


def _text(seeds: range) -> str:
    return f"{seeds.start}:{seeds.stop}"


def report_lines(seeds: range, seen: dict[str, int], took: float, found: int) -> Iterator[str]:
    """The report; docs/internals/simulation.md shows an extract."""
    yield f"seeds {seeds.start} to {seeds.stop - 1}: {found} of them break an invariant"
    yield f"{took:.1f} s, {took / len(seeds) * 1000:.1f} ms a seed"
    yield ""
    for what in sorted(seen, key=lambda what: (what in EXPECTED, what)):
        yield f"{seen[what]:9,}  {what}"
    yield from (f"{0:9}  {what}" for what in EXPECTED if not seen.get(what))


def fault_lines() -> Iterator[str]:
    """The faults, in Markdown."""
    for kind in get_args(fault_plans.AnyFault):
        yield f"* `{kind.__name__}`: {' '.join(kind.__doc__.split())}"


def invariant_lines() -> Iterator[str]:
    """The invariants, in Markdown."""
    for invariant in INVARIANTS:
        yield f"* **{name(invariant)}**: {sentence(invariant)}"


def _print(lines: Iterator[str] | list[str]) -> None:
    for line in lines:
        click.echo(line)
