"""The engine of a command that sends requests: the running one, or one that is started for the command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.cli.shell import find_model

if TYPE_CHECKING:
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.settings import Settings


@contextmanager
def engine_for(
    settings: Settings, model: Path | None, rows: int = 8, verifier: Path | None = None
) -> Iterator[Endpoint]:
    """The endpoint of the running engine. If none is configured, or a model or verifier is given, an engine is started
    for the block and stopped.

    `rows` is the maximum number of requests that an engine started here runs at once.
    """
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.embedded.engine import temporary_engine
    from thothy_ai.foreign import declared_by

    if model is None and verifier is None and settings.engine_url is not None:
        yield Endpoint(settings.engine_url, settings.reveal_engine_token(), declared_by(settings))
        return
    path = find_model(settings, model)
    why = "No engine is running: s" if model is None and verifier is None else "S"
    typer.echo(f"{why}tarting one with {path.name} …", err=True)
    began = time.monotonic()
    with temporary_engine(settings, path, rows, verifier) as endpoint:
        typer.echo(f"Ready after {spell(time.monotonic() - began)}; it will be stopped afterwards.", err=True)
        yield endpoint
