"""`muster simulate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.filters import duration
from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from muster.forecast.world import World
    from muster.lifecycle.policy import Policy


@click.command()
@click.argument("target")
@click.option("--nodes", multiple=True, metavar="[GROUP=]N", help="Number of nodes (per replica).")
@click.option(
    "--mtbf",
    required=True,
    metavar="TIME",
    help="Between failures of one node: 2000h. A bare number is seconds.",
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    default=72.0,
    show_default=True,
    help="How far to look.",
)
@click.option(
    "--work", metavar="TIME", help="Work until a node's program is done. Default: endless."
)
@click.option("--max-restarts", type=int, metavar="N", help="In place of the spec's.")
@click.option(
    "--lost",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    help="Share of failures that take the node itself.",
)
@click.option("--checkpoint-every", default="1h", show_default=True, metavar="TIME")
@click.option("--checkpoint-cost", default="30s", show_default=True, metavar="TIME")
@click.option(
    "--load", default="60s", show_default=True, metavar="TIME", help="From start to progress."
)
@click.option(
    "--node-start", default="2m", show_default=True, metavar="TIME", help="Until a new node is up."
)
@click.option(
    "--notice", default="30s", show_default=True, metavar="TIME", help="Until a loss is noticed."
)
@click.option(
    "--runs", type=click.IntRange(1, 1000), default=10, show_default=True, help="Runs to simulate."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first of them.")
@click.option("--plot", metavar="FILE", help="Draw it, too: .svg, .png or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate(target: str, nodes: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """What a long run will cost: goodput, restarts, lost time, and which policy would do better.

    The job's own failure policy is played through with nodes that fail at random. Nothing is
    started, and this machine need not be large enough.

    \b
    muster simulate job.yaml --nodes 512 --mtbf 2000h --hours 72
    """
    from muster.cli.forecast import print_forecasts, to_json
    from muster.cli.output import print_json
    from muster.forecast.compare import forecast, variants

    policy = _policy(target, nodes, options["max_restarts"])
    world = _world(options)
    _check_size(policy.size, world, options)
    asked = variants(policy, world)
    workers = min(os.cpu_count() or 1, 8, options["runs"])
    found = forecast(asked, options["runs"], options["seed"], workers)
    if options["plot"]:
        from muster.forecast.plot import draw

        draw(found[0], Path(options["plot"]))
    if as_json:
        print_json(to_json(policy, found))
    else:
        print_forecasts(policy, found, options["seed"])


#: Failures over all runs that are played through in minutes; each is a step of the lifecycle, which
#: looks at every node.
_MOST_FAILURES = 100_000


def _check_size(nodes: int, world: World, options: dict[str, Any]) -> None:
    """Raises InvalidInput if it would take for ever."""
    failures = nodes * world.horizon / world.mtbf * options["runs"]
    if failures <= _MOST_FAILURES:
        return
    mtbf, hours = options["mtbf"], options["hours"]
    text = (
        f"some {failures:,.0f} failures in {options['runs']} runs of {hours:g} hours "
        f"are too many to play through (at most {_MOST_FAILURES:,})"
    )
    try:
        float(mtbf)
        hint = f"--mtbf {mtbf} is {mtbf} seconds: did you mean {mtbf}h?"
    except ValueError:
        hint = "ask for fewer --runs or --hours"
    raise InvalidInput(Problem(f"--mtbf {mtbf}", text, hint))


def _policy(target: str, nodes: tuple[str, ...], max_restarts: int | None) -> Policy:
    """The policy of the run that `muster run` with the same arguments would start."""
    from muster.client.client import Client
    from muster.client.target import spec_for
    from muster.forecast.compare import as_it_begins
    from muster.plan.arrange import arrange
    from muster.plan.policy import build_policy
    from muster.spec.overrides import overrides_from_flags
    from muster.spec.resolve import resolve, spec_from_json

    if os.path.exists(target) or Path(target).suffix in (".yaml", ".yml", ".json"):
        spec = spec_for(target, None, {})
    else:
        spec = spec_from_json(Client().service.job(target).spec)
    overrides = overrides_from_flags(nodes=nodes, max_restarts=max_restarts)
    arranged = arrange(resolve(spec, overrides).spec)
    return as_it_begins(build_policy(arranged, seed=0, in_place=True))


def _world(options: dict[str, Any]) -> World:
    from muster.forecast.world import World

    def seconds(name: str) -> float:
        flag = f"--{name.replace('_', '-')}"
        value = duration(flag, options[name])
        if value <= 0 and name in ("mtbf", "checkpoint_every", "work"):
            raise InvalidInput(Problem(flag, "must be more than 0"))
        return value

    return World(
        mtbf=seconds("mtbf"),
        horizon=options["hours"] * 3600,
        lost=options["lost"],
        loss_noticed=seconds("notice"),
        node_start=seconds("node_start"),
        load=seconds("load"),
        checkpoint_every=seconds("checkpoint_every"),
        checkpoint_cost=seconds("checkpoint_cost"),
        work=seconds("work") if options["work"] else None,
    )
