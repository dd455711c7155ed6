"""`muster runs`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import (
    Count,
    change_options,
    json_option,
    replicas_option,
    run_argument,
)
from muster.cli.command_hints import Group
from muster.cli.exit_codes import exit_code_of
from muster.cli.formats import output_format
from muster.cli.output import print_json, state
from muster.cli.run_choice import (
    Outcome,
    about,
    choice_flags,
    choice_options,
    choose_runs,
    job_filter,
    tag_filter,
)
from muster.cli.streams import optional_output
from muster.cli.terminal import echo, warn
from muster.describe.words import plural
from muster.errors import EXIT_CANCELED, EXIT_OK, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.client.client import Client
    from muster.client.run import JobRun
    from muster.store.records import RunSummary


#: Rows of the table of runs by default. Programs get all of them.
_MAX_ROWS = 50


@click.group(cls=Group)
def runs() -> None:
    """List, show, scale, suspend, resume, cancel and delete runs."""


@runs.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    shell_complete=values.states,
    help="Only runs in this state.",
)
@click.option("--job", metavar="JOB", shell_complete=values.jobs, help="Only runs of this job.")
@click.option("--tag", "tags", multiple=True, metavar="K[=V]", help="Only runs with this tag.")
@click.option(
    "--since", metavar="TIME", help="Only runs started in the last 90s, 10m, 1d, or since a date."
)
@click.option(
    "--limit",
    type=Count(min=0),
    metavar="N",
    help="Maximum to show (0 = all). Default: 50 in the table; all as JSON or YAML, or with -q.",
)
@click.option(
    "--before",
    metavar="RUN",
    shell_complete=values.runs,
    help="Only runs older than RUN: the next page, if RUN is the last one of a list.",
)
@click.option("--all", "-a", "every", is_flag=True, help="The same as --limit 0.")
@click.option("--quiet", "-q", is_flag=True, help="Print names only, one per line.")
@json_option()
def list_runs(
    states: tuple[str, ...],
    job: str | None,
    tags: tuple[str, ...],
    since: str | None,
    limit: int | None,
    before: str | None,
    every: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """List runs, newest first.

    \b
    muster ps --state running --tag team=vision
    muster ps --limit 20 --before train-81
    muster ps --job train --since 1d -o wide
    muster cancel $(muster ps --quiet --state queued)
    """
    from muster.cli.run_list import print_runs, summary_dict
    from muster.client.client import Client
    from muster.client.filters import moment_of, states_named

    client = Client()
    if every:
        limit = 0
    elif limit is None:
        limit = 0 if quiet or as_json else _MAX_ROWS
    found = client.summaries(
        states=states_named("--state", states),
        job=job_filter(client, job),
        since=None if since is None else moment_of("--since", since),
        tags=tag_filter(tags),
        limit=limit + 1 if limit else None,  # one more tells whether there are others
        before=before,
    )
    found, more = (found[:limit], len(found) > limit) if limit else (found, False)
    if as_json:
        print_json([summary_dict(summary) for summary in found])
        return
    if quiet:
        for summary in found:
            echo(summary.name)
        return
    if not found:
        chosen = states or job or tags or since or before
        echo("no such runs" if chosen else "no runs", err=True)
        return
    print_runs(found, client.api)
    if more:
        older = f"older: `muster ps --before {found[-1].name}`; all: `--all`"
        echo(f"showing {plural(limit, 'run')}; {older}", err=True)
    _warn_of_space(client)


@runs.command()
@run_argument()
@click.option(
    "--all", "every", is_flag=True, help="Also show defaults, whole messages, ids and paths."
)
@json_option()
def show(run_name: str, every: bool, as_json: bool) -> None:
    """Show a run's state, the reason for it, and its nodes.

    Also shows the settings that differ from their defaults.

    \b
    muster status last
    muster status train-3 --all
    muster status train-3 -o yaml
    """
    from muster.client.client import Client

    client = Client()
    run = client.run(run_name)
    if as_json:
        settings = [{"path": s.path, "value": s.value, "origin": s.origin} for s in run.settings()]
        print_json({**run.to_dict(), "why": run.why(), "settings": settings})
        return
    from muster.cli.run_details import print_run

    print_run(run, every=every or output_format() == "wide")
    _warn_of_space(client)


def _warn_of_space(client: Client) -> None:
    """Warn if the disk with the records is full."""
    if text := client.api.space_warning():
        warn(text)


def _find(names: tuple[str, ...]) -> list[JobRun]:
    """All runs with these names. Raises before anything is done to one if a name is unknown."""
    from muster.client.client import Client

    client = Client()
    return [client.run(name) for name in names]


@runs.command()
@run_argument(nargs=-1)
@choice_options
@click.option("--no-wait", is_flag=True, help="Return as soon as the request is recorded.")
@click.option("--force", is_flag=True, help="Kill all processes at once, without SIGTERM.")
@click.option("--keep", is_flag=True, help="Leave adopted JobSets in their clusters.")
@json_option()
@click.pass_context
def cancel(
    ctx: click.Context,
    /,
    run_name: tuple[str, ...],
    no_wait: bool,
    force: bool,
    keep: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Cancel runs: SIGTERM, and SIGKILL after the grace period.

    Canceled runs cannot be resumed. If one run cannot be canceled, the others still are. Of an
    adopted run (`muster adopt`), the JobSet is deleted, with its pods: you are asked first. With
    --keep, it stays as it is, and Muster only stops watching it.

    With --force, programs cannot save anything. It also kills supervisors: use it if a supervisor
    hangs and does not act on `cancel`. What cannot be deleted, such as a JobSet, is left and named.

    \b
    muster cancel train-3 train-4
    muster cancel --state running --tag team=vision
    muster cancel --all --yes
    """
    from muster.client.client import Client
    from muster.lifecycle.states import TERMINAL, RunState

    client, outcome = Client(), Outcome()
    active = {*RunState} - TERMINAL
    flags = choice_flags(options)
    found = choose_runs(client, run_name, flags, outcome, verb="cancel", states=active)
    ended = {run.id for run in found if run.state in TERMINAL}
    if not (flags.yes or keep):
        _confirm_adopted([run for run in found if run.id not in ended])

    def request(run: RunSummary) -> RunSummary:
        if run.id in ended:
            client.api.cancel(run.id)
        else:
            client.api.cancel(run.id, force=force, keep=keep)
        return run

    def wait(run: RunSummary) -> RunSummary:
        return client.api.find_run(run.id) if no_wait else _wait_for_rest(client, run)

    canceled = outcome.attempt(outcome.attempt(found, request), wait)
    if as_json:
        print_json([_canceled_dict(client, run) for run in canceled])
        ctx.exit(outcome.exit_code)
    for run in canceled:
        if no_wait and run.id not in ended:
            echo(f"{run.name} will be canceled; it is {state(run.state)}")
            continue
        already = " already" if run.id in ended else ""
        echo(f"{run.name} is{already} {state(run.state)}")
        for line in _left(run) if run.id not in ended else ():
            echo(line, err=True)
    ctx.exit(outcome.exit_code)


def _left(run: RunSummary | JobRun) -> list[str]:
    """What a run has left where it was, or what keeps it from its end, as sentences. They follow
    the reason of the end, if a user has requested that."""
    from muster.lifecycle.states import RunState

    requested = (RunState.CANCELING, RunState.CANCELED, RunState.SUSPENDED)
    if run.state in requested:
        return run.details.splitlines()[1:]
    return run.details.splitlines() if run.state == RunState.IN_PROGRESS else []


def _confirm_adopted(runs: Sequence[RunSummary]) -> None:
    """Ask before what Muster has not made is deleted. Raises InvalidInput without a terminal, and
    Exit for a no."""
    from muster.cli.confirm import confirm
    from muster.spec.values import ADOPTED_TAG

    for run in runs:
        if (adopted := run.tags.get(ADOPTED_TAG)) is not None:
            confirm(f"delete {adopted} and its pods, which {run.name} has adopted")


def _wait_for_rest(client: Client, run: RunSummary) -> RunSummary:
    """The run, once it has ended or is suspended. Says after a while, once, if it waits for nodes
    that cannot be reached, or for what cannot be removed."""
    from muster.client.following import unreachable_nodes, wait
    from muster.lifecycle.ranks import format_ranks

    said = set[str]()

    def say(what: str, text: str) -> None:
        if what not in said:
            rest = "the request is recorded, so Ctrl-C only ends this wait, as --no-wait does"
            echo(f"{text}; {rest}" if not said else text, err=True)
            said.add(what)

    def show() -> None:
        if lost := unreachable_nodes(client.api, run.id):
            ranks = f"rank{'s' * (len(lost) > 1)} {format_ranks(node.rank for node in lost)}"
            why = f" ({lost[0].unreachable_why})" if lost[0].unreachable_why else ""
            say("nodes", f"{run.name} waits for {ranks}, which cannot be reached{why}")
        for line in _left(client.api.find_run(run.id)):
            say(line, f"{run.name} has not ended yet: {line}")

    return wait(client.api, run.id, every=2.0, show=show)


def _canceled_dict(client: Client, run: RunSummary) -> dict[str, object]:
    """The run as JSON; of a corrupt record, only what a list shows."""
    from muster.cli.run_list import summary_dict
    from muster.store.records import CorruptRecord

    try:
        return client.run(run.id).to_dict()
    except CorruptRecord:
        return summary_dict(run)


@runs.command()
@run_argument(nargs=-1, required=True)
@click.option("--timeout", metavar="TIME", help="Give up after this time: 90s, 10m (exit code 3).")
@json_option()
@click.pass_context
def wait(ctx: click.Context, run_name: tuple[str, ...], timeout: str | None, as_json: bool) -> None:
    """Wait until runs end.

    Exits with the run's exit code; with several runs, with the highest one.

    \b
    muster wait train-3 --timeout 2h && muster outputs train-3 --to results
    muster wait train-3 train-4
    """
    from muster.client.filters import duration_of

    seconds = None if timeout is None else duration_of("--timeout", timeout)
    found = [*{run.id: run for run in _find(run_name)}.values()]
    end = None if seconds is None else time.monotonic() + seconds
    codes, ended = [EXIT_OK], []
    for run in found:
        try:
            run.wait(None if end is None else max(0.0, end - time.monotonic()))
        except TimeoutError as error:
            echo(f"{error}; it is {run.refresh().state}", err=True)
            codes.append(EXIT_CANCELED)
            continue
        ended.append(run)
        codes.append(exit_code_of(run))
        if not as_json:
            with optional_output():
                echo(f"{run.name} {state(run.state)}")
    if as_json and ended:
        with optional_output():
            data = [run.to_dict() for run in ended]
            print_json(data[0] if len(found) == 1 else data)
    ctx.exit(max(codes))


@runs.command()
@run_argument(nargs=-1, required=True)
@json_option()
@click.pass_context
def adopt(ctx: click.Context, run_name: tuple[str, ...], as_json: bool) -> None:
    """Continue runs here whose host is gone for good.

    For a MUSTER_HOME that several hosts share, or a copy of one. The nodes count as lost: the run
    restarts by its `failure` settings, or ends. Never adopt a run whose host may come back with its
    programs still running. If one run cannot be adopted, the others still are.

    \b
    muster runs adopt train-3 train-4
    """
    from muster.client.client import Client
    from muster.describe.failure import one_line

    client, outcome = Client(), Outcome()
    found = {run.id: run for run in outcome.attempt(run_name, client.run)}

    def adopt_one(run: JobRun) -> JobRun:
        with about(run.name):
            run.adopt()
        if not as_json:
            text = f"; `muster status {run.name}` tells more"
            if run.state == "FAILED":
                text = f": {one_line(run.details)}"
            echo(f"{run.name} is {state(run.state)}{text}")
        return run

    adopted = outcome.attempt(found.values(), adopt_one)
    if as_json:
        print_json([run.to_dict() for run in adopted])
    ctx.exit(outcome.exit_code)


@runs.command()
@run_argument(nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Return as soon as the request is recorded.")
@json_option()
def suspend(run_name: tuple[str, ...], no_wait: bool, as_json: bool) -> None:
    """Suspend runs, to resume them later.

    Nodes get the signal of the job's `checkpoint` setting, if it has one, and time to save their
    work; then they end. `muster runs resume` starts them again.

    \b
    muster runs suspend train-3 train-4
    """
    from muster.client.client import Client

    client = Client()
    found = _find(run_name)
    _refuse_if_not_suspendable(found)
    for run in found:
        run.suspend()
    for run in found:
        if not no_wait:
            _wait_for_rest(client, client.api.find_run(run.id))
            run.refresh()
    if as_json:
        print_json([run.to_dict() for run in found])
    else:
        for run in found:
            echo(f"{run.name} is {state(run.refresh().state)}")
            for line in _left(run):
                echo(line, err=True)
    _refuse_if_not_suspendable(found)  # a run may have ended before the request reached it


def _refuse_if_not_suspendable(found: list[JobRun]) -> None:
    """Raise InvalidInput if a run has ended or is being canceled."""
    problems = [problem for run in found if (problem := run.suspend_problem()) is not None]
    if problems:
        raise InvalidInput(*problems)


@runs.command()
@run_argument(nargs=-1, required=True)
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort by replica, state, time, exit, a parameter or a metric; -COLUMN: descending.",
)
@click.option("--reverse", is_flag=True, help="Sort in descending order.")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    shell_complete=values.replica_states,
    help="Only replicas in this state.",
)
@replicas_option()
@click.option(
    "--limit",
    type=Count(min=0),
    metavar="N",
    help="Maximum to show (0 = all). Default: 50 in the table; all as JSON, YAML or CSV.",
)
@click.option(
    "--all",
    "-a",
    "include_not_started",
    is_flag=True,
    help="Also replicas that have not started.",
)
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Keep the table up to date until the runs have ended; with --json, print a record per "
    "line as soon as a replica has ended.",
)
@json_option()
def table(run_name: tuple[str, ...], **options: Any) -> None:
    """Show the replicas of runs with their parameters and results.

    One row per replica: its parameters, state, exit code, time, and what its program wrote to
    metrics.json, in $MUSTER_OUTPUTS or in its working directory if that is the node's own (of a
    command, only with --copy). Given a run and its retries, or runs of some of its
    replicas (--only), the table shows each replica's newest result.

    \b
    muster runs table last --sort -accuracy --limit 10
    muster runs table sweep-1 --state failed
    muster runs table sweep-1 sweep-2 --csv > results.csv
    """
    from muster.cli.replica_table import show_table

    show_table(_find(run_name), **options)


@runs.command()
@run_argument()
@click.option("--failed", is_flag=True, help="Replicas that have failed. The default.")
@click.option("--unfinished", is_flag=True, help="All replicas that have not succeeded.")
@click.option("--only", metavar="N,N-N", help="These replicas: 3,17,40-42.")
@click.option(
    "--update-code",
    is_flag=True,
    help="Run the job's file, folder or repository as it is now, not as it was.",
)
@click.option("--detach", "-d", is_flag=True, help="Print the new run's id and return at once.")
@json_option("Print the run as JSON; its output goes to stderr.")
@click.pass_context
def retry(
    ctx: click.Context,
    run_name: str,
    failed: bool,
    unfinished: bool,
    only: str | None,
    update_code: bool,
    detach: bool,
    as_json: bool,
) -> None:
    """Retry the failed replicas of an array.

    Starts a new run of the same job with the same settings, and follows it as `muster run` does.
    Replicas keep their numbers and their parameters. With --update-code, a program that was mended
    runs; without it, the same code runs again.

    \b
    muster runs retry sweep-1 --failed
    muster runs retry sweep-1 --failed --update-code
    muster runs retry sweep-1 --only 3,17,40-42
    """
    if failed + unfinished + (only is not None) > 1:
        raise click.UsageError("--failed, --unfinished and --only exclude each other")
    from muster.api.retry import Retry
    from muster.cli.flags import as_flags
    from muster.cli.run import client_with_launcher, start_and_follow

    client = client_with_launcher()
    found = client.run(run_name)
    chosen = Retry("unfinished" if unfinished else "failed", only, update_code)
    with as_flags("only"):
        prepared = client.api.prepare_retry(found.id, chosen)
    ctx.exit(start_and_follow(client, [prepared], detach=detach, as_json=as_json))


@runs.command()
@run_argument(nargs=-1, required=True)
@change_options
@json_option(short=False)
def resume(run_name: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Resume suspended runs, optionally with changed settings.

    Options override settings as in `muster run`; the number of nodes cannot be changed.

    \b
    muster runs resume train-3 --set resources.memory=8GiB --max-runtime 2d
    """
    from muster.spec.override_flags import changes_from_flags, options_from_flags

    flags["framework_options"] = options_from_flags(flags["framework_options"])
    given = any(value for value in flags.values()) or flags["max_restarts"] is not None
    changes = changes_from_flags(**flags, environ=os.environ) if given else None
    found = _find(run_name)
    overrides = [run.overrides(changes) if changes else None for run in found]
    for run, own in zip(found, overrides, strict=True):
        run.resume_with(own)
    if as_json:
        print_json([run.to_dict() for run in found])
        return
    for run in found:
        echo(f"{run.name} is resumed; `muster logs {run.name} --follow` shows its output")


@runs.command()
@run_argument()
@click.argument("size", metavar="GROUP=N")
@json_option()
def scale(run_name: str, size: str, as_json: bool) -> None:
    """Change a group's number of replicas while its run is in progress.

    `max_replicas` in the job is the upper limit. Added replicas start at once. Removed replicas are
    stopped, which does not count as a failure.

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
        echo(f"{run.name}: group {name} has {plural(replicas, 'replica')} already")
    else:
        later = " when it is resumed" if run.state == "SUSPENDED" else ""
        text = f"group {name} scales from {before} to {plural(replicas, 'replica')}"
        echo(f"{run.name}: {text}{later}")


def _size(text: str, groups: list[str]) -> tuple[str, int]:
    """Parse GROUP=N, or N if the run has one group."""
    name, equals, number = text.rpartition("=")
    if not equals and len(groups) == 1:
        name = groups[0]
    if name and number.removeprefix("-").isdecimal():
        return name, int(number)
    example = name if name in groups else groups[-1]
    raise click.BadParameter(f"{text!r}; write {example}=8", param_hint="GROUP=N")


@runs.command()
@run_argument(nargs=-1)
@choice_options
@json_option()
@click.pass_context
def delete(ctx: click.Context, /, run_name: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Delete ended runs and their output.

    If one run cannot be deleted, the others still are.

    \b
    muster rm train-3 train-4
    muster rm --job train --state failed
    muster rm --older-than 30d --yes
    """
    from muster.client.client import Client
    from muster.lifecycle.states import TERMINAL

    client, outcome = Client(), Outcome()
    flags = choice_flags(options)
    found = choose_runs(client, run_name, flags, outcome, verb="delete", states=TERMINAL)

    def delete_one(run: RunSummary) -> RunSummary:
        client.api.delete(run.id)
        if not as_json:
            echo(f"{run.name} is deleted")
        return run

    deleted = outcome.attempt(found, delete_one)
    if as_json:
        from muster.cli.run_list import summary_dict

        print_json([summary_dict(run) for run in deleted])
    ctx.exit(outcome.exit_code)
