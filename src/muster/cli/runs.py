"""`muster runs`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from muster.cli.arguments import change_options, json_option, run_argument
from muster.cli.output import ago, exit_code_of, print_json, print_table, span, state
from muster.cli.streams import optional_output
from muster.cli.terminal import echo
from muster.errors import InvalidInput

if TYPE_CHECKING:
    from muster.client.client import Client
    from muster.client.run import JobRun
    from muster.store.records import RunSummary


@click.group()
def runs() -> None:
    """List, show, scale, suspend, resume, cancel and delete runs."""


@runs.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only runs in this state.")
@click.option("--job", metavar="JOB", help="Only runs of this job.")
@click.option("--tag", "tags", multiple=True, metavar="K[=V]", help="Only runs with this label.")
@click.option("--since", metavar="TIME", help="Only runs started in the last 90s, 10m, 1d.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="At most so many; 0: all.",
)
@json_option()
def list_runs(
    states: tuple[str, ...],
    job: str | None,
    tags: tuple[str, ...],
    since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Runs, newest first."""
    from muster.cli.filters import job_filter, since_filter, state_filter, tag_filter
    from muster.client.client import Client

    client = Client()
    found = client.summaries(
        states=state_filter(states),
        job=job_filter(client, job),
        since=since_filter(since),
        tags=tag_filter(tags),
        limit=limit or None,
    )
    if as_json:
        print_json([_summary_dict(summary) for summary in found])
        return
    if not found:
        echo("no runs" if not (states or job or tags or since) else "no such runs", err=True)
        return
    columns = dict(_COLUMNS)
    if not any(summary.display_name for summary in found):
        del columns["NAME"]
    if len({summary.created_by for summary in found}) == 1:
        del columns["BY"]
    print_table([*columns], [[cell(run) for cell in columns.values()] for run in found])
    if limit and len(found) == limit:
        echo(f"the newest {limit}; --limit 0 shows all", err=True)
    client.service.warn_of_space()


def _took(started: float, finished: float | None) -> str:
    import time

    return span((finished or time.time()) - started)


def _details(run: RunSummary) -> str:
    from muster.lifecycle.describe import in_a_line

    return in_a_line(run.details)


#: Those of a list: what stands above them, and what is in them.
_COLUMNS: dict[str, Callable[[RunSummary], str]] = {
    "RUN": lambda run: run.name,
    "ID": lambda run: run.id,
    "NAME": lambda run: run.display_name or "-",
    "STATE": lambda run: state(str(run.state)),
    "NODES": lambda run: str(run.node_count),
    "STARTED": lambda run: ago(run.created_at),
    "BY": lambda run: run.created_by or "-",
    "TIME": lambda run: "-" if run.started_at is None else _took(run.started_at, run.finished_at),
    "DETAILS": _details,
}


def _summary_dict(run: RunSummary) -> dict[str, object]:
    from muster.client.times import time_text

    data: dict[str, object] = {name: getattr(run, name) for name in run.__struct_fields__}
    for name in ("created_at", "started_at", "finished_at"):
        data[name] = time_text(getattr(run, name))
    return data


@runs.command()
@run_argument()
@json_option()
def show(run_name: str, as_json: bool) -> None:
    """What a run is, why it is in its state, its nodes, and where each setting came from."""
    from muster.client.client import Client

    client = Client()
    run = client.run(run_name)
    if as_json:
        settings = [{"path": s.path, "value": s.value, "origin": s.origin} for s in run.settings()]
        print_json({**run.to_dict(), "why": run.why(), "settings": settings})
        return
    _show(run)
    client.service.warn_of_space()


def _show(run: JobRun) -> None:
    took = f" after {span(run.seconds)}" if run.seconds is not None else ""
    attempt = f", attempt {run.attempt}" if run.attempt else ""
    called = f" ({run.display_name})" if run.display_name else ""
    echo(f"{run.name}{called}  {state(run.state)}{took}{attempt}")
    for reason in run.why():
        for line in reason.splitlines():
            echo(f"  {line}")
    for note in run.notes:
        echo(f"  note: {note}")
    for group, text in run.limits().items():
        echo(f"  group {group}: {text}")
    where = " (on the nodes' own network)" if run.network != "shared" else ""
    for name, place in run.endpoints.items() if not run.done else ():
        echo(f"  {name}: {place}{where}")
    echo()
    print_table(
        ("RANK", "GROUP", "NAME", "ADDRESS", "STATE", "EXIT", "TIME"),
        [
            (
                str(node.rank),
                node.group,
                node.fqdn,
                node.address,
                state(node.state),
                "-" if node.exit_code is None else str(node.exit_code),
                "-"
                if node.started_at is None
                else _took(
                    node.started_at.timestamp(),
                    node.finished_at.timestamp() if node.finished_at else None,
                ),
            )
            for node in run.nodes
        ],
    )
    echo()
    from muster.cli.settings import value_text

    settings = run.settings()
    print_table(
        ("SETTING", "FROM", "VALUE"),  # the last is cut where the terminal ends; --json has all
        [(s.path, s.origin, value_text(s.path, s.value)) for s in settings],
    )
    if changed := [s.path for s in settings if s.origin == "override"]:
        echo(f"\nchanged for this run: {', '.join(changed)}")
    echo(f"\njob {run.job_name} ({run.job_id}), run {run.id}{_by(run)}")
    echo(f"logs in {run.log_folder()}")
    for path in run.outputs:
        echo(f"left behind: {path}")


def _by(run: JobRun) -> str:
    by = f", started by {run.created_by}" if run.created_by else ""
    tags = "".join(f"\ntag {key}={value}" for key, value in run.tags.items())
    return by + tags


def _found(names: tuple[str, ...]) -> list[JobRun]:
    """The runs called so; all of them, or an error before anything is done to one."""
    from muster.client.client import Client

    client = Client()
    return [client.run(name) for name in names]


@runs.command()
@run_argument(nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Return as soon as the request is recorded.")
@click.option("--force", is_flag=True, help="Kill all their processes at once.")
@json_option()
def cancel(run_name: tuple[str, ...], no_wait: bool, force: bool, as_json: bool) -> None:
    """End runs: SIGTERM, their grace period, SIGKILL. Final.

    With --force their processes have no time to save anything, and their supervisors are killed
    as well: for a run whose supervisor is stopped, or hangs, and is not going to hear of a cancel.
    """
    from muster.client.client import Client
    from muster.lifecycle.states import TERMINAL

    client = Client()
    service = client.service
    found = [service.find_run(name) for name in run_name]  # also one whose record is corrupt
    ended = {run.id for run in found if run.state in TERMINAL}
    for run in found:
        service.cancel(run.id, force=force and run.id not in ended)
    found = [service.find_run(run.id) if no_wait else service.rest(run.id) for run in found]
    if as_json:
        print_json([_canceled_dict(client, run) for run in found])
        return
    for run in found:
        if no_wait and run.id not in ended:
            echo(f"{run.name} will be canceled; it is {state(run.state)}")
            continue
        already = " already" if run.id in ended else ""
        echo(f"{run.name} is{already} {state(run.state)}")


def _canceled_dict(client: Client, run: RunSummary) -> dict[str, object]:
    """The run, or as much of it as a list shows if its record is corrupt."""
    from muster.store.records import CorruptRecord

    try:
        return client.run(run.id).to_dict()
    except CorruptRecord:
        return _summary_dict(run)


@runs.command()
@run_argument()
@click.option("--timeout", metavar="TIME", help="Give up after 90s, 10m, ... (exit code 3).")
@json_option()
@click.pass_context
def wait(ctx: click.Context, run_name: str, timeout: str | None, as_json: bool) -> None:
    """Wait until a run has ended; the exit code tells how."""
    from muster.cli.filters import duration
    from muster.client.client import Client

    run = Client().run(run_name)
    try:
        run.wait(None if timeout is None else duration("--timeout", timeout))
    except TimeoutError as error:
        echo(f"{error}; it is {run.refresh().state}", err=True)
        ctx.exit(3)
    with optional_output():
        if as_json:
            print_json(run.to_dict())
        else:
            echo(f"{run.name} {state(run.state)}")
    ctx.exit(exit_code_of(run.state))


@runs.command()
@run_argument(nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Return as soon as the request is recorded.")
@json_option()
def suspend(run_name: tuple[str, ...], no_wait: bool, as_json: bool) -> None:
    """Pause runs: nodes save what they have (`checkpoint`), then end; resume goes on."""
    found = _found(run_name)
    refused = [problem for run in found if (problem := run.not_to_suspend()) is not None]
    if refused:
        raise InvalidInput(*refused)
    for run in found:
        run.suspend()
    for run in found:
        if not no_wait:
            run.wait()
    if as_json:
        print_json([run.to_dict() for run in found])
    else:
        for run in found:
            echo(f"{run.name} is {state(run.refresh().state)}")
    # asked in time, but it was over first
    refused = [problem for run in found if (problem := run.not_to_suspend()) is not None]
    if refused:
        raise InvalidInput(*refused)


@runs.command()
@run_argument(nargs=-1, required=True)
@change_options
@json_option()
def resume(run_name: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Resume suspended runs, with other settings if you like.

    A run may change what it may change when it starts, except which nodes it has.

    \b
    muster runs resume train-3 --set resources.memory=8GiB --max-runtime 2d
    """
    from muster.spec.options import options_from_flags
    from muster.spec.overrides import changes_from_flags

    flags["framework_options"] = options_from_flags(flags["framework_options"])
    given = any(value for value in flags.values()) or flags["max_restarts"] is not None
    changes = changes_from_flags(**flags, environ=os.environ) if given else None
    found = _found(run_name)
    overrides = [run.overrides(changes) if changes else None for run in found]
    for run, own in zip(found, overrides, strict=True):
        run.resume_with(own)
    if as_json:
        print_json([run.to_dict() for run in found])
        return
    for run in found:
        echo(f"{run.name} goes on; `muster logs {run.name} --follow` shows it")


@runs.command()
@run_argument()
@click.argument("size", metavar="GROUP=N")
@json_option()
def scale(run_name: str, size: str, as_json: bool) -> None:
    """Have more replicas of a group of a run that goes on, or fewer.

    The job says how many there may be (`max_replicas`). Those that are added start at once; those
    that are too many are told to end, and that is no failure.

    \b
    muster runs scale train-3 workers=8
    """
    from muster.client.client import Client

    run = Client().run(run_name)
    name, replicas = _size(size, [*run.replicas])
    before = run.replicas.get(name)
    run.scale(name, replicas)
    if as_json:
        print_json(run.to_dict())
    elif before == replicas:
        echo(f"{run.name} {name} has {replicas} already")
    else:
        later = " when it goes on" if run.state == "SUSPENDED" else ""
        echo(f"{run.name} {name} goes from {before} to {replicas}{later}")


def _size(text: str, groups: list[str]) -> tuple[str, int]:
    """GROUP=N, or just N where there is one group."""
    name, equals, number = text.rpartition("=")
    if not equals and len(groups) == 1:
        name = groups[0]
    if name and number.removeprefix("-").isdecimal():
        return name, int(number)
    example = name if name in groups else groups[-1]
    raise click.BadParameter(f"{text!r}; write {example}=8", param_hint="GROUP=N")


@runs.command()
@run_argument(nargs=-1, required=True)
def delete(run_name: tuple[str, ...]) -> None:
    """Forget runs that have ended, with their output."""
    from muster.client.client import Client

    service = Client().service
    for run in [service.find_run(name) for name in run_name]:
        service.delete(run.id)
        echo(f"{run.name} is deleted")
