"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import click
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
        from muster.client.client import Client

        names = ["last", *(r.name for r in Client().summaries(limit=50))]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class _Job(click.types.StringParamType):
    name = "job"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from muster.client.client import Client

        names = sorted({job.name for job in Client().service.jobs()})
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def run_argument(**options: Any) -> Decorator:
    """RUN: a name, an id or the beginning of one, or `last`."""
    return click.argument("run_name", metavar="RUN", type=_Run(), **options)


def job_argument(**options: Any) -> Decorator:
    """JOB: a name, `name@version`, an id or the beginning of one."""
    return click.argument("job_name", metavar="JOB", type=_Job(), **options)


def json_option() -> Decorator:
    """--json: data instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")
