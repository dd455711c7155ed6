"""Generate docs/reference/cli.md from the commands: `python -m muster.cli.reference`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from muster.cli.main import cli


def reference_markdown() -> str:
    """The page: one section per command, with its --help."""
    intro = [
        "# The command line\n",
        "Generated from the commands by `python -m muster.cli.reference`.\n",
        "| exit code | |",
        "| --- | --- |",
        "| 0 | the run succeeded; the command completed |",
        "| 1 | the run failed; a check found something; `muster iam explain`: it is refused |",
        "| 2 | bad input; nothing was started |",
        "| 3 | the run was canceled or suspended, or timed out; `wait --timeout` gave up |",
        "| 4 | platform or engine error (a full disk, ...), or a bug in Muster |",
        "| 129 | the terminal was closed (SIGHUP); the run continues |",
        "| 130 | interrupted (Ctrl-C); the run continues |",
        "| 143 | terminated (SIGTERM); the run continues |\n",
        "If the reader of standard output closes it (`muster logs last | head -1`), a command",
        "exits with 0, except `muster run`, which is killed by SIGPIPE while its run continues.",
        "If standard output cannot be written, the exit code is 4; if standard error cannot, the",
        "command continues.",
        "",
        "`--json`, or `-o json`, prints the data that programs may rely on, `-o yaml` the same",
        "data, and `-o wide` a table with all its columns. In `muster run` and similar commands,",
        "`-o NAME=VALUE` sets a framework option; `-o json`, `yaml` and `wide` remain formats.",
        "",
        "Control and invisible characters in names, files and messages are printed as escapes",
        "(`\\x1b`), so that they cannot act on the terminal. Program output (`muster logs`,",
        "and `muster run` while it follows a run) is printed unchanged.",
        "",
    ]
    return "\n".join([*intro, *_sections(cli, "muster", None, {})]).rstrip() + "\n"


def _sections(
    command: click.Command, name: str, parent: click.Context | None, described: dict[int, str]
) -> Iterator[str]:
    """The sections of a command and of those in it. described: the path of each command that has
    a section, by its identity; a second name of it is only mentioned."""
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        max_content_width=80,
        terminal_width=80,
        **command.context_settings,
    )
    yield f"## {context.command_path}\n"
    if (path := described.setdefault(id(command), context.command_path)) != context.command_path:
        yield f"The same as `{path}`.\n"
        return
    yield f"```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None, "it was listed"
            yield from _sections(found, inner, context, described)


if __name__ == "__main__":
    print(reference_markdown(), end="")  # noqa: T201
