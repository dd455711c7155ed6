"""`muster schedules`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import Count, json_option
from muster.cli.command_hints import Group
from muster.cli.flags import as_flags
from muster.cli.job_options import CommandWithProgram
from muster.cli.output import print_cells, print_json
from muster.cli.run import options_of_run, prepare_all
from muster.cli.terminal import echo, echo_notes

if TYPE_CHECKING:
    from muster.api.schedules import WebhookAddress
    from muster.client.schedule import Schedule

_TIMING = (
    *("cron", "every", "ical", "time_zone", "start", "end", "jitter"),
    *("overlap", "missed", "start_within"),
)
_EVENTS = ("after", "on", "webhook", "on_object")
_NAME = click.argument("name", shell_complete=values.schedules)


@click.group(cls=Group)
def schedules() -> None:
    """Start runs at times, such as each night, or after events.

    A server starts them: schedules wait while no `muster server` runs on their MUSTER_HOME.
    """


#: When a schedule starts runs.
_TIMING_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ["--cron"],
        metavar="EXPRESSION",
        help='When: minute, hour, day of the month, month, day of the week, such as "0 3 * * *".',
    ),
    click.Option(["--every"], metavar="TIME", help="When: at intervals of 30m, 6h, 1d from now."),
    click.Option(
        ["--ical"],
        metavar="RULE",
        help='When: a recurrence of iCalendar, such as "FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=9".',
    ),
    click.Option(
        ["--time-zone"], metavar="ZONE", help="Of these times: Europe/Rome. Default: UTC."
    ),
    click.Option(["--start"], metavar="TIME", help="No runs before: 2026-12-01T08:00."),
    click.Option(["--end"], metavar="TIME", help="No runs after: 2026-12-31."),
    click.Option(
        ["--jitter"],
        metavar="TIME",
        help="Start each run later, by a time up to this that is drawn once.",
    ),
    click.Option(
        ["--overlap"],
        type=click.Choice(["allow", "skip", "replace"]),
        help="If the run before has not ended: start another one (default of events), none "
        "(default of times), or cancel it and start another one.",
    ),
    click.Option(
        ["--missed"],
        type=click.Choice(["skip", "run_once"]),
        help="After times when no server ran: start no run (default of times), or one.",
    ),
    click.Option(
        ["--start-within"],
        metavar="TIME",
        help="How late a run may start before its time is missed. Default: 10m.",
    ),
)


#: Which events start runs, instead of times.
_EVENT_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ["--after"],
        metavar="JOB",
        shell_complete=values.jobs,
        help="When: after each run of JOB that has succeeded.",
    ),
    click.Option(
        ["--on"],
        type=click.Choice(["succeeded", "failed", "ended"]),
        help="Of --after: how the run of JOB has to end.",
    ),
    click.Option(["--webhook"], is_flag=True, help="When: with each signed request to the server."),
    click.Option(
        ["--on-object"],
        metavar="BUCKET[/PREFIX]",
        help="When: an object is created in the server's object storage.",
    ),
)


@schedules.command(
    cls=CommandWithProgram,
    params=[
        click.Argument(["schedule"], metavar="NAME"),
        *_TIMING_OPTIONS,
        *_EVENT_OPTIONS,
        *options_of_run(every_effect=True),
    ],
)
@json_option("Print the schedule as JSON.", short=False)
@click.pass_context
def create(ctx: click.Context, /, schedule: str, as_json: bool, **options: Any) -> None:
    """Create schedule NAME, which starts runs of TARGET.

    TARGET and the other options are those of `muster run`. The code is stored now: to run changed
    code, run it once, and give its job to `muster schedules edit`. Runs start in your name, with
    the rights that you have then, from the server's environment: give variables with --env.

    \b
    muster schedules create nightly job.yaml --cron "0 3 * * *" --time-zone Europe/Rome
    muster schedules create retrain train.py --every 6h --overlap replace -- --epochs 3
    muster schedules create score score.py --after train
    muster schedules create build build.py --webhook
    """
    from muster.client.client import Client
    from muster.errors import InvalidInput, Problem

    timing = {name: options.pop(name) for name in (*_TIMING, *_EVENTS)}
    client = Client()
    every = prepare_all(client, ctx.meta["after"], options)
    if len(every) > 1:
        hint = f"name one: {options['target']}#{every[0].job.name}"
        raise InvalidInput(Problem("TARGET", f"has {len(every)} jobs", hint))
    with as_flags(*_TIMING, *_EVENTS):
        made = client.create_schedule(schedule, every[0], **timing)
    address = made.rotate_webhook() if timing["webhook"] else None
    echo_notes(every[0].notes)
    if as_json:
        _print_with_webhook(made.to_dict(), address)
        return
    echo(made.id)
    echo(f"schedule {made.name} starts {made.job}: {_next(made)}", err=True)
    if address is not None:
        _print_webhook(address)
    _note_server()


def _next(schedule: Schedule) -> str:
    from muster.describe.schedules import when_text

    if schedule.started_by is not None and not schedule.paused:
        return when_text(schedule.timing, schedule.started_by)
    text = schedule.next_text()
    return text if schedule.next_at is None else f"next at {text}"


def _print_with_webhook(facts: dict[str, Any], address: WebhookAddress | None) -> None:
    """Print facts and those of a webhook as JSON."""
    import json

    from muster.describe.times import json_ready, optional_moment
    from muster.secrets import hidden

    shown = hidden(facts)
    if address is not None:
        of_webhook = {"webhook": _url(address.path), "set_at": optional_moment(address.set_at)}
        shown = {**shown, **json_ready(of_webhook)}
        if address.secret:  # `print_json` would hide it
            shown["secret"] = address.secret
    echo(json.dumps(shown, indent=2), secrets=True)


def _url(path: str) -> str:
    """The URL of a path of the server; the path alone if that is not known."""
    from muster.client.contexts import current_address

    address = current_address()
    return path if address is None else f"{address.url.rstrip('/')}{path}"


def _print_webhook(address: WebhookAddress) -> None:
    echo(f"webhook: POST {_url(address.path)}")
    if address.secret:
        echo(f"secret:  {address.secret}", secrets=True)
        again = "`muster schedules webhook NAME --rotate` makes another"
        echo(f"the secret is not shown again: {again}", err=True)


def _note_server() -> None:
    """Say what starts the runs, unless that is a server that was just asked."""
    from muster.client.contexts import current_address

    if current_address() is None:
        echo("runs start only while a `muster server` runs on this MUSTER_HOME", err=True)


@schedules.command("list")
@json_option()
def list_schedules(as_json: bool) -> None:
    """List schedules, by name.

    \b
    muster schedules list -o wide
    """
    from muster.client.client import Client

    found = Client().schedules()
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        echo("no schedules: `muster schedules create` makes one", err=True)
        return
    header = ("SCHEDULE", "JOB", "WHEN", "NEXT", "BY")
    print_cells(header, [one._cells() for one in found], drop=("BY",), shorten={"JOB": 16})
    _note_server()


@schedules.command()
@_NAME
@click.option(
    "--limit", type=Count(min=0), default=10, metavar="N", help="Last times to show (0 = all)."
)
@json_option()
def show(name: str, limit: int, as_json: bool) -> None:
    """Show a schedule, its next times and its last ones.

    Of the last ones, it says what was done.

    \b
    muster schedules show nightly
    """
    from muster.cli.output import state
    from muster.client.client import Client
    from muster.client.schedule import settings_text
    from muster.describe.schedules import clock_text, range_text, when_text

    found = Client().schedule(name)
    firings = found.firings(limit=limit or None)
    if as_json:
        upcoming = [one.isoformat().replace("+00:00", "Z") for one in found.next_times()]
        done = [one.to_dict() for one in firings]
        print_json({**found.to_dict(), "next_times": upcoming, "firings": done})
        return
    by = f", created by {found.created_by}" if found.created_by else ""
    paused = "  paused" if found.paused else ""
    when = when_text(found.timing, found.started_by)
    echo(f"{found.name}{paused}  {when}, starts {found.job}{by}", wrap=True)
    if between := range_text(found.timing):
        echo(f"  {between}", wrap=True)
    echo(f"  {settings_text(found.timing, found.started_by)}", wrap=True)
    for upcoming_time in found.next_times(3):
        echo(f"  next: {clock_text(found.timing, upcoming_time.timestamp())}")
    if not firings:
        echo(f"\nno {'time has come' if found.started_by is None else 'event has happened'} yet")
        return
    echo()
    rows = [
        {
            **one._cells(),
            "TIME": clock_text(found.timing, one.time.timestamp()),
            "STATE": state(one._cells()["STATE"]),
        }
        for one in firings
    ]
    events = () if found.started_by is None else ("EVENT",)
    print_cells(("TIME", "OUTCOME", "RUN", "STATE", "WHY", *events), rows)


@schedules.command()
@_NAME
@click.option(
    "--rotate", is_flag=True, help="Make a new secret; the one before is not accepted any more."
)
@json_option()
def webhook(name: str, rotate: bool, as_json: bool) -> None:
    """Show the address of a schedule's webhook, or change its secret.

    \b
    muster schedules webhook build
    muster schedules webhook build --rotate
    """
    from muster.client.client import Client
    from muster.describe.times import minute, moment

    schedule = Client().schedule(name)
    address = schedule.rotate_webhook() if rotate else schedule.webhook()
    if as_json:
        _print_with_webhook({}, address)
        return
    _print_webhook(address)
    if not rotate:
        since = "none yet" if address.set_at is None else f"since {minute(moment(address.set_at))}"
        echo(f"secret:  {since}; --rotate makes another")


@schedules.command(params=[*_TIMING_OPTIONS])
@_NAME
@click.option(
    "--job", metavar="JOB", shell_complete=values.jobs, help="Start runs of this job from now on."
)
@json_option()
def edit(name: str, as_json: bool, **changes: Any) -> None:
    """Change when a schedule starts runs, or of which job.

    New times count from now; runs that have started continue. "none" as --start or --end removes
    it.

    \b
    muster schedules edit nightly --cron "30 4 * * mon-fri"
    muster schedules edit nightly --job train@3
    """
    from muster.client.client import Client

    if not any(value is not None for value in changes.values()):
        raise click.UsageError("Say what to change: --cron, --every, --overlap, --job, ...")
    with as_flags(*_TIMING):
        changed = Client().schedule(name).edit(**changes)
    _print_changed(changed, as_json=as_json)


def _print_changed(schedule: Schedule, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule.to_dict())
    else:
        echo(f"{schedule.name}: {_next(schedule)}")


@schedules.command()
@_NAME
@json_option()
def pause(name: str, as_json: bool) -> None:
    """Have a schedule start no more runs, until it is resumed.

    \b
    muster schedules pause nightly
    """
    from muster.client.client import Client

    schedule = Client().schedule(name).pause()
    if as_json:
        print_json(schedule.to_dict())
    else:
        echo(f"{schedule.name} is paused; `muster schedules resume {schedule.name}` resumes it")


@schedules.command()
@_NAME
@json_option()
def resume(name: str, as_json: bool) -> None:
    """Have a paused schedule start runs again. The times in between do not count.

    \b
    muster schedules resume nightly
    """
    from muster.client.client import Client

    _print_changed(Client().schedule(name).resume(), as_json=as_json)


@schedules.command()
@_NAME
def delete(name: str) -> None:
    """Delete a schedule. Its job and its runs stay.

    \b
    muster schedules delete nightly
    """
    from muster.client.client import Client

    schedule = Client().schedule(name)
    schedule.delete()
    echo(f"{schedule.name} is deleted; {schedule.job} and its runs stay")


@schedules.command()
@_NAME
@json_option("Print the run as JSON.")
def trigger(name: str, as_json: bool) -> None:
    """Start a run as the schedule does, now, in your name.

    \b
    muster schedules trigger nightly
    """
    from muster.cli.run import client_with_launcher

    run = client_with_launcher().schedule(name).trigger()
    if as_json:
        print_json(run.to_dict())
        return
    echo(run.id)
    echo(f"{run.name} started; `muster logs {run.name} --follow` shows its output", err=True)
