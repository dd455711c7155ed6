"""`muster cluster`: persistent clusters."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import Count, json_option
from muster.cli.command_hints import Group
from muster.cli.terminal import echo, echo_notes
from muster.describe.words import plural
from muster.interrupt import Held

if TYPE_CHECKING:
    from muster.client.cluster import Cluster

name_argument = click.argument("name", shell_complete=values.clusters)


@click.group(cls=Group)
def cluster() -> None:
    """Start, scale and end clusters for scripts and notebooks."""


def _duration(_ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    from muster.client.filters import duration_of

    return None if text is None else duration_of(param.opts[0], text)


@cluster.command()
@click.argument("framework", shell_complete=values.frameworks)
@click.option(
    "--workers",
    type=Count(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of workers.",
)
@click.option(
    "--max-workers", type=Count(min=1), metavar="N", help="Maximum number of workers, for `scale`."
)
@click.option("--name", help="The cluster's name. Default: the framework's.")
@click.option(
    "--ttl", callback=_duration, metavar="TIME", help="End the cluster after this time: 30m, 2h."
)
@click.option(
    "--idle-timeout",
    callback=_duration,
    metavar="TIME",
    help="End the cluster when unused for this time.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an option of the framework.",
)
@click.option("--env", "-e", multiple=True, metavar="K=V", help="Environment variable.")
@click.option(
    "--no-wait", is_flag=True, help="Return at once; do not wait until the cluster is up."
)
@json_option()
def up(
    framework: str,
    workers: int,
    max_workers: int | None,
    name: str | None,
    ttl: float | None,
    idle_timeout: float | None,
    options: tuple[str, ...],
    env: tuple[str, ...],
    no_wait: bool,
    as_json: bool,
) -> None:
    """Start a cluster and wait until it is up.

    \b
    muster cluster up dask --workers 3 --ttl 2h
    muster cluster up ray --workers 2 --name lab --idle-timeout 30m
    """
    from muster.client import cluster as clusters
    from muster.client.client import Client
    from muster.spec.override_flags import options_from_flags

    started: Cluster | None = None
    try:
        with Held(signal.SIGINT):  # else Ctrl-C could leave a run that the user does not know of
            started, prepared = clusters.up(
                Client(),
                framework,
                workers,
                name=name,
                max_workers=max_workers,
                ttl=ttl,
                idle=idle_timeout,
                options=options_from_flags(options),
                fields={"env": _env(env)},
            )
        echo_notes(prepared.notes)
        if not no_wait:
            echo(f"{started.run.name}: starting 1 + {workers} nodes", err=True)
            started.wait()
        print_cluster(started, as_json=as_json)
    except KeyboardInterrupt:
        if started is not None:
            text = f"{started.name} is still starting; `muster cluster down {started.name}` ends it"
            echo(text, err=True)
        raise


def _env(pairs: tuple[str, ...]) -> dict[str, str]:
    env = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not K=V", param_hint="--env")
        env[name] = value
    return env


@cluster.command("list")
@json_option()
def list_(as_json: bool) -> None:
    """List the clusters that are up.

    \b
    muster cluster list -o json
    """
    from muster.cli.output import print_json, print_table
    from muster.client.client import Client
    from muster.client.cluster import clusters

    found = clusters(Client())
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        echo("no clusters are up", err=True)
        return
    header = ("NAME", "FRAMEWORK", "STATE", "WORKERS", "LEFT", "ADDRESS")
    print_table(
        header,
        [_row(one) for one in found],
        drop=("LEFT", "WORKERS", "FRAMEWORK"),
        shorten={"ADDRESS": 24, "NAME": 12},
    )


def _row(one: Cluster) -> tuple[str, ...]:
    return (
        one.name,
        one.framework,
        one.state,
        str(one.workers),
        _left(one),
        one.address or "-",
    )


def _left(one: Cluster) -> str:
    from datetime import UTC, datetime

    from muster.describe.times import span

    return "-" if one.until is None else span((one.until - datetime.now(UTC)).total_seconds())


@cluster.command()
@name_argument
@json_option()
def show(name: str, as_json: bool) -> None:
    """Show a cluster's addresses and nodes.

    \b
    muster cluster show lab
    """
    from muster.client.client import Client
    from muster.client.cluster import find

    print_cluster(find(Client(), name), as_json=as_json)


@cluster.command()
@name_argument
@click.argument("workers", type=Count(min=0))
@json_option()
def scale(name: str, workers: int, as_json: bool) -> None:
    """Change the number of workers while the cluster is in use.

    \b
    muster cluster scale lab 4
    """
    from muster.client.client import Client
    from muster.client.cluster import find

    found = find(Client(), name).scale(workers)
    print_cluster(found, as_json=as_json)


@cluster.command()
@click.argument("names", nargs=-1, required=True, shell_complete=values.clusters)
def down(names: tuple[str, ...]) -> None:
    """End clusters and everything that runs on them.

    \b
    muster cluster down lab
    """
    from muster.client.client import Client
    from muster.client.cluster import find

    client = Client()
    for found in [find(client, name) for name in names]:
        found.down()
        echo(f"{found.name} is down ({found.run.name} {found.run.state})")


def print_cluster(one: Cluster, *, as_json: bool) -> None:
    """Print a cluster's addresses and nodes."""
    from muster.cli.output import node_cells, print_cells, print_json, state
    from muster.client.cluster import CLIENTS

    if as_json:
        print_json(one.to_dict())
        return
    workers = plural(one.workers, "worker")
    client = CLIENTS.get(one.framework, "address")
    run, reachable = one.run.name, one.is_reachable
    rows: list[tuple[str, Any]] = [
        ("address", one.address),
        ("dashboard", one.dashboard if reachable else one.dashboard and f"muster open {run}"),
        ("serve", one.serve),
        ("token", one.token and f"in {one.token}"),
        ("ends in", _left(one) if one.until is not None else None),
        ("python", f'muster.cluster("{one.name}").{client}' if reachable else None),
        ("enter it", None if reachable else f"muster shell {run} --rank 0"),
        ("logs", f"muster logs {run} --follow"),
        ("end it", f"muster cluster down {one.name}"),
    ]
    echo(f"{one.name} is {state(one.state)}: {one.framework}, {workers}")
    for what, value in rows:
        if value:
            echo(f"  {what:<10} {value}")
    echo()
    print_cells(
        ("RANK", "GROUP", "NAME", "ADDRESS", "STATE", "READY"),
        [node_cells(node) for node in one.run.nodes],
        drop=("GROUP",),
        shorten={"NAME": 16, "GROUP": 12},
    )
