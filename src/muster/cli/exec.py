"""`muster exec` and `muster shell`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from signal import SIGWINCH
from typing import TYPE_CHECKING

import click

from muster.cli.arguments import chosen_rank, node_options, run_argument
from muster.cli.flags import as_flags
from muster.cli.terminal import echo
from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from muster.api.node_access import NodeCommand, NodeProcess
    from muster.client.client import Client
    from muster.store.records import NodeRecord, RunSummary

#: Seconds that a command has to start when a signal comes that is for it.
_START_GRACE = 1.0
#: Starts the first shell that the node has.
_SHELL = 'for shell in "$SHELL" bash sh; do command -v "$shell" >/dev/null && exec "$shell"; done'


class _WithCommand(click.Command):
    """A command whose words after RUN and its options are a command, with or without `--`."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, rest = self._split(args)
        after, command = self._split(rest[1:])
        return super().parse_args(ctx, [*before, *after, "--", *rest[:1], *command])

    def _split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """The options at the beginning, and the words after them and after a `--`."""
        options = [param for param in self.params if isinstance(param, click.Option)]
        with_value = {name for one in options if not one.is_flag for name in one.opts}
        end = 0
        while end < len(words) and words[end].startswith("-") and words[end] not in ("-", "--"):
            end += 2 if words[end] in with_value else 1
        return words[:end], words[end + 1 if words[end : end + 1] == ["--"] else end :]


@click.command(cls=_WithCommand)
@run_argument()
@node_options()
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@click.option(
    "-i", "--interactive", is_flag=True, help="No effect: the command always has standard input."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def exec(  # the command's name
    ctx: click.Context,
    run_name: str,
    rank: int | None,
    replica: int | None,
    node: int | None,
    tty: bool,
    interactive: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND in a running node, and exit with its exit code.

    COMMAND runs as the node's program does: in the node's namespaces, with its user, environment,
    working directory and limits. It ends when the node ends. Without namespaces (see `muster
    doctor`), COMMAND only has the node's environment and working directory; it and its child
    processes may keep running after the node ends or after `muster exec` is interrupted.

    SIGTERM and SIGHUP are passed on to COMMAND. With -t, if COMMAND is still running one second
    later, its terminal is closed (SIGHUP); two seconds later, it is killed.

    \b
    muster exec train-3 --rank 1 -- nvidia-smi
    muster exec train-3 --rank 0 -it -- python -i
    muster exec sweep-1 --replica 17 -- cat /proc/self/limits
    echo 'env | sort' | muster exec train-3 -- sh
    """
    from muster.api.node_access import NodeCommand

    if tty and not os.isatty(0):
        hint = "leave it out: the command reads standard input also without a terminal"
        raise InvalidInput(Problem("-t", "standard input is not a terminal", hint))
    client, run, found = _find(run_name, rank, replica, node)
    ctx.exit(_run(client, run, found, NodeCommand(command, terminal=tty)))


@click.command()
@run_argument()
@node_options()
@click.pass_context
def shell(
    ctx: click.Context, run_name: str, rank: int | None, replica: int | None, node: int | None
) -> None:
    """Open a shell inside a running node.

    The shell is $SHELL, else bash, else sh. It has the node's files, network, environment and
    limits, as with `muster exec`.

    \b
    muster shell train-3 --rank 1
    muster shell sweep-1 --replica 17
    """
    from muster.api.node_access import NodeCommand

    client, run, found = _find(run_name, rank, replica, node)
    name = f"node-{found.rank}" if replica is None else f"replica-{replica}"
    prompt = {"PS1": rf"{name} ({run.name}):\w\$ "}
    command = NodeCommand(("/bin/sh", "-c", _SHELL), env=prompt, terminal=os.isatty(0))
    greeting = f"{name} of {run.name}; `exit` or Ctrl-D leaves it"
    ctx.exit(_run(client, run, found, command, greeting if command.terminal else ""))


def _find(
    run_name: str, rank: int | None, replica: int | None, node: int | None
) -> tuple[Client, RunSummary, NodeRecord]:
    """The client, the run and the node."""
    from muster.client.client import Client

    client = Client()
    run = client.api.find_run(run_name)
    if replica is not None or node is not None:
        rank = chosen_rank(client.run(run.id), rank, replica, node)
    with as_flags("rank", "replica"):
        return client, run, client.node_access.find(run.id, rank)


def _run(
    client: Client, run: RunSummary, node: NodeRecord, command: NodeCommand, greeting: str = ""
) -> int:
    """Run a command inside a node, connected with this process's terminal or files. greeting: shown
    once it has started."""
    from muster.api.node_access import Stdio

    def start(stdio: Stdio) -> NodeProcess:
        process = client.node_access.execute(run.id, node.rank, command, stdio)
        if greeting:
            echo(greeting, err=True, end="\r\n")  # the terminal is raw
        return process

    if command.terminal:
        from muster.cli.pseudo_terminal import run_in_terminal

        return run_in_terminal(lambda terminal: start(Stdio(terminal, terminal, terminal)))
    return run_forwarding_signals(lambda: start(Stdio(sys.stdin, sys.stdout, sys.stderr)))


def run_forwarding_signals(start: Callable[[], NodeProcess]) -> int:
    """Start a command inside a node, and wait for it; returns its exit code. Signals are passed on
    to it, except those of keys that it gets from the kernel. One that would end this process does
    so if the command does not start: its cluster may not answer.
    """
    from threading import Event, Thread

    from muster.node.processes import block_forwarded_signals, forwarded_signals

    started = Event()
    process: NodeProcess | None = None

    def forward() -> None:
        for number, is_in_group in forwarded_signals():
            if not started.wait(_START_GRACE) and number != SIGWINCH:
                os._exit(128 + number)  # the main thread waits, and has started nothing
            if process is not None and not (is_in_group and process.in_process_group):
                process.send_signal(number)

    block_forwarded_signals()  # before any thread or process of the command is there
    Thread(target=forward, daemon=True).start()
    process = start()
    started.set()
    return process.wait()
