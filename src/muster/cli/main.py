"""The `muster` command. Each subcommand is imported when it is used."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

import click

from muster.cli.streams import ReaderGone, guard
from muster.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PLATFORM,
    MusterError,
    MusterWarning,
    shortage_from,
)
from muster.interrupt import Raised, leave_at_once

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Subcommand -> (module, summary). The module's function has the same name, or that after a colon.
_COMMANDS = {
    "run": ("muster.cli.run", "Start a run and follow its output."),
    "ps": ("muster.cli.runs:list_runs", "List runs."),
    "status": ("muster.cli.runs:show", "Show a run's state, the reason for it, and its nodes."),
    "logs": ("muster.cli.logs", "Show a run's output."),
    "events": ("muster.cli.events", "Show what happened to a run."),
    "wait": ("muster.cli.runs:wait", "Wait until a run ends."),
    "cancel": ("muster.cli.runs:cancel", "Cancel runs; canceled runs cannot be resumed."),
    "adopt": ("muster.cli.adopt", "Make a run of a JobSet that is in a cluster."),
    "rerun": ("muster.cli.rerun", "Run again what a run ran, such as on another engine."),
    "rm": ("muster.cli.runs:delete", "Delete ended runs and their output."),
    "runs": ("muster.cli.runs", "Suspend, resume and scale runs; all commands for runs."),
    "top": ("muster.cli.top", "Show the CPU, memory and I/O of running nodes, live."),
    "outputs": ("muster.cli.outputs", "List or copy a run's output files."),
    "cp": ("muster.cli.cp", "Copy files to, from and between nodes."),
    "exec": ("muster.cli.exec", "Run a command inside a running node."),
    "shell": ("muster.cli.exec:shell", "Open a shell inside a running node."),
    "stacks": ("muster.cli.stacks", "Show the Python stacks of a run's nodes."),
    "open": ("muster.cli.open:open_", "Open a run's dashboard, or a port of a node."),
    "jobs": ("muster.cli.jobs", "Create, list, show, edit and delete jobs."),
    "schedules": ("muster.cli.schedules", "Start runs at times, such as each night."),
    "notify": ("muster.cli.notify", "Send events, such as failed runs, to URLs, chats and people."),
    "explain": ("muster.cli.explain", "Show the plan of a run, and start nothing."),
    "check": ("muster.cli.check", "Check that a job's nodes can work together."),
    "simulate": ("muster.cli.simulate", "Estimate a long run's goodput under node failures."),
    "cluster": ("muster.cli.cluster", "Start, scale and end persistent clusters."),
    "node": ("muster.cli.node", "Run one node of a cluster that has no supervisor."),
    "image": ("muster.cli.image", "Build and push container images for cluster nodes."),
    "server": ("muster.cli.server", "Serve jobs and runs to a team, over HTTP."),
    "login": ("muster.cli.login", "Log in to a server, which all commands use then."),
    "logout": ("muster.cli.login:logout", "Forget a server and its token."),
    "context": ("muster.cli.context", "Choose where commands work: here, or on a server."),
    "users": ("muster.cli.users", "List, add and change the users of a server."),
    "projects": ("muster.cli.projects", "List and change projects and their members."),
    "iam": ("muster.cli.iam", "Say who may do what: policies, groups, compartments."),
    "tokens": ("muster.cli.tokens", "List, create and revoke tokens."),
    "secrets": ("muster.cli.secrets", "Store secrets that runs use."),
    "audit": ("muster.cli.audit", "Show who did what on a server."),
    "oci-config": ("muster.cli.oci_config:oci_config", "Set up clients of OCI for a server."),
    "doctor": ("muster.cli.doctor", "Show what this machine supports."),
    "disk": ("muster.cli.disk", "Show what Muster keeps on disk, and its size."),
    "prune": ("muster.cli.prune", "Delete old runs and unused files."),
    "env": ("muster.cli.env", "List and delete environments installed for runs."),
    "engines": ("muster.cli.engines", "List and add engines: where nodes can run."),
    "shapes": ("muster.cli.shapes", "List shapes: named sizes of nodes."),
    "convert": ("muster.cli.convert", "Convert a spec to a JobSet manifest, or back."),
    "schema": ("muster.cli.schema", "Print the JSON Schema of the spec, for editors."),
    "node-program": (
        "muster.cli.node_program:node_program",
        "Print the program of nodes, for machines without Muster.",
    ),
    "ports": ("muster.cli.ports", "Show the ports a framework needs, or firewall rules."),
    "completion": ("muster.cli.completion", "Print the completion script of a shell."),
}
#: First subcommand under a heading of `muster --help` -> the heading.
_HEADINGS = {
    "run": "Run and follow",
    "top": "Look inside a run",
    "jobs": "Jobs and clusters",
    "server": "Servers and teams",
    "doctor": "Machine and disk",
    "convert": "Other",
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, function = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), function or cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, without importing them, and options."""
        from click.shell_completion import CompletionItem

        names = [name for name in _COMMANDS if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=_COMMANDS[name][1]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: list[tuple[str, list[tuple[str, str]]]] = []
        for name, (_, line) in _COMMANDS.items():
            if name in _HEADINGS:
                sections.append((_HEADINGS[name], []))
            sections[-1][1].append((name, line))
        width = max(map(len, _COMMANDS))
        for heading, lines in sections:
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", line) for name, line in lines])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [*args]  # click consumes args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from muster.cli.usage_hints import option_before_command

            raise option_before_command(error, words, self) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        unknown = args and args[0] not in _COMMANDS and not args[0].startswith("-")
        if unknown and not ctx.resilient_parsing:
            from muster.cli.command_hints import at_top, no_such_command

            if "build-image" in args:
                from muster.cli.usage_hints import image_build_for_ads

                words = args[args.index("build-image") + 1 :]
                meant = [image_build_for_ads(words) or "muster image build"]
            else:
                meant = at_top(args, _COMMANDS)
            raise no_such_command(ctx, args[0], *meant)
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="muster-jobs")
def cli() -> None:
    """Run multi-node jobs: on this machine, in containers, over ssh, on Slurm, on Kubernetes.

    RUN is a run's name, the start of its id, or `last` (the newest run). `muster COMMAND --help`
    shows a command's options and examples.

    \b
    Exit codes: 0 succeeded, 1 the run failed, 2 bad input, 3 canceled,
    suspended or timed out, 4 platform or engine error, or a bug in Muster,
    130 interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP).
    """


def main() -> None:
    """The entry point: turn errors into messages and documented exit codes."""
    leave_at_once()
    _open_closed_streams()
    guard()
    code = _run()
    sys.stderr.flush()
    os._exit(code)  # shutting down the interpreter takes longer than some jobs


def _open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream, so that no other file gets its number."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print Muster's warnings as messages, all others with their place in the code."""
    if issubclass(category, MusterWarning):
        from muster.cli.terminal import warn

        warn(str(message))
    else:
        _show_any_warning(message, category, filename, lineno, file, line)


_show_any_warning = warnings.showwarning


def _run() -> int:
    warnings.showwarning = _show_warning
    try:
        code = _invoke()
        sys.stdout.flush()
    except ReaderGone:
        code = EXIT_OK
    except MusterError as error:
        code = _print_error(error)
    except OSError as error:
        shortage = shortage_from(error)
        code = _print_error(shortage) if shortage is not None else _print_bug()
    except Exception:  # noqa: BLE001  exit code 1 would mean that the run failed
        code = _print_bug()
    return code


def _print_bug() -> int:
    """Print the traceback of a bug in Muster."""
    from muster.secrets import print_traceback

    print_traceback()
    return EXIT_PLATFORM


def _invoke() -> int:
    try:
        with Raised():
            if "_MUSTER_COMPLETE" in os.environ:
                from muster.cli.completion import register

                register()
            code: Any = cli.main(prog_name="muster", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.NoSuchOption as error:
        from muster.cli.option_hints import with_hint

        _print_usage_error(with_hint(error))
        code = error.exit_code
    except click.ClickException as error:
        _print_usage_error(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    return code if isinstance(code, int) else EXIT_OK


def _print_usage_error(error: click.ClickException) -> None:
    """Print click's message through `echo`, which escapes the arguments quoted in it."""
    import io

    from muster.cli.terminal import echo

    text = io.StringIO()
    error.show(file=text)
    echo(text.getvalue(), err=True, end="")


def _print_error(error: MusterError) -> int:
    from muster.cli.terminal import print_error

    return print_error(error)
