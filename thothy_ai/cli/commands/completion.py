"""`thothy completion`: the script that makes a shell complete commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from thothy_ai.cli.shell import COMPLETE_VARIABLE, PROGRAM

app = typer.Typer()


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)],
) -> None:
    """Print the script that completes commands, options, kinds, states, reasons and job ids.

    Bash: put `eval "$(thothy completion bash)"` into ~/.bashrc.

    Zsh: put `eval "$(thothy completion zsh)"` into ~/.zshrc, after compinit.

    Fish: `thothy completion fish > ~/.config/fish/completions/thothy.fish`.

    Example: thothy completion bash
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # public, though not marked so

    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value))
