"""`thothy up` and `thothy demo`: the embedded stack."""

from __future__ import annotations

import typer

app = typer.Typer()
