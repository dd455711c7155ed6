"""Starts an MPI program on the run's nodes from the main node, without ssh.

    python -m muster.node.mpi --flavour mpich --per-node 2 -- python train.py

Exits with the exit code of the first rank that failed, after having failed that rank's node
(`mpi_program`).
"""

from __future__ import annotations

import argparse
import sys
from typing import List

from muster.node import handshake, remote_command
from muster.node.mpi_launchers import NoMpi, find_launcher
from muster.node.mpi_program import Program
from muster.node.remote_command import NodeUnreachable
from muster.node.requirements import exit_with


def main(argv: List[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m muster.node.mpi")
    parser.add_argument("--flavour", choices=("auto", "mpich", "openmpi"), default="auto")
    parser.add_argument("--per-node", type=int, default=1, help="ranks (default: %(default)s)")
    parser.add_argument("--slots", type=int, help="Open MPI's slots of a node (default: per-node)")
    parser.add_argument(
        *("--timeout", "--patience"),
        type=float,
        default=300.0,
        help="seconds until all nodes must answer (default: %(default)s)",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    try:
        launcher = find_launcher(options.flavour)
    except NoMpi as error:
        exit_with(str(error))
    try:
        return Program(
            launcher,
            options.program[options.program[:1] == ["--"] :],
            per_node=options.per_node,
            slots=options.slots or options.per_node,
            timeout=options.timeout,
            relays=remote_command.relay_addresses(),
            token=handshake.token_from_environment(),
        ).run()
    except (NodeUnreachable, NoMpi, handshake.Untrusted) as error:
        sys.stderr.write("muster mpi: %s\n" % error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
