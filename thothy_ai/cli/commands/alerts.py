"""`thothy alertmanager-config`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from thothy_ai.cli.shell import fail, load_settings

app = typer.Typer()

Output = Annotated[
    Path | None, typer.Option(help="Write to this file, which is replaced as a whole, instead of standard output.")
]
NO_RECEIVER = "no receiver is set (THOTHY_ALERT_*): alerts are only shown in Alertmanager"


@app.command("alertmanager-config")
def alertmanager_config(output: Output = None) -> None:
    """Print Alertmanager's configuration, with the receivers that the THOTHY_ALERT_* settings name.

    Example: thothy alertmanager-config --output alertmanager.yml
    """
    from thothy_ai.admin.alert_delivery import alertmanager_config as configured
    from thothy_ai.admin.alert_delivery import receivers

    config = configured(load_settings())
    text = json.dumps(config, indent=2) + "\n"
    if not (kinds := receivers(config)):
        typer.echo(f"thothy: {NO_RECEIVER}", err=True)
    if output is None:
        typer.echo(text, nl=False)
        return
    new = output.with_name(f"{output.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.chmod(0o644)  # Alertmanager may run under another account
        new.replace(output)
    except OSError as error:
        fail(f"{output} cannot be written: {error.strerror}")
    typer.echo(f"{output}: alerts go to {' and '.join(kinds) or 'no receiver'}.")
