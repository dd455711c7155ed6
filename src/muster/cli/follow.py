"""Follow a run in the foreground: print its output, summarize how it ended."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from typing import TYPE_CHECKING

from muster.cli.detach import DETACH_SIGNALS, report_still_running
from muster.cli.terminal import echo, style
from muster.describe.words import plural
from muster.errors import EngineError, HomeGone, MusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.api.prepared import PreparedRun
    from muster.cli.run_status import RunStatus
    from muster.client.run import JobRun
    from muster.plan.model import RunPlan

#: Lines of a failed program that the summary repeats: all of them are in the output above it.
_CAUSE_LINES = 6
#: Failed replicas of an array that it names.
_FAILED = 10


def follow(run: JobRun, prepared: PreparedRun, *, as_json: bool) -> int:
    """Print a run's output until it ends, then its summary. Returns the exit code."""
    from muster.api.streams import Selection
    from muster.cli.exit_codes import exit_code_of
    from muster.cli.log_printer import Printer
    from muster.cli.output import print_json
    from muster.cli.streams import OutputLost, ReaderGone, end_by_sigpipe, optional_output

    groups = {group.name: group.size for group in prepared.plan.groups}
    _print_name(run, _size(prepared.plan))
    # main() disables it for a fast start; from here the command may run for days. Looking at what
    # is loaded by now would find no garbage, and copy the pages shared with the launcher
    gc.freeze()
    gc.enable()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DETACH_SIGNALS)
        if not as_json:
            _print_cluster_when_up(run, prepared)
        to = 2 if as_json else 1  # stdout then holds the JSON alone
        with _live_status(run, prepared, to) as status:
            printer = Printer(
                groups,
                arrays=run.arrays(),
                processes=prepared.plan.processes_per_node,
                to=to,
                messages="separate",
                printed=None if status is None else status.note,
            )
            # all attempts: a second or later run may have restarted while the first was followed
            chunks = run.log_chunks(
                Selection(attempt="all"),
                follow=True,
                live=None if status is None else status.live,
                pause=None if status is None else status.pause,
            )
            printer.print(chunks)
            run.wait()
    except HomeGone:
        raise
    except (ReaderGone, MusterError, OSError) as error:
        if not run.refresh().done:
            report_still_running(run)
            if isinstance(error, ReaderGone):
                end_by_sigpipe()
            raise
        if isinstance(error, OutputLost):  # output is missing, even if the run succeeded
            _print_summary(run)
            raise
    _print_summary(run)
    if as_json:
        with optional_output():
            print_json(run.to_dict())
    return exit_code_of(run)


@contextlib.contextmanager
def _live_status(run: JobRun, prepared: PreparedRun, to: int) -> Iterator[RunStatus | None]:
    """The run's status at the bottom of the terminal; None if there can be none. to: where the
    output goes."""
    from muster.cli.live_area import LiveArea, can_be_live

    if not can_be_live(to):
        yield None
        return
    from muster.cli.run_status import RunStatus

    with LiveArea().open() as area:
        yield RunStatus(run, area, max_restarts=prepared.plan.policy.max_restarts)


def _size(plan: RunPlan) -> str:
    """How large a run is: `4 nodes`, `100 replicas, 8 at once`."""
    policy = plan.policy
    if not (plan.has_arrays and len(policy.groups) == 1):
        return plural(policy.initial_size, "node")
    (group,) = policy.groups
    of = f" of {plural(group.nodes, 'node')}" if group.nodes > 1 else ""
    some = f", {group.at_once:,} at once" if group.at_once < group.initial else ""
    return f"{group.initial:,} replica{'s' * (group.initial != 1)}{of}{some}"


def _print_name(run: JobRun, size: str) -> None:
    """Print what the run is called before anything else: every other command needs it."""
    starts = f"starts {size}"
    if run.state == "QUEUED":
        starts = f"is QUEUED, {run.details} (Ctrl-C detaches)"
    echo(f"{style(run.name, 'bold')} {starts}", err=True)


def _print_cluster_when_up(run: JobRun, prepared: PreparedRun) -> None:
    """Print a persistent cluster's addresses once it is up."""
    from muster.spec.values import CLUSTER_TAG

    if CLUSTER_TAG not in prepared.spec.tags:
        return
    from muster.cli.cluster import print_cluster
    from muster.client.cluster import Cluster

    # if the cluster does not come up, the output that is printed next says why
    with contextlib.suppress(EngineError):
        print_cluster(Cluster(run).wait(), as_json=False)


def report_if_suspended(run: JobRun, *, following: bool) -> None:
    """Report why following has stopped although the run has not ended."""
    if following and run.refresh().state == "SUSPENDED":
        echo(f"{run.name} is suspended; `muster runs resume {run.name}` resumes it", err=True)


def _print_summary(run: JobRun) -> None:
    from muster.cli.output import state
    from muster.describe.failure import cause_lines
    from muster.describe.times import ran

    sys.stdout.flush()
    seconds = run.seconds
    took = f" in {ran(seconds, run.suspended_seconds)}" if seconds is not None else ""
    size = "" if run.has_array else f", {plural(run.node_count, 'node')}"
    echo(f"{run.name} {state(run.state)}{took}{size}", err=True)
    for line in [*cause_lines(run.details, _CAUSE_LINES), *filter(None, [run.hint])]:
        echo(f"  {line}", err=True)
    if run.has_array:
        _print_array(run)


def _print_array(run: JobRun) -> None:
    """Print how the replicas of an array ended, and what to do next."""
    from muster.cli.run_details import retry_of

    table, states = run.table(states=["failed"], limit=_FAILED), run.replica_states
    if not (run.details_name_failed and states.keys() <= {"SUCCEEDED", "FAILED"}):
        echo(f"  {run.progress()}", err=True)
    failed = states.get("FAILED", 0)
    if failed and not run.details_name_failed:
        from muster.lifecycle.ranks import shortened_ranks

        numbers = shortened_ranks([row["replica"] for row in table.rows], _FAILED, failed)
        echo(f"  failed: {'replica' if failed == 1 else 'replicas'} {numbers}", err=True)
    hints = [f"runs table {run.name}"]
    if run.state == "SUSPENDED":
        hints.append(f"runs resume {run.name}")
    elif retry := retry_of(run):
        hints.append(retry)
    echo(f"  next: {', '.join(f'`muster {hint}`' for hint in hints)}", err=True)
