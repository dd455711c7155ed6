"""Arguments that several commands share."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem


class _Run(click.ParamType):
    name = "run"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from muster.client.api import Client

        names = ["last", *(r.name for r in Client().summaries(limit=50))]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class _Job(click.ParamType):
    name = "job"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from muster.client.api import Client

        names = sorted({job.name for job in Client().service.jobs()})
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def run_argument(**options: Any) -> Any:
    """RUN: a name, an id or the beginning of one, or `last`."""
    return click.argument("run_name", metavar="RUN", type=_Run(), **options)


def job_argument(**options: Any) -> Any:
    """JOB: a name, `name@version`, an id or the beginning of one."""
    return click.argument("job_name", metavar="JOB", type=_Job(), **options)


def json_option() -> Any:
    """--json: data instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")
