"""`muster completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from muster.cli.terminal import echo


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash: muster completion bash > ~/.local/share/bash-completion/completions/muster
    zsh:  muster completion zsh > ~/.zfunc/_muster
    fish: muster completion fish > ~/.config/fish/completions/muster.fish
    """
    from muster.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None, "click knows every choice"
    echo(kind(cli, {}, "muster", "_MUSTER_COMPLETE").source())
