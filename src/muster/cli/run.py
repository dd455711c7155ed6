"""`muster run`."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from muster.cli.arguments import change_options
from muster.cli.describing import WithProgram, command_and_changes, described, describing
from muster.cli.terminal import echo, echo_notes
from muster.control.launcher import Launcher
from muster.errors import (
    EXIT_HUNG_UP,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EngineError,
    HomeGone,
    MusterError,
)

if TYPE_CHECKING:
    from muster.client.client import Client
    from muster.client.run import JobRun
    from muster.drafting import Draft


@click.command(cls=WithProgram)
@click.argument("target", required=False)
@click.option("--nodes", multiple=True, metavar="[GROUP=]N", help="Number of nodes (per replica).")
@describing
@change_options
@click.option(
    "--suspend", is_flag=True, help="Accept it suspended; `muster runs resume` starts it."
)
@click.option("--run-name", metavar="TEXT", help="What people call this run.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Label of the run.")
@click.option("--new", is_flag=True, help="Create a new job even if one has the same content.")
@click.option("--detach", "-d", is_flag=True, help="Print the run's id and return at once.")
@click.option("--json", "as_json", is_flag=True, help="Print the run object last, alone on stdout.")
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> None:
    """Start a run of TARGET and follow its output until it ends.

    TARGET is a spec file, a JobSet manifest or ADS's YAML (- is standard input), a script, a
    notebook, a folder, an archive, a git repository, or the name of a job that is there
    (`muster jobs list`). What follows -- are the program's arguments; without TARGET, or for a
    folder, archive or repository without --entrypoint, it is the command itself.

    \b
    muster run examples/pytorch-digits/job.yaml
    muster run train.py --nodes 4 --framework pytorch -- --epochs 3
    muster run --nodes 2 -- hostname
    muster run git+https://HOST/OWNER/REPO.git@BRANCH#FOLDER --entrypoint train.py

    Ctrl-C detaches from the run, which continues; twice cancels it. SIGTERM detaches, too, and so
    does SIGHUP when the terminal is closed; the exit code is 143 or 129. Where the end of this
    command is to be the end of the run, as in a batch job or under `timeout`, cancel it as well:
    `muster runs cancel RUN`.
    """
    # forked before anything else is imported: small, and warm by the time the spec is checked
    launcher = Launcher.fork()
    from muster.client.client import Client

    client = Client(launcher=launcher)
    drafts = _drafts(client, ctx.meta["after"], options)
    # from being accepted to being named, a run must not be lost to a Ctrl-C
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    runs = _start(client, drafts)
    code = 0
    try:
        _detach_on_signals()
        for started, draft in runs:
            if options["detach"] or started.state == "SUSPENDED":
                _print_notes(draft)
                _print_detached(started, as_json=options["as_json"])
            else:
                code = _follow(started, draft, as_json=options["as_json"]) or code
    except _Detached as detached:
        code = _detached([run for run, _ in runs], detached.number)
    ctx.exit(code)


#: Those that end this command, and not the run.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Detached(BaseException):
    """SIGTERM or SIGHUP: whoever has sent it wants us to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def _detach_on_signals() -> None:
    def detach(number: int, _frame: object) -> None:
        raise _Detached(number)

    for number in _SIGNALS[1:]:
        if signal.getsignal(number) == signal.SIG_DFL:  # else it is ignored, as by nohup
            signal.signal(number, detach)


def _detached(runs: list[JobRun], number: int) -> int:
    """Say what continues."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    for run in runs:
        if run.refresh().state in ("ACCEPTED", "IN_PROGRESS"):
            _say_it_continues(run)
    return EXIT_TERMINATED if number == signal.SIGTERM else EXIT_HUNG_UP


def _drafts(client: Client, after: list[str] | None, options: dict[str, Any]) -> list[Draft]:
    """One, or one for each JobSet that TARGET holds: checked before any of them starts."""
    from muster.client.target import single_targets

    targets = single_targets(options["target"], options["entrypoint"])
    return [draft_from(client, after, **{**options, "target": target}) for target in targets]


def _start(client: Client, drafts: list[Draft]) -> list[tuple[JobRun, Draft]]:
    """Start them all. If one cannot be started, says which of the others were."""
    started: list[tuple[JobRun, Draft]] = []
    try:
        for draft in drafts:
            run = client.start(draft)
            started.append((run, draft))
    except BaseException:
        for run, _ in started:
            _say_it_continues(run)
        raise
    return started


def draft_from(client: Client, after: list[str] | None, **options: Any) -> Draft:
    """The run that a command line describes, checked and planned."""
    target, fields = options["target"], described(options)
    own = ("suspend", "run_name", "processes_per_node", "network")
    more = {name: options[name] for name in own}
    more["framework_options"] = fields["framework_options"]
    command, changes = command_and_changes(target, after, options, **more)
    return client.draft_for(target, changes, command=command, new=options["new"], **fields)


def _print_notes(draft: Draft) -> None:
    echo_notes(draft.notes)


def _print_detached(run: JobRun, *, as_json: bool) -> None:
    from muster.cli.output import print_json

    if as_json:
        print_json(run.to_dict())
        return
    echo(run.id)
    if run.state == "SUSPENDED":
        echo(f"{run.name} is suspended; `muster runs resume {run.name}` starts it", err=True)
        return
    echo(f"{run.name} started; `muster logs {run.name} --follow` shows it", err=True)


def _follow(run: JobRun, draft: Draft, *, as_json: bool) -> int:
    from muster.cli.follow import Printer
    from muster.cli.output import exit_code_of, print_json
    from muster.cli.streams import OutputLost, ReaderGone, end_by_sigpipe, optional_output
    from muster.client.logs import Selection

    groups = {group.name: group.size for group in draft.plan.groups}
    _print_notes(draft)
    gc.enable()  # from here on we may live for days
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if not as_json:
            _show_cluster(run, draft)
        to = 2 if as_json else 1  # JSON has stdout to itself
        processes = draft.plan.processes_per_node
        printer = Printer(groups, processes=processes, to=to, messages="besides")
        # of several runs, all but the first may have restarted before it is their turn
        printer.print(run.log_chunks(Selection(attempt="all"), follow=True))
        run.wait()
    except KeyboardInterrupt:
        return _interrupted(run)
    except HomeGone:
        raise
    except (ReaderGone, MusterError, OSError) as error:
        if not run.refresh().done:
            _say_it_continues(run)
            if isinstance(error, ReaderGone):
                end_by_sigpipe()
            raise
        if isinstance(error, OutputLost):  # how the run ended does not bring it back
            _summary(run, len(draft.plan.nodes))
            raise
    _summary(run, len(draft.plan.nodes))
    if as_json:
        with optional_output():
            print_json(run.to_dict())
    return exit_code_of(run.state)


def _show_cluster(run: JobRun, draft: Draft) -> None:
    """Of a cluster that stays, once it is up: where it is reached."""
    from muster.spec.values import CLUSTER_TAG

    if CLUSTER_TAG not in draft.spec.tags:
        return
    from muster.cli.cluster import print_cluster
    from muster.client.cluster import Cluster

    # if it does not come up, its output, which follows, tells why
    with contextlib.suppress(EngineError):
        print_cluster(Cluster(run).wait(), as_json=False)


def _say_it_continues(run: JobRun) -> None:
    echo(
        f"{run.name} continues without us; `muster logs {run.name} --follow` shows it, "
        f"`muster runs cancel {run.name}` ends it",
        err=True,
    )


def _interrupted(run: JobRun) -> int:
    """The first Ctrl-C lets go of the run; a second one, while we say so, cancels it."""
    try:
        echo(
            f"\nlet go of {run.name}; it goes on. `muster logs {run.name} --follow` shows it, "
            f"`muster runs cancel {run.name}` ends it (so does another Ctrl-C now)",
            err=True,
        )
        signal.sigtimedwait([], 1.0) if hasattr(signal, "sigtimedwait") else None
    except KeyboardInterrupt:
        echo(f"canceling {run.name}", err=True)
        run.cancel("canceled by Ctrl-C").wait()
        _summary(run, len(run.nodes))
    return EXIT_INTERRUPTED


def _summary(run: JobRun, nodes: int) -> None:
    from muster.cli.output import span, state

    sys.stdout.flush()
    took = f" in {span(run.seconds)}" if run.seconds is not None else ""
    head = f"{run.name} {state(run.state)}{took}, {nodes} node{'s' if nodes != 1 else ''}"
    echo(head, err=True)
    for line in [*run.details.splitlines(), *filter(None, [run.hint])]:
        echo(f"  {line}", err=True)
