"""`muster node`."""

from __future__ import annotations

import os

import click

from muster.cli.terminal import echo
from muster.errors import EXIT_PLATFORM, EngineError


@click.command()
@click.pass_context
def node(ctx: click.Context) -> None:
    """Be one node of a cluster that assembles itself over a shared work directory.

    For services that only know single job runs: start as many as there are nodes, one of them with
    MODE=MAIN. Everything is said by the environment; each name also with OCI__ in front:

    \b
    WORK_DIR      a folder or fsspec URL that all nodes see
    JOB_OCID      what the cluster is told apart by, the same on every node
    CLUSTER_TYPE  dask, ray, pytorch, tensorflow, ... (`muster ports` lists them)
    MODE          MAIN, WORKER or PS
    WORKER_COUNT  nodes with MODE=WORKER (1); PS_COUNT: with MODE=PS (0)
    ENTRY_POINT   the program, from CODE_DIR on (/code)
    EPHEMERAL     1: end with the program; 0: stay until TTL is over or a stop file is found
    TIMEOUT       seconds to come together in (600)
    START_ARGS    more words for the scheduler or worker that is started

    A file named `stop` in WORK_DIR/JOB_OCID ends the cluster at once.
    """
    from muster.assemble.node import live
    from muster.assemble.parameters import not_honored, read_parameters
    from muster.identity import new_id

    parameters = read_parameters(os.environ, new_id())
    for note in not_honored(os.environ, parameters):
        _say(note)
    try:
        code = live(parameters, os.environ, _say)
    except EngineError as error:
        _say(str(error))
        code = EXIT_PLATFORM
    ctx.exit(code)


def _say(text: str) -> None:
    echo(f"muster node: {text}", err=True)
