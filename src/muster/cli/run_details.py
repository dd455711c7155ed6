"""The text of `muster status`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from muster.cli.output import node_cells, print_cells, print_table, state
from muster.cli.terminal import echo
from muster.describe.failure import cause_lines
from muster.describe.settings import value_text
from muster.describe.times import minute, ran
from muster.spec.quantities import format_size

if TYPE_CHECKING:
    from muster.api.usage import NodeUsage
    from muster.client.run import JobRun

#: Lines of what a failed program wrote: in short, and with `--all`.
_CAUSE_LINES, _ALL = 6, 1000
#: Outputs that are listed.
_MAX_OUTPUTS = 10


def print_run(run: JobRun, *, every: bool) -> None:
    """Print a run's state and its cause, its nodes and the settings that are not defaults.

    every: all settings, whole messages, and where everything is.
    """
    _print_head(run, most=_ALL if every else _CAUSE_LINES)
    nodes = run.shown_nodes
    if nodes:
        echo()
    header = ["RANK", "GROUP", "NAME", "ADDRESS", "STATE", "READY", "EXIT", "TIME"]
    if any(node.host for node in nodes):
        header.insert(3, "HOST")
    if every and any(node.host_id for node in nodes):
        header.insert(header.index("ADDRESS"), "HOST ID")
    if run.has_array:
        header[:1] = ["REPLICA", *(["NODE"] if any(node.index for node in nodes) else [])]
    print_cells(
        header,
        [
            {**node_cells(node), "REPLICA": str(node.replica), "NODE": str(node.index)}
            for node in nodes
        ],
        drop=("ADDRESS", "READY", "GROUP", "HOST", "HOST ID"),
        shorten={"NAME": 16, "GROUP": 12},
    )
    _print_usage(run, {node.rank for node in nodes} if run.has_array else None)
    _print_settings(run, every=every)
    if every:
        by = f", started by {run.created_by}" if run.created_by else ""
        echo(f"\njob {run.job_name} ({run.job_id}), run {run.id}{by}")
        for key, value in run.tags.items():
            echo(f"tag {key}={value}")
        echo(f"logs in {run.log_folder()}")
    if not run.has_array:  # there may be very many
        _print_outputs(run)
    echo(
        f"\nnext: {', '.join(f'`muster {words}`' for words in _next(run, every=every))}", wrap=True
    )


def retry_of(run: JobRun) -> str:
    """The command that retries replicas of an array; "" if there are none, or several arrays."""
    if not run.done or len(run.arrays()) != 1:
        return ""
    states = run.replica_states
    if run.state != "SUCCEEDED" and states.keys() & {"STOPPED", "NOT_STARTED"}:
        return f"runs retry {run.name} --unfinished"
    return f"runs retry {run.name} --failed" if states.get("FAILED") else ""


def _next(run: JobRun, *, every: bool) -> Iterator[str]:
    """Commands that are useful in the run's state."""
    name = run.name
    if run.has_array:
        yield f"runs table {name}"
        if retry := retry_of(run):
            yield retry
    match run.state:
        case "ACCEPTED" | "QUEUED" | "IN_PROGRESS":
            yield from (f"logs {name} --follow", f"cancel {name}")
        case "SUSPENDED":
            yield from (f"runs resume {name}", f"cancel {name}")
        case "CANCELING":
            yield f"logs {name} --follow"
        case "FAILED":
            yield from (f"logs {name}", f"events {name}")
        case _:
            yield f"logs {name}"
    if not every:
        yield f"status {name} --all"


def _print_usage(run: JobRun, ranks: Collection[int] | None) -> None:
    """ranks: of these nodes; None = of all."""
    usage = {rank: used for rank, used in run.usage.items() if ranks is None or rank in ranks}
    if not any(used.memory_average for used in usage.values()):
        return  # there is next to nothing to show
    gpus = any(used.gpu_average is not None for used in usage.values())
    of_gpus = ("GPUS", "GPUS MAX", "GPU MEM MAX") if gpus else ()
    transfers = ("READ", "WRITTEN", "RECEIVED", "SENT")
    echo()
    print_table(
        ("RANK", "CPUS", "CPUS MAX", "MEMORY", "MEMORY MAX", *of_gpus, *transfers),
        [_usage_row(rank, used, gpus=gpus) for rank, used in sorted(usage.items())],
        drop=("RECEIVED", "SENT", *(("READ", "WRITTEN") if gpus else ())),
        shorten={},
    )


def _usage_row(rank: int, used: NodeUsage, *, gpus: bool) -> tuple[str, ...]:
    of_gpus = (_number(used.gpu_average), _number(used.gpu_peak), _size(used.gpu_memory_peak))
    return (
        str(rank),
        *(_number(used.cpu_average), _number(used.cpu_most)),
        *(_size(used.memory_average), _size(used.memory_peak)),
        *(of_gpus if gpus else ()),
        *map(_size, (used.disk_read, used.disk_written, used.received, used.sent)),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _size(value: int | None) -> str:
    return "-" if value is None else format_size(value)


def _print_outputs(run: JobRun) -> None:
    from muster.client.contexts import current_address

    found = run.outputs()
    here = current_address() is None
    for one in found[:_MAX_OUTPUTS]:
        echo(f"output: {one.root / one.path_in_run if here else one.path_in_run}")
    if len(found) > _MAX_OUTPUTS:
        echo(f"and {len(found) - _MAX_OUTPUTS} more outputs: `muster outputs {run.name}`")


def _print_head(run: JobRun, *, most: int) -> None:
    attempt = f", attempt {run.attempt}" if run.attempt else ""
    display_name = f" ({run.display_name})" if run.display_name else ""
    echo(f"{run.name}{display_name}  {state(run.state)}{_took(run)}{attempt}", wrap=True)
    if run.scheduled_at is not None:
        echo(f"  started by schedule {run.schedule} for {minute(run.scheduled_at)}")
    for reason in run.why():
        for line in cause_lines(reason, most):
            echo(f"  {line}", wrap=True)
    for note in run.notes:
        echo(f"  note: {note}", wrap=True)
    for group, text in run.limits().items():
        echo(f"  group {group}: {text}", wrap=True)
    for folder in run.directories_in_place():
        echo(f"  directory: {folder}")
    where = " (on the nodes' own network)" if run.network != "shared" else ""
    for name, place in run.endpoints.items() if not run.done else ():
        echo(f"  {name}: {place}{where}")


def _took(run: JobRun) -> str:
    if run.seconds is None:
        return ""
    how = ", running" if run.state == "IN_PROGRESS" else " after"
    return f"{how} {ran(run.seconds, run.suspended_seconds)}"


def _print_settings(run: JobRun, *, every: bool) -> None:
    settings = [s for s in run.settings() if every or s.origin != "default"]
    rows = [(s.path, s.origin, value_text(s.path, s.value)) for s in settings]
    if rows:
        echo()
    # the terminal may shorten VALUE; --json has all of it
    print_table(("SETTING", "FROM", "VALUE"), rows, shorten={"SETTING": 40, "VALUE": 20})
    if overridden := [s.path for s in settings if s.origin == "override"]:
        echo(f"\noverridden for this run: {', '.join(overridden)}", wrap=True)
