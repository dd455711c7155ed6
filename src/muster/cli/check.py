"""`muster check`."""

from __future__ import annotations

from typing import Any

import click

from muster.cli.run import draft_from
from muster.cli.run import run as _run
from muster.cli.streams import optional_output
from muster.cli.terminal import echo, style
from muster.errors import EXIT_OK, EXIT_RUN_FAILED

_IGNORED = {"detach", "as_json"}


@click.command(
    cls=type(_run),
    params=[p for p in _run.params if p.name not in _IGNORED],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def check(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Whether the nodes that `muster run` with the same arguments would start can work together.

    Starts them for some seconds with a program that looks for the framework, tries addresses,
    names, the framework's ports between every two nodes, clocks, folders and disks; meanwhile it
    looks whether every URL that the job names can be read, and written where the job writes, with
    a small object that is deleted again. Says everything it found: of a port that is closed, the
    firewall rule that is missing; of a URL, what to allow. Exit code 1 if something is wrong.
    """
    from msgspec import to_builtins

    from muster.cli.output import print_json
    from muster.client.check import check as check_run
    from muster.client.client import Client

    client = Client()
    draft = draft_from(client, ctx.meta["after"], **options)
    if draft.new_job:
        client.service.discard(draft.job)
    report = check_run(client, draft)
    with optional_output():
        if as_json:
            print_json({**to_builtins(report), "ok": report.ok})
        else:
            echo(f"job {draft.job.name}, engine {report.engine}: {report.nodes} nodes")
            for line in report.lines:
                mark = style("ok  ", "green") if line.ok else style("FAIL", "red")
                for number, text in enumerate(line.texts):
                    lead = f"  {mark}  {line.what:<9}" if not number else " " * 17
                    echo(f"{lead}  {text}")
    ctx.exit(EXIT_OK if report.ok else EXIT_RUN_FAILED)
