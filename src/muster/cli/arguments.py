"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from muster.cli import completion_values as values
from muster.cli.formats import NAMES, choose, choose_json, split_formats

if TYPE_CHECKING:
    from muster.client.run import JobRun

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Adds a parameter to a command."""

    def __call__(self, function: F, /) -> F: ...


class Count(click.IntRange):
    """A whole number from a minimum, and up to a maximum if there is one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Raises BadParameter."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            most = "" if self.max is None else f" to {self.max:g}"
            text = f"must be a whole number from {self.min:g}{most}, not {value!r}"
            self.fail(text, param, ctx)


class _Run(click.types.StringParamType):
    name = "run"

    def get_missing_message(self, *_: object, **__: object) -> str:
        """What to do if there is no RUN. Its parameters depend on click's version."""
        return "Name a run, or write last for the newest; `muster ps` lists them."


def run_argument(**options: Any) -> Decorator:
    """RUN: a name, a display name, an id or a prefix of one, or `last`."""
    return click.argument(
        "run_name",
        metavar=_metavar("RUN", options),
        type=_Run(),
        shell_complete=values.runs,
        **options,
    )


def optional_run_argument() -> Decorator:
    """RUN as of `run_argument`; the parameter is None if it is not given."""
    return click.argument("run_name", metavar="[RUN]", shell_complete=values.runs, required=False)


def job_argument(**options: Any) -> Decorator:
    """JOB: a name, `name@version`, a display name, an id or a prefix of one."""
    return click.argument(
        "job_name", metavar=_metavar("JOB", options), shell_complete=values.jobs, **options
    )


def ranks_option() -> Decorator:
    """--rank: the parameter `ranks` is a tuple of numbers, empty if not given."""
    return click.option(
        "--rank",
        "ranks",
        multiple=True,
        metavar="N,N-N",
        callback=_numbers("rank"),
        shell_complete=values.ranks,
        help="Only nodes with these ranks: 0, or 0,2-5.",
    )


def replicas_option() -> Decorator:
    """--replica: the parameter `replicas` is a tuple of numbers, empty if not given."""
    return click.option(
        "--replica",
        "replicas",
        multiple=True,
        metavar="N,N-N",
        callback=_numbers("replica number"),
        help="Only these replicas of an array: 17, or 3,17,40-42.",
    )


def chosen_ranks(
    run: JobRun, ranks: tuple[int, ...], replicas: tuple[int, ...], groups: tuple[str, ...]
) -> Collection[int]:
    """The ranks that --rank or --replica name; empty if neither is given. Raises UsageError if both
    are, InvalidInput for replicas that there are not."""
    if replicas and ranks:
        raise click.UsageError("--rank and --replica exclude each other")
    if not replicas:
        return ranks
    from muster.cli.flags import as_flags

    with as_flags("replica"):
        return run.replica_ranks(replicas, groups)


def node_options() -> Decorator:
    """--rank, --replica and --node for one node: each parameter is None if not given."""
    rank = click.option(
        "--rank",
        type=Count(min=0),
        metavar="N",
        help="Rank of the node; required if the run has several.",
    )
    replica = click.option(
        "--replica",
        type=Count(min=0),
        metavar="N",
        help="Of an array: the node's replica, in place of --rank.",
    )
    node = click.option(
        "--node",
        type=Count(min=0),
        metavar="N",
        help="With --replica: the node in it, from 0; required if it has several.",
    )
    return lambda function: rank(replica(node(function)))


def chosen_rank(run: JobRun, rank: int | None, replica: int | None, node: int | None) -> int | None:
    """The rank that --rank, or --replica and --node, name; None if none is given. Raises
    UsageError, and InvalidInput for what the run does not have."""
    if replica is None:
        if node is not None:
            raise click.UsageError("--node is the number of a node in a replica; add --replica N")
        return rank
    if rank is not None:
        raise click.UsageError("--rank and --replica exclude each other")
    from muster.cli.flags import as_flags
    from muster.errors import InvalidInput, Problem

    with as_flags("replica"):
        ranks = run.replica_ranks([replica], several="name its node with --rank")
    if node is None and len(ranks) > 1:
        text = f"replica {replica} of {run.name} has {len(ranks)} nodes"
        raise InvalidInput(Problem("--replica", text, "name one with --node"))
    if node is not None and node >= len(ranks):
        text = f"replica {replica} of {run.name} has no node {node}"
        raise InvalidInput(Problem("--node", text, f"its nodes are 0 to {len(ranks) - 1}"))
    return ranks[node or 0]


def groups_option() -> Decorator:
    """--group: the parameter `groups` is a tuple of names, empty if not given."""
    return click.option(
        "--group",
        "groups",
        multiple=True,
        metavar="GROUP",
        shell_complete=values.groups,
        help="Only this group.",
    )


def _numbers(
    noun: str,
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[int, ...]]:
    """A callback that reads `3` and `3,17,40-42`. noun: what one of them is, for errors."""

    def read(
        _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
    ) -> tuple[int, ...]:
        if not texts:
            return ()
        from muster.spec.replica_numbers import MOST_LISTED, parse_numbers
        from muster.spec.wording import Refused

        try:
            parts = parse_numbers(",".join(texts), noun, MOST_LISTED)
        except Refused as error:
            raise click.BadParameter(str(error)) from None
        return tuple(number for part in parts for number in part)

    return read


def _metavar(word: str, options: Mapping[str, Any]) -> str:
    return f"{word}..." if options.get("nargs") == -1 else word


def json_option(text: str = "Print JSON.", *, short: bool = True) -> Decorator:
    """--json and --output: print data instead of text. short: also as `-o`."""
    names = ("--output", "-o") if short else ("--output",)
    output = click.option(
        *names,
        type=click.Choice(NAMES),
        expose_value=False,
        is_eager=True,  # --json has to know
        callback=choose,
        help="Output format; wide: all columns." + ("" if short else " -o json works, too."),
    )
    json = click.option("--json", "as_json", is_flag=True, callback=choose_json, help=text)
    return lambda function: json(output(function))


#: Options that override settings of the job, when a run starts and when it is resumed.
_OVERRIDES = (
    click.option(
        "--env",
        "-e",
        multiple=True,
        metavar="[GROUP:]K[=V]",
        help="Environment variable. K alone: the current value of K.",
    ),
    click.option(
        "--env-file",
        "env_files",
        multiple=True,
        metavar="FILE",
        shell_complete=values.files,
        help="File of K=V lines, as for `docker run`. --env takes precedence.",
    ),
    click.option(
        "--option",
        "-o",
        "framework_options",
        multiple=True,
        metavar="NAME=VALUE",
        is_eager=True,  # -o json is a format
        callback=split_formats,
        help="Set an option of the framework.",
    ),
    click.option(
        "--network",
        shell_complete=values.networks,
        help="Network of the nodes: shared, cluster or isolated.",
    ),
    click.option(
        "--max-runtime",
        metavar="TIME",
        help="Cancel the run after this time: 90s, 10m. Default: the job's, else 30d.",
    ),
    click.option(
        "--max-restarts",
        type=int,
        metavar="N",
        help="Maximum restarts after failures. Default: the job's, else 0.",
    ),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="SRC[:PATH[:ro]]",
        shell_complete=values.files,
        help="Mount SRC on every node; replaces the job's mounts.",
    ),
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="PATH=VALUE",
        shell_complete=values.settings,
        help="Override a setting of the spec.",
    ),
)


def change_options(function: F) -> F:
    """Add the options in _OVERRIDES to a command."""
    for option in reversed(_OVERRIDES):
        function = option(function)
    return function
