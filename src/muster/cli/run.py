"""`muster run`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, cast

import click

from muster.cli import completion_values as values
from muster.cli.arguments import change_options, json_option
from muster.cli.job_options import (
    ALSO_OF_JOBS,
    CommandWithProgram,
    array_options,
    command_and_changes,
    confirmed,
    job_fields,
    job_options,
    large_array_option,
)
from muster.cli.terminal import echo, echo_notes
from muster.cli.unread_input import note_unread_input
from muster.client.contexts import current_address
from muster.control.launcher import Launcher
from muster.errors import EXIT_BAD_INPUT, EXIT_OK

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.client.client import Client
    from muster.client.run import JobRun


@click.command(cls=CommandWithProgram)
@click.argument("target", required=False, shell_complete=values.targets)
@click.option(
    "--nodes",
    "-n",
    multiple=True,
    metavar="[GROUP=]N",
    help="Number of nodes; with GROUP=, in each replica of that group.",
)
@job_options
@array_options
@change_options
@click.option(
    "--suspend", is_flag=True, help="Submit the run suspended; `muster runs resume` starts it."
)
@click.option("--run-name", metavar="TEXT", help="Display name of the run; need not be unique.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Tag of the run.")
@click.option(
    "--new", is_flag=True, help="Create a new job, even if one with the same content exists."
)
@click.option(
    "--no-wait",
    is_flag=True,
    help="Fail if other runs hold GPUs, memory or CPUs that this run needs. Default: wait.",
)
@click.option(
    "--after",
    "after_runs",
    multiple=True,
    metavar="RUN",
    shell_complete=values.runs,
    help="Start when this run has succeeded; may be repeated.",
)
@large_array_option
@click.option("--detach", "-d", is_flag=True, help="Print the run's id and return at once.")
@click.option(
    "--build",
    metavar="FOLDER",
    shell_complete=values.files,
    help="Run in the image that is built from this folder, by its Containerfile or Dockerfile, or "
    "from its requirements.txt, unless it is there. Default engine then: container.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and print the plan; start nothing.")
@json_option("Print the run as JSON; its output goes to stderr.", short=False)
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> None:
    """Start a run of TARGET and follow its output until it ends.

    TARGET is a spec file, the manifest of a JobSet or Job, or ADS's YAML (- reads it from standard
    input), a script, a notebook, a folder, an archive, a git repository, or the name of an existing
    job (`muster jobs list`).

    The words after -- are arguments of the program. With a folder, archive or repository and no
    --entrypoint, they are a command that runs in a copy of that code. Without TARGET, they are a
    command that runs in the current directory itself, as with srun or torchrun. Nodes have no
    standard input.

    \b
    muster run examples/pytorch-digits/job.yaml
    muster run train.py --nodes 4 --framework pytorch -- --epochs 3
    muster run --nodes 2 -- hostname
    muster run train.py --array lr=0.1,0.01 --array seed=0..99 --parallelism 4
    muster run job.yaml --env-file .env --tag team=vision --dry-run
    muster run git+https://HOST/OWNER/REPO.git@BRANCH#FOLDER --entrypoint train.py
    muster run train.py --build . --nodes 2

    Ctrl-C detaches (exit code 130): the run continues. A second Ctrl-C within 5 seconds cancels it
    (3). Without a terminal, SIGINT only detaches. SIGTERM (143) and SIGHUP (129, sent when
    the terminal closes) also only detach. In a batch job or under `timeout`, end the run with
    `muster cancel RUN`.
    """
    if (folder := options.pop("build")) is not None:
        _use_image_of(folder, ctx.meta["after"], options)
    if options["dry_run"]:
        from muster.cli.explain import explain_runs

        works = explain_runs(ctx.meta["after"], validate=True, **options)
        ctx.exit(EXIT_OK if works else EXIT_BAD_INPUT)
    client = client_with_launcher()
    prepared_runs = prepare_all(client, ctx.meta["after"], options)
    code = start_and_follow(
        client,
        prepared_runs,
        queue=not options["no_wait"],
        detach=options["detach"],
        as_json=options["as_json"],
        reads_input=str(options["target"]).startswith("-") or "-" in options["arrays"],
    )
    ctx.exit(code)


def _use_image_of(folder: str, after: list[str] | None, options: dict[str, Any]) -> None:
    """Build an image, unless this is a dry run, and have the run use it."""
    import os
    from functools import partial
    from pathlib import Path

    from muster.service.image_build import build_image

    options["engine"] = options["engine"] or "container"
    say = partial(echo, err=True)
    image = build_image(
        options["engine"], Path(folder), os.environ, say, only_name=options["dry_run"]
    )
    if options["target"] is None and not after:
        options["image"] = image  # whose own program runs
    options["sets"] = [*options["sets"], f"image={image}"]


def client_with_launcher() -> Client:
    """A client that starts runs: here, with a process of its own."""
    # fork before other imports: the launcher stays small, and starts in parallel
    launcher = Launcher.fork() if current_address() is None else None
    from muster.client.client import Client

    return Client(launcher=launcher)


def start_and_follow(
    client: Client,
    prepared_runs: list[PreparedRun],
    *,
    queue: bool = True,
    detach: bool,
    as_json: bool,
    reads_input: bool = False,
) -> int:
    """Start runs and follow one after the other. Returns the exit code. detach: print their ids
    instead. reads_input: the command has read its standard input."""
    from muster.cli import detach as detaching

    # until the run's name is printed, a Ctrl-C would leave a run that the user does not know of
    signal.pthread_sigmask(signal.SIG_BLOCK, detaching.DETACH_SIGNALS)
    runs = _start(client, prepared_runs, queue=queue)
    from muster.cli import follow  # while the supervisor starts

    code = 0
    if not reads_input:
        note_unread_input()
    try:
        detaching.detach_on_signals([run for run, _ in runs])
        for started, prepared in runs:
            echo_notes(prepared.notes)
            if detach or started.state == "SUSPENDED":
                _print_detached(started, as_json=as_json)
            else:
                code = follow.follow(started, prepared, as_json=as_json) or code
        signal.pthread_sigmask(signal.SIG_BLOCK, detaching.DETACH_SIGNALS)
    except detaching.Detached as detached:
        code = detaching.detach([run for run, _ in runs], detached.number)
    return code


#: Options that only `muster run` has, and those that other commands accept without effect.
_OF_RUN = ("build", "no_wait", "after_runs", "detach", "dry_run", "as_json", "output")
_WITHOUT_EFFECT = ("suspend", "run_name", "tags", "new")


def options_of_run(*, every_effect: bool = False) -> list[click.Parameter]:
    """The parameters of `muster run` for commands that prepare a run and do not start it.
    every_effect: it is started later, so that none of them is without effect."""
    from copy import copy

    params = []
    for given in run.params:
        param = copy(given)
        if param.name in _WITHOUT_EFFECT and not every_effect:
            cast(click.Option, param).hidden = True
        if param.name not in _OF_RUN:
            params.append(param)
    return params


def prepare_all(
    client: Client, after: list[str] | None, options: dict[str, Any]
) -> list[PreparedRun]:
    """Check and plan a run of TARGET, or of each job in it, before any of them starts."""
    from muster.client.target import single_targets

    targets = single_targets(options["target"], options["entrypoint"])
    return [prepare_from(client, after, **{**options, "target": target}) for target in targets]


def prepare_from(client: Client, after: list[str] | None, **options: Any) -> PreparedRun:
    """Check and plan the run that a command line describes. after: the words after `--`."""
    target, fields = options["target"], job_fields(options)
    more = {name: options[name] for name in ALSO_OF_JOBS}
    more["framework_options"] = fields["framework_options"]
    command, changes = command_and_changes(target, after, options, **more)
    return confirmed(
        lambda large_array: client.prepare(
            target, changes, command=command, new=options["new"], large_array=large_array, **fields
        ),
        yes=options["yes"],
    )


def _start(
    client: Client, prepared_runs: list[PreparedRun], *, queue: bool = True
) -> list[tuple[JobRun, PreparedRun]]:
    """Start all runs. If one cannot be started, name those already started."""
    started: list[tuple[JobRun, PreparedRun]] = []
    try:
        for prepared in prepared_runs:
            run = client.start(prepared, queue=queue)
            started.append((run, prepared))
    except BaseException:
        from muster.cli.detach import report_still_running

        for run, _ in started:
            report_still_running(run)
        raise
    return started


def _print_detached(run: JobRun, *, as_json: bool) -> None:
    from muster.cli.output import print_json

    if as_json:
        print_json(run.to_dict())
        return
    echo(run.id)
    if run.state == "SUSPENDED":
        echo(f"{run.name} is suspended; `muster runs resume {run.name}` starts it", err=True)
        return
    if run.state == "QUEUED":
        echo(f"{run.name} is QUEUED, {run.details}", err=True)
        echo(f"`muster cancel {run.name}` cancels it", err=True)
        return
    echo(f"{run.name} started; `muster logs {run.name} --follow` shows its output", err=True)
