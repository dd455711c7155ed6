"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Adds a parameter to a command."""

    def __call__(self, function: F, /) -> F: ...


class _Run(click.types.StringParamType):
    name = "run"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from muster.client.client import Client

        names = ["last", *(r.name for r in Client().summaries(limit=50))]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class _Job(click.types.StringParamType):
    name = "job"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from muster.client.client import Client

        names = sorted({job.name for job in Client().service.jobs()})
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def run_argument(**options: Any) -> Decorator:
    """RUN: a name, a display name, an id or the beginning of one, or `last`."""
    return click.argument("run_name", metavar="RUN", type=_Run(), **options)


def job_argument(**options: Any) -> Decorator:
    """JOB: a name, `name@version`, a display name, an id or the beginning of one."""
    return click.argument("job_name", metavar="JOB", type=_Job(), **options)


def json_option() -> Decorator:
    """--json: data instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")


#: What a run may change of its Job with a flag, when it starts and when it is resumed.
_CHANGES = (
    click.option(
        "--env", "-e", multiple=True, metavar="[GROUP:]K[=V]", help="Environment variable."
    ),
    click.option(
        "--option",
        "-o",
        "framework_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Framework option.",
    ),
    click.option("--network", help="shared, cluster or isolated."),
    click.option("--max-runtime", metavar="TIME", help="90s, 10m, 30d: then the run is canceled."),
    click.option("--max-restarts", type=int, metavar="N", help="Restarts after failures, at most."),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="SRC[:PATH[:ro]]",
        help="Mount SRC on every node, instead of the job's mounts.",
    ),
    click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Override a setting."),
)


def change_options(function: F) -> F:
    """The options of _CHANGES, in this order."""
    for option in reversed(_CHANGES):
        function = option(function)
    return function
