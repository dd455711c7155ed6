"""`python -m muster.simulation`: replay a seed, try many, or report what they went through."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import click
from msgspec import DecodeError

from muster.simulation import faults as fault_plans
from muster.simulation.batch import Finding, explain, fresh, run_seeds, total
from muster.simulation.coverage import EXPECTED
from muster.simulation.invariants import INVARIANTS, check, name, sentence
from muster.simulation.seeds import case_of, play
from muster.simulation.trace import trace
from muster.spec.quantities import format_duration

#: Seconds between two lines of progress.
_SILENCE = 10.0
#: Findings that are explained, which takes many runs each.
_EXPLAINED = 5


@click.command()
@click.option("--seed", type=int, help="Replay this one.")
@click.option("--trace", "traced", is_flag=True, help="Show everything that happens in it.")
@click.option("--plan", help="Faults instead of its own, as JSON, as a trace shows them.")
@click.option("--seeds", help="Try these: 0:10000; or so many that nobody has tried: 1000000.")
@click.option("--report", type=int, help="Try so many, and say what they went through.")
@click.option("--list", "listed", is_flag=True, help="List faults and invariants.")
def main(
    seed: int | None,
    traced: bool,
    plan: str | None,
    seeds: str | None,
    report: int | None,
    listed: bool,
) -> None:
    """Simulate runs of Muster, each of which follows from its seed."""
    if listed:
        _say([*fault_lines(), "", *invariant_lines()])
    elif seed is not None:
        _replay(seed, plan, traced=traced)
    elif report is not None:
        _report(range(report))
    elif seeds is not None:
        _try(_range(seeds))
    else:
        raise click.UsageError("say --seed, --seeds, --report or --list")


def _replay(seed: int, plan: str | None, *, traced: bool) -> None:
    try:
        case = case_of(seed, None if plan is None else fault_plans.from_json(plan))
    except DecodeError as error:
        raise click.BadParameter(str(error), param_hint="--plan") from None
    with TemporaryDirectory() as folder:
        story = play(case, Path(folder))
    breaches = check(story)
    if traced:
        _say(trace(story))
    if plan is None and breaches:
        _say(explain(Finding(seed, tuple(breaches))))
    else:
        _say(str(breach) for breach in breaches)
    sys.exit(1 if breaches else 0)


def _range(seeds: str) -> range:
    first, colon, last = seeds.partition(":")
    if first.isdigit() and last.isdigit() and int(first) < int(last):
        return range(int(first), int(last))
    if first.isdigit() and int(first) and not colon:
        return fresh(int(first))
    text = f"{seeds!r} is no range; write 0:10000, or a number of new ones"
    raise click.BadParameter(text, param_hint="--seeds")


def _report(seeds: range) -> None:
    began = time.perf_counter()
    tally = total(run_seeds(seeds))
    took = time.perf_counter() - began
    _say(report_lines(seeds, dict(tally.seen), took, len(tally.findings)))
    for finding in tally.findings[:_EXPLAINED]:
        _say(explain(finding))
    sys.exit(1 if tally.findings else 0)


def _try(seeds: range) -> None:
    """Tell of progress, of findings as they come, and, when interrupted, of what is left."""
    done = found = 0
    began = told = time.perf_counter()
    click.echo(f"seeds {_text(seeds)}")
    try:
        for part in run_seeds(seeds):
            done += part.seen["runs"]
            for finding in part.findings:
                found += 1
                if found <= _EXPLAINED:
                    _say(explain(finding))
            now = time.perf_counter()
            if now - told > _SILENCE or done == len(seeds):
                told = now
                click.echo(progress(seeds, done, found, now - began), err=True)
    except KeyboardInterrupt:
        click.echo(f"left: make seeds SEEDS={_text(seeds[done:])}")
        sys.exit(130)
    if found:
        click.echo(f"{found:,} of {len(seeds):,} seeds break an invariant")
    sys.exit(1 if found else 0)


def progress(seeds: range, done: int, found: int, took: float) -> str:
    """One line on how far it is. took: seconds."""
    left = took / done * (len(seeds) - done)
    broken = f", {found:,} of them broken" if found else ""
    return (
        f"{done:,} of {len(seeds):,}{broken}; {took / done * 1000:.1f} ms a seed; "
        f"{format_duration(round(left))} left"
    )


def _text(seeds: range) -> str:
    return f"{seeds.start}:{seeds.stop}"


def report_lines(seeds: range, seen: dict[str, int], took: float, found: int) -> Iterator[str]:
    """As docs/simulation.md has it."""
    yield f"seeds {seeds.start} to {seeds.stop - 1}: {found} of them break an invariant"
    yield f"{took:.1f} s, {took / len(seeds) * 1000:.1f} ms a seed"
    yield ""
    for what in sorted(seen, key=lambda what: (what in EXPECTED, what)):
        yield f"{seen[what]:9,}  {what}"
    yield from (f"{0:9}  {what}" for what in EXPECTED if not seen.get(what))


def fault_lines() -> Iterator[str]:
    """What may go wrong, in Markdown."""
    for kind in get_args(fault_plans.AnyFault):
        yield f"* `{kind.__name__}`: {' '.join(kind.__doc__.split())}"


def invariant_lines() -> Iterator[str]:
    """The invariants, in Markdown."""
    for invariant in INVARIANTS:
        yield f"* **{name(invariant)}**: {sentence(invariant)}"


def _say(lines: Iterator[str] | list[str]) -> None:
    for line in lines:
        click.echo(line)


if __name__ == "__main__":
    main()
