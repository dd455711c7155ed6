"""`muster simulate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import Count, json_option
from muster.cli.job_options import array_options
from muster.client.filters import duration_of
from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from muster.forecast.model import Assumptions
    from muster.lifecycle.policy import Policy


@click.command()
@click.argument("target", shell_complete=values.targets)
@click.option(
    "--nodes",
    "-n",
    multiple=True,
    metavar="[GROUP=]N",
    help="Number of nodes; with GROUP=, in each replica of that group.",
)
@array_options
@click.option(
    "--mtbf",
    required=True,
    metavar="TIME",
    help="Mean time between failures of one node, such as 2000h.",
)
@click.option(
    "--hours",
    default="72",
    show_default=True,
    metavar="HOURS",
    help="Hours to simulate: 72 or 72h; another unit, such as 3d.",
)
@click.option(
    "--work", metavar="TIME", help="Useful work after which each program ends. Default: unlimited."
)
@click.option(
    "--max-restarts", type=int, metavar="N", help="Maximum restarts, instead of the spec's."
)
@click.option(
    "--lost",
    type=click.FloatRange(0, 1),
    default=0.2,
    metavar="SHARE",
    show_default=True,
    help="Share of failures that destroy the node. After any other failure, its processes restart "
    "in place.",
)
@click.option(
    "--checkpoint-every",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="Work between two checkpoints.",
)
@click.option(
    "--checkpoint-cost",
    default="30s",
    show_default=True,
    metavar="TIME",
    help="Time to write one checkpoint, during which nodes do no work.",
)
@click.option(
    "--load",
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Time from a program's start until it makes progress.",
)
@click.option(
    "--node-start",
    default="2m",
    show_default=True,
    metavar="TIME",
    help="Time until a new node is ready.",
)
@click.option(
    "--notice",
    default="30s",
    show_default=True,
    metavar="TIME",
    help="Time until a lost node is detected.",
)
@click.option(
    "--runs",
    type=Count(1, 1000),
    default=10,
    metavar="N",
    show_default=True,
    help="Runs to simulate.",
)
@click.option(
    "--seed", type=int, default=0, metavar="N", show_default=True, help="Seed of the first run."
)
@click.option("--plot", metavar="FILE", help="Also draw a plot: .svg, .png or .pdf.")
@json_option()
def simulate(target: str, nodes: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Estimate a long run's goodput under node failures.

    Simulates the job's failure policy with nodes that fail at random, and compares it with
    alternatives. Shows goodput, the share of node time that becomes useful work, and where the rest
    goes. Starts nothing; the job may be larger than this machine.

    \b
    muster simulate job.yaml --nodes 512 --mtbf 2000h --hours 72
    """
    from muster.cli.output import print_json
    from muster.cli.simulate_output import print_forecasts, simulation_progress, to_json
    from muster.forecast.compare import forecast, variants

    policy = _policy(target, nodes, options)
    world = _world(options)
    _check_size(policy.size_at_once, world, options)
    alternatives = variants(policy, world)
    workers = min(os.cpu_count() or 1, 8, options["runs"])
    with simulation_progress() as progress:
        found = forecast(alternatives, options["runs"], options["seed"], workers, progress)
    if options["plot"]:
        from muster.forecast.plot import draw

        draw(found[0], Path(options["plot"]))
    if as_json:
        print_json(to_json(policy, found))
    else:
        print_forecasts(policy, found, options["seed"])


#: Failures, over all runs, that can be simulated in minutes. Each is a step of the lifecycle, which
#: looks at every node.
_MAX_FAILURES = 100_000
_MAX_HOURS = 1_000_000


def _check_size(nodes: int, world: Assumptions, options: dict[str, Any]) -> None:
    """Raise InvalidInput if the simulation would take too long."""
    failures = nodes * world.horizon / world.mtbf * options["runs"]
    if failures <= _MAX_FAILURES:
        return
    text = (
        f"about {failures:,.0f} failures in {options['runs']} runs of {world.horizon / 3600:g} "
        f"hours are more than the {_MAX_FAILURES:,} that can be simulated"
    )
    raise InvalidInput(Problem(f"--mtbf {options['mtbf']}", text, "use fewer --runs or --hours"))


#: Options that `muster run` has, too, and that change the policy.
_OF_RUN = (
    *("arrays", "sample", "sample_seed", "replicas", "parallelism", "max_failed", "retries"),
    *("only", "max_restarts"),
)


def _policy(target: str, nodes: tuple[str, ...], options: dict[str, Any]) -> Policy:
    """The policy of the run that `muster run` with the same arguments would start."""
    from muster.client.client import Client
    from muster.client.target import spec_for
    from muster.forecast.compare import initial_policy
    from muster.plan.arrange import arrange
    from muster.plan.policy import build_policy
    from muster.spec.override_flags import changes_from_flags
    from muster.spec.partial_overrides import with_items
    from muster.spec.resolve import resolve

    if os.path.exists(target) or Path(target).suffix in (".yaml", ".yml", ".json"):
        spec = spec_for(target, None, {})
    else:
        api = Client().api
        spec = api.job_spec(api.job(target).id)
    given = {name: options[name] for name in _OF_RUN}
    changes = with_items(changes_from_flags(nodes=nodes, **given), spec)
    overrides = changes.require_valid()
    arranged = arrange(resolve(spec, overrides).spec)
    return initial_policy(build_policy(arranged, seed=0, in_place=True))


def _world(options: dict[str, Any]) -> Assumptions:
    from muster.forecast.model import Assumptions

    def seconds(name: str) -> float:
        flag = f"--{name.replace('_', '-')}"
        value = duration_of(flag, options[name])
        if value <= 0 and name in ("mtbf", "checkpoint_every", "work"):
            raise InvalidInput(Problem(flag, "must be more than 0"))
        return value

    return Assumptions(
        mtbf=seconds("mtbf"),
        horizon=_horizon(options["hours"]),
        lost=options["lost"],
        loss_noticed=seconds("notice"),
        node_start=seconds("node_start"),
        load=seconds("load"),
        checkpoint_every=seconds("checkpoint_every"),
        checkpoint_cost=seconds("checkpoint_cost"),
        work=seconds("work") if options["work"] else None,
    )


def _horizon(hours: str) -> float:
    """Seconds. A number without a unit is in hours, as the flag says."""
    value = float(hours) * 3600 if _is_number(hours) else duration_of("--hours", hours)
    if not 0 < value <= _MAX_HOURS * 3600:
        text = f"must be more than 0 and at most {_MAX_HOURS:,} hours, not {hours}"
        raise InvalidInput(Problem("--hours", text))
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
