"""`muster node`."""

from __future__ import annotations

import os

import click

from muster.cli.terminal import echo
from muster.errors import EXIT_PLATFORM, EngineError


@click.command()
@click.pass_context
def node(ctx: click.Context) -> None:
    """Run one node of a cluster that has no supervisor.

    Use this on platforms that can only start independent jobs: start one job per node, exactly one
    with MODE=MAIN. The nodes find each other through a shared folder. Environment variables
    configure the node; each may have the prefix OCI__:

    \b
    WORK_DIR      folder or fsspec URL that all nodes share
    JOB_OCID      unique cluster id, the same on every node
    CLUSTER_TYPE  dask, ray, pytorch, tensorflow, ... (`muster ports` lists them)
    MODE          MAIN, WORKER or PS
    WORKER_COUNT  nodes with MODE=WORKER (default 1)
    PS_COUNT      nodes with MODE=PS (default 0)
    ENTRY_POINT   the program, relative to CODE_DIR (default /code)
    EPHEMERAL     1: end with the program; 0: run until TTL expires or a stop file appears
    TIMEOUT       seconds to wait for all nodes to join (default 600)
    START_ARGS    additional arguments of the scheduler or worker

    A file named `stop` in WORK_DIR/JOB_OCID ends the cluster at once.

    \b
    WORK_DIR=/shared JOB_OCID=lab CLUSTER_TYPE=dask MODE=MAIN muster node
    """
    from muster.bootstrap.node import run_node
    from muster.bootstrap.parameters import not_honored, read_parameters
    from muster.identity import new_id

    parameters = read_parameters(os.environ, new_id())
    for note in not_honored(os.environ, parameters):
        _print(note)
    try:
        code = run_node(parameters, os.environ, _print)
    except EngineError as error:
        _print(str(error))
        code = EXIT_PLATFORM
    ctx.exit(code)


def _print(text: str) -> None:
    echo(f"muster node: {text}", err=True)
