"""`muster env`."""

from __future__ import annotations

import time

import click

from muster.cli.arguments import json_option
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo


@click.group()
def env() -> None:
    """List and prune what was installed for runs."""


@env.command("list")
@json_option()
def list_environments(as_json: bool) -> None:
    """Environments made for `requirements` and `conda`, the one used last first."""
    from msgspec.structs import asdict

    from muster.client.times import time_text
    from muster.storage.environments import listing
    from muster.storage.home import default_home

    found = listing(default_home())
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
        state = "in use" if one.busy else "ready" if one.ready else "half-made"
        state = "failed" if one.failed and not one.busy else state
        what = ", ".join([*(["conda"] if one.conda else []), *one.requirements])
        size = f"{one.size / 2**20:.0f} MiB"
        rows.append((one.key, one.python or "-", state, size, ago(one.used), what))
    print_table(("KEY", "PYTHON", "STATE", "SIZE", "USED", "WHAT"), rows)


@env.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option(
    "--older-than",
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Those that no run has begun to use for so long.",
)
def prune(keys: tuple[str, ...], every: bool, older_than: str) -> None:
    """Prune environments: those named, all, or those long unused and half-made ones.

    What a run uses now stays. What is needed again is installed again.

    \b
    muster env prune
    muster env prune --older-than 7d
    muster env prune --all
    """
    from muster.cli.filters import since_filter
    from muster.errors import InvalidInput, Problem
    from muster.spec.wording import suggestion
    from muster.storage.environments import listing, remove
    from muster.storage.home import default_home

    home = default_home()
    found = listing(home)
    known = [one.key for one in found]
    if wrong := [key for key in keys if key not in known]:
        hint = suggestion(wrong[0], known) if known else "there are none"
        raise InvalidInput(Problem("KEY", f"there is no environment {wrong[0]}", hint))
    since = since_filter(older_than) or time.time()
    freed = 0
    for one in found:
        meant = one.key in keys if keys else every or not one.ready or (one.used or 0) < since
        if not meant:
            continue
        if remove(home, one.key):
            freed += one.size
            echo(f"pruned {one.key}", err=True)
        else:
            echo(f"{one.key} is in use and stays", err=True)
    echo(f"{freed / 2**20:.0f} MiB freed", err=True)
