"""`muster notify`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import Count, json_option
from muster.cli.command_hints import Group
from muster.cli.flags import as_flags
from muster.cli.output import print_cells, print_json
from muster.cli.terminal import echo

if TYPE_CHECKING:
    from muster.client.notification import Notification

_NAME = click.argument("name", shell_complete=values.notifications)
_FORMATS = ("cloudevents", "cloudevents-binary", "slack", "oci", "text")


@click.group(cls=Group)
def notify() -> None:
    """Send events to URLs, chats and people: a run has failed, a job was created.

    A server sends them: events wait while no `muster server` runs on their MUSTER_HOME.
    """


#: Which events are sent, and how.
_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ["--on"],
        metavar="TYPES",
        shell_complete=values.event_types,
        help="Types of events: run.failed,run.succeeded, or patterns: 'run.*'. Default: "
        "run.succeeded,run.failed,run.needs_attention.",
    ),
    click.Option(
        ["--job"],
        metavar="JOB",
        shell_complete=values.jobs,
        help="Only events about runs of this job.",
    ),
    click.Option(
        ["--tag", "tags"],
        multiple=True,
        metavar="K[=V]",
        help="Only events about runs and jobs with this tag.",
    ),
    click.Option(
        ["--format"],
        type=click.Choice(_FORMATS),
        help="What is sent. Default: text in mail, slack for its URLs, else cloudevents.",
    ),
)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options as the Python API takes them."""
    from muster.cli.run_choice import tag_filter

    tags = options.pop("tags")
    return {**options, "tags": tag_filter(tags) if tags else None}


@notify.command(params=[*_OPTIONS])
@click.argument("name")
@click.argument("target")
@json_option("Print the notification as JSON.")
def add(name: str, target: str, as_json: bool, **options: Any) -> None:
    """Add notification NAME, which sends events to TARGET.

    TARGET is https://..., mailto:ADDRESS, file:/PATH, command:NAME, nats://HOST/SUBJECT or
    kafka://HOST/TOPIC. Webhooks are signed (Standard Webhooks): the key is printed once.

    \b
    muster notify add failures https://hooks.example.com/muster --on run.failed
    muster notify add chat https://hooks.slack.com/services/... --job train
    muster notify add ops mailto:ops@example.com --on 'run.*' --tag team=vision
    """
    from muster.client.client import Client

    given = _given(options)
    with as_flags("on", "format"):
        made = Client().create_notification(
            name, target, **{key: value for key, value in given.items() if value is not None}
        )
    if as_json:
        print_json(made.to_dict())
        return
    echo(made.id)
    echo(f"{made.name} sends {','.join(made.on)} to {made.target}", err=True)
    _print_key(made)
    _note_server()


def _print_key(made: Notification) -> None:
    if made.key and made.target.startswith("http"):
        echo(f"key of the signatures, which is not shown again: {made.key}", err=True)


def _note_server() -> None:
    """Say what sends events, unless that is a server that was just asked."""
    from muster.client.contexts import current_address

    if current_address() is None:
        echo("events are sent only while a `muster server` runs on this MUSTER_HOME", err=True)


@notify.command("list")
@json_option()
def list_notifications(as_json: bool) -> None:
    """List notifications, by name.

    \b
    muster notify list -o wide
    """
    from muster.client.client import Client

    found = Client().notifications()
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        echo("no notifications: `muster notify add` makes one", err=True)
        return
    header = ("NOTIFICATION", "TARGET", "ON", "ABOUT", "FORMAT", "STATE", "BY")
    cells = [one._cells() for one in found]
    print_cells(header, cells, drop=("BY", "FORMAT", "ABOUT"), shorten={"TARGET": 20, "ON": 16})
    _note_server()


@notify.command()
@_NAME
@click.option(
    "--limit", type=Count(min=0), default=10, metavar="N", help="Last events to show (0 = all)."
)
@json_option()
def show(name: str, limit: int, as_json: bool) -> None:
    """Show a notification, and what became of its last events.

    \b
    muster notify show failures
    """
    from muster.client.client import Client

    found = Client().notification(name)
    sent = found.deliveries(limit=limit or None)
    if as_json:
        print_json({**found.to_dict(), "deliveries": [one.to_dict() for one in sent]})
        return
    cells = found._cells()
    echo(f"{found.name}  {cells['STATE']}  {found.target}, as {found.format}", wrap=True)
    about = "" if cells["ABOUT"] == "-" else f" about {cells['ABOUT']}"
    echo(f"  on {', '.join(found.on)}{about}, created by {found.created_by}", wrap=True)
    if not sent:
        echo("\nno event has happened yet")
        return
    echo()
    header = ("TIME", "EVENT", "ABOUT", "STATE", "ATTEMPTS", "ANSWER")
    print_cells(header, [one._cells() for one in sent], shorten={"ANSWER": 20})


@notify.command(params=[*_OPTIONS])
@_NAME
@click.option("--target", metavar="TARGET", help="Send events there from now on.")
@click.option("--new-key", is_flag=True, help="Sign with another key from now on, and print it.")
@json_option("Print the notification as JSON.")
def edit(name: str, as_json: bool, new_key: bool, **options: Any) -> None:
    """Change where a notification sends events, or which.

    Events that wait are sent to the new target, too.

    \b
    muster notify edit failures --on run.failed,run.canceled
    muster notify edit failures --new-key
    """
    from muster.client.client import Client

    given = {key: value for key, value in _given(options).items() if value is not None}
    if not given and not new_key:
        raise click.UsageError("Say what to change: --target, --on, --job, --tag, --format, ...")
    with as_flags("on", "format", "target"):
        changed = Client().notification(name).edit(**given, new_key=new_key)
    if as_json:
        print_json(changed.to_dict())
        return
    echo(f"{changed.name} sends {','.join(changed.on)} to {changed.target}")
    _print_key(changed)


@notify.command()
@_NAME
@json_option()
def pause(name: str, as_json: bool) -> None:
    """Send nothing more, until it is resumed. Events in between are not sent later.

    \b
    muster notify pause failures
    """
    from muster.client.client import Client

    found = Client().notification(name).pause()
    if as_json:
        print_json(found.to_dict())
    else:
        echo(f"{found.name} is paused; `muster notify resume {found.name}` resumes it")


@notify.command()
@_NAME
@json_option()
def resume(name: str, as_json: bool) -> None:
    """Send events again, from now on.

    \b
    muster notify resume failures
    """
    from muster.client.client import Client

    found = Client().notification(name).resume()
    if as_json:
        print_json(found.to_dict())
    else:
        echo(f"{found.name} sends {','.join(found.on)} to {found.target}")


@notify.command()
@_NAME
def delete(name: str) -> None:
    """Delete a notification, with what it has not sent.

    \b
    muster notify delete failures
    """
    from muster.client.client import Client

    found = Client().notification(name)
    found.delete()
    echo(f"{found.name} is deleted")


@notify.command()
@_NAME
@json_option("Print the answer as JSON.")
def test(name: str, as_json: bool) -> None:
    """Send a sample event now, and print what the receiver has answered.

    \b
    muster notify test failures
    """
    from muster.client.client import Client
    from muster.errors import EXIT_RUN_FAILED

    found = Client().notification(name)
    answer = found.test()
    if as_json:
        print_json({"delivered": answer.delivered, "answer": answer.answer})
    else:
        done = "was delivered to" if answer.delivered else "was not delivered to"
        echo(f"the event {done} {found.target}: {answer.answer}")
    if not answer.delivered:
        sys.exit(EXIT_RUN_FAILED)


@notify.command()
@click.option(
    "--limit", type=Count(min=0), default=20, metavar="N", help="Events to show (0 = all)."
)
@json_option()
def failed(limit: int, as_json: bool) -> None:
    """List events that could not be sent, with the last answer.

    \b
    muster notify failed
    """
    from muster.client.client import Client

    found = Client().failed_deliveries(limit=limit or None)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        echo("every event could be sent, or is tried again", err=True)
        return
    header = ("TIME", "NOTIFICATION", "EVENT", "ABOUT", "ATTEMPTS", "ANSWER")
    print_cells(header, [one._cells() for one in found], shorten={"ANSWER": 20})


@notify.command()
@click.argument("name", required=False, shell_complete=values.notifications)
def retry(name: str | None) -> None:
    """Send again what could not be sent, of one notification or of all.

    \b
    muster notify retry
    muster notify retry failures
    """
    from muster.client.client import Client

    count = Client().api.retry_deliveries(name)
    echo(f"{count} {'event is' if count == 1 else 'events are'} sent again")
