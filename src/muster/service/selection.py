"""Check that a run has the output that is selected."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from muster.api.streams import Selection
from muster.errors import InvalidInput, Problem
from muster.service.context import Context
from muster.service.nodes import unknown_ranks
from muster.spec.wording import alternatives
from muster.storage.run_output import attempts_with_output
from muster.store.records import RunSummary
from muster.store.run_columns import StoredPlan

_STREAMS = ("stdout", "stderr", "service")


def check_selection(context: Context, run: RunSummary, selection: Selection) -> None:
    """Raises InvalidInput for parts that the run does not have."""
    sizes: Mapping[str, int] = {}
    services: Collection[str] = ()
    if selection.ranks is not None or selection.groups is not None or selection.services:
        plan = StoredPlan(context.store.runs.get(run.id))
        sizes, services = plan.group_sizes(), plan.services_with_output()
    if found := list(_problems(selection, run.name, sizes, services)):
        raise InvalidInput(*found)
    if isinstance(selection.attempt, int):
        check_attempt(context, run, selection.attempt)


def _problems(
    selection: Selection, run: str, sizes: Mapping[str, int], services: Collection[str]
) -> Iterator[Problem]:
    """Problems with a selection: parts that the run does not have.

    run: its name. sizes: group -> number of nodes. services: those with their own output.
    """
    last = sum(sizes.values()) - 1
    no_services = "no service of the run has its own output: leave --service out"
    if absent := [rank for rank in selection.ranks or () if rank not in range(last + 1)]:
        yield unknown_ranks(run, absent, f"ranks are 0 to {last}")
    chosen: list[tuple[str, Collection[str] | None, Collection[str], str]] = [
        ("group", selection.groups, sizes, f"use {alternatives(sizes)}"),
        ("stream", selection.streams, _STREAMS, f"use {alternatives(_STREAMS)}"),
        (
            "service",
            selection.services,
            services,
            f"use {alternatives(services)}" if services else no_services,
        ),
    ]
    for noun, values, known, hint in chosen:
        unknown = [value for value in values or () if value not in known]
        if unknown:
            yield Problem(noun, f"{run} has no {noun} {', '.join(unknown)}", hint)
    streams = selection.streams
    of_nodes = selection.ranks or selection.groups or selection.services
    if streams and {*streams} == {"service"} and of_nodes:
        text = "Muster's own messages belong to no node"
        yield Problem("stream", text, "select them without ranks, groups or services")
    if selection.grep is not None and (problem := _pattern_problem(selection.grep)):
        yield problem
    if selection.tail is not None and selection.tail < 0:
        yield Problem("tail", f"must be at least 0, not {selection.tail}")


def _pattern_problem(pattern: str) -> Problem | None:
    from muster.spec.patterns import check_pattern
    from muster.spec.wording import Refused

    try:
        check_pattern(pattern)
    except Refused as error:
        return Problem("grep", error.message, error.hint)
    return None


def check_attempt(context: Context, run: RunSummary, attempt: int) -> None:
    """Raises InvalidInput if the attempt has no output and will have none."""
    known = sorted({*attempts_with_output(context.home.run_dir(run.id)), run.attempt})
    if attempt not in known:
        text = f"attempt {attempt} of {run.name} has no output"
        hint = f"attempts with output: {', '.join(map(str, known))}"
        raise InvalidInput(Problem("attempt", text, hint))
