"""`pidkeeper completion`: what a shell has to be told to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "pidkeeper"
VARIABLE = "_PIDKEEPER_COMPLETE"
"""The shell asks by it; click answers in place of running a command."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: eval "$(pidkeeper completion bash)"                  in ~/.bashrc
    zsh:  eval "$(pidkeeper completion zsh)"                   in ~/.zshrc
    fish: pidkeeper completion fish > ~/.config/fish/completions/pidkeeper.fish
    """
    script = get_completion_class(shell)
    assert script is not None, f"click completes nothing in {shell}"
    click.echo(script(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
