"""The text of `muster runs show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.cli.output import elapsed, node_state, print_table, state
from muster.cli.terminal import echo
from muster.describe.settings import value_text
from muster.describe.times import span
from muster.spec.quantities import format_size

if TYPE_CHECKING:
    from muster.client.node import Node
    from muster.client.run import JobRun
    from muster.storage.usage import NodeUsage

#: Outputs that are listed.
_MAX_OUTPUTS = 10


def print_run(run: JobRun) -> None:
    """Print a run's state and its causes, its nodes and its settings."""
    _print_head(run)
    echo()
    print_table(
        ("RANK", "GROUP", "NAME", "ADDRESS", "STATE", "READY", "EXIT", "TIME"),
        [_node_row(node) for node in run.nodes],
        drop=("ADDRESS", "READY", "GROUP"),
        shorten={"NAME": 16, "GROUP": 12},
    )
    _print_usage(run)
    echo()
    _print_settings(run)
    by = f", started by {run.created_by}" if run.created_by else ""
    echo(f"\njob {run.job_name} ({run.job_id}), run {run.id}{by}")
    for key, value in run.tags.items():
        echo(f"tag {key}={value}")
    echo(f"logs in {run.log_folder()}")
    _print_outputs(run)


def _print_usage(run: JobRun) -> None:
    usage = run.usage
    if not usage:
        return
    echo()
    print_table(
        ("RANK", "CPUS", "CPUS MAX", "MEMORY", "MEMORY MAX", "READ", "WRITTEN", "RECEIVED", "SENT"),
        [_usage_row(rank, used) for rank, used in sorted(usage.items())],
        drop=("RECEIVED", "SENT"),
        shorten={},
    )


def _usage_row(rank: int, used: NodeUsage) -> tuple[str, ...]:
    sizes = (
        used.memory_average,
        used.memory_peak,
        used.disk_read,
        used.disk_written,
        used.received,
        used.sent,
    )
    texts = ["-" if size is None else format_size(size) for size in sizes]
    return (str(rank), f"{used.cpu_average:.2f}", f"{used.cpu_peak:.2f}", *texts)


def _print_outputs(run: JobRun) -> None:
    found = run.outputs()
    for one in found[:_MAX_OUTPUTS]:
        echo(f"output: {one.root / one.place}")
    if len(found) > _MAX_OUTPUTS:
        echo(f"and {len(found) - _MAX_OUTPUTS} more outputs: `muster outputs {run.name}`")


def _print_head(run: JobRun) -> None:
    took = f" after {span(run.seconds)}" if run.seconds is not None else ""
    attempt = f", attempt {run.attempt}" if run.attempt else ""
    display_name = f" ({run.display_name})" if run.display_name else ""
    echo(f"{run.name}{display_name}  {state(run.state)}{took}{attempt}")
    for reason in run.why():
        for line in reason.splitlines():
            echo(f"  {line}")
    for note in run.notes:
        echo(f"  note: {note}")
    for group, text in run.limits().items():
        echo(f"  group {group}: {text}")
    for folder in run.directories_in_place():
        echo(f"  in place: {folder}")
    where = " (on the nodes' own network)" if run.network != "shared" else ""
    for name, place in run.endpoints.items() if not run.done else ():
        echo(f"  {name}: {place}{where}")


def _node_row(node: Node) -> tuple[str, ...]:
    started, finished = node.started_at, node.finished_at
    return (
        str(node.rank),
        node.group,
        node.fqdn,
        node.address,
        *node_state(node.state),
        "-" if node.exit_code is None else str(node.exit_code),
        "-"
        if started is None
        else elapsed(started.timestamp(), finished.timestamp() if finished else None),
    )


def _print_settings(run: JobRun) -> None:
    settings = run.settings()
    print_table(
        ("SETTING", "FROM", "VALUE"),  # the terminal may cut VALUE; --json has all of it
        [(s.path, s.origin, value_text(s.path, s.value)) for s in settings],
        shorten={"SETTING": 40, "VALUE": 20},
    )
    if overridden := [s.path for s in settings if s.origin == "override"]:
        echo(f"\noverridden for this run: {', '.join(overridden)}")
