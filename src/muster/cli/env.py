"""`muster env`."""

from __future__ import annotations

import time

import click

from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.local import check_local
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo, print_error
from muster.spec.quantities import format_size


@click.group(cls=Group)
def env() -> None:
    """List and delete environments installed for runs."""


@env.command("list")
@json_option()
def list_environments(as_json: bool) -> None:
    """List environments, most recently used first.

    Muster installs one environment for each distinct `requirements` list or `conda` file. Jobs with
    the same one share the environment.

    \b
    muster env list -o wide
    """
    from msgspec.structs import asdict

    from muster.describe.times import time_text
    from muster.storage.environments import list_installed
    from muster.storage.home import default_home

    check_local("environments are listed")
    found = list_installed(default_home())
    if as_json:
        times = ("created", "used")
        print_json(
            [asdict(one) | {name: time_text(getattr(one, name)) for name in times} for one in found]
        )
        return
    if not found:
        echo("no environments", err=True)
        return
    rows = []
    for one in found:
        state = "in use" if one.busy else "ready" if one.ready else "incomplete"
        state = "failed" if one.failed and not one.busy else state
        what = ", ".join([*(["conda"] if one.conda else []), *one.requirements])
        size = format_size(one.size)
        rows.append((one.key, one.python or "-", state, size, ago(one.used), what))
    print_table(("KEY", "PYTHON", "STATE", "SIZE", "USED", "WHAT"), rows, drop=("PYTHON", "USED"))


@env.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option(
    "--all", "every", is_flag=True, help="All that are not in use, whenever they were last used."
)
@click.option(
    "--older-than",
    metavar="TIME",
    help="Environments that no run has used for this long. Default: 30d.",
)
@click.pass_context
def prune(ctx: click.Context, keys: tuple[str, ...], every: bool, older_than: str | None) -> None:
    """Delete environments: KEYs, or all that are unused.

    Without KEY, also deletes incomplete environments. Environments in use are kept. A run that
    needs a deleted environment installs it again.

    \b
    muster env prune
    muster env prune --older-than 7d
    muster env prune --all
    """
    from muster.client.filters import age_of
    from muster.errors import EXIT_PLATFORM, InvalidInput, MusterError, Problem
    from muster.service.prune import UNUSED, remove_environment, unused_environments
    from muster.spec.wording import close_to
    from muster.storage.environments import list_installed
    from muster.storage.home import default_home

    check_local("environments are deleted")
    home = default_home()
    found = list_installed(home)
    known = [one.key for one in found]
    if wrong := [key for key in keys if key not in known]:
        close = close_to(wrong[0], known)
        hint = f'did you mean "{close[0]}"?' if close else "`muster env list` lists them"
        raise InvalidInput(Problem("KEY", f"no environment named {wrong[0]!r}", hint))
    age = UNUSED if older_than is None else age_of("--older-than", older_than)
    if keys:
        chosen = [one for one in found if one.key in keys]
    else:
        chosen = found if every else unused_environments(found, time.time() - age)
    freed, failed = 0, False
    for one in chosen:
        why = remove_environment(home, one.key)
        if why is None:
            freed += one.size
            echo(f"deleted {one.key}", err=True)
        elif why:
            failed = True
            print_error(MusterError(f"{one.key}: {why}"))
        else:
            echo(f"{one.key} is in use and is kept", err=True)
    echo(f"{format_size(freed)} freed", err=True)
    if failed:
        ctx.exit(EXIT_PLATFORM)
