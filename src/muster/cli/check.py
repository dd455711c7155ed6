"""`muster check`."""

from __future__ import annotations

from typing import Any

import click

from muster.cli.arguments import json_option
from muster.cli.run import options_of_run, prepare_from
from muster.cli.run import run as _run
from muster.cli.streams import optional_output
from muster.cli.terminal import echo, style
from muster.describe.words import plural
from muster.errors import EXIT_OK, EXIT_RUN_FAILED
from muster.interrupt import exit_when_terminated


@click.command(
    cls=type(_run),
    params=options_of_run(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@json_option("Print the report as JSON.", short=False)
@click.pass_context
def check(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Check that a job's nodes can work together.

    A preflight check with the arguments of `muster run`. Starts the nodes for some seconds and runs
    a test program on them, which checks the framework's installation, addresses, host names,
    clocks, folders and disks, and that every pair of nodes can connect on the framework's ports.
    Also checks that the job's URLs can be read and, if the job writes to them, written: it writes
    a small object and deletes it.

    Reports every problem with its fix, such as a missing firewall rule. Exits with 1 if there is a
    problem.

    \b
    muster check job.yaml --nodes 4
    """
    from msgspec import to_builtins

    from muster.cli.output import print_json
    from muster.client.check import check as check_run
    from muster.client.client import Client

    exit_when_terminated()  # its run is to end with it
    client = Client()
    prepared = prepare_from(client, ctx.meta["after"], **options)
    if prepared.new_job:
        client.api.discard(prepared.job)
    report = check_run(client, prepared, lambda why: echo(why, err=True, wrap=True))
    with optional_output():
        if as_json:
            print_json({**to_builtins(report), "ok": report.ok})
        else:
            echo(f"job {prepared.job.name}, engine {report.engine}: {plural(report.nodes, 'node')}")
            for line in report.lines:
                mark = style("ok  ", "green") if line.ok else style("FAIL", "red")
                for number, text in enumerate(line.texts):
                    lead = f"  {mark}  {line.what:<9}" if not number else " " * 17
                    echo(f"{lead}  {text}", wrap=True, hang=19)
    ctx.exit(EXIT_OK if report.ok else EXIT_RUN_FAILED)
