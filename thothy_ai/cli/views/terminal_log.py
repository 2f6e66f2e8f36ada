"""Logs a command's messages to a terminal: sentences on standard error, wrapped between words."""

from __future__ import annotations

import logging
import sys

import typer

from thothy_ai.cli.views.tables import console, printable, wrapped


class TerminalLog(logging.Handler):
    """Writes each message, without its time and its logger."""

    def emit(self, record: logging.LogRecord) -> None:
        for line in printable(f"thothy: {self.format(record)}").splitlines():
            typer.echo("\n".join(wrapped(line, console(stderr=True).width)), err=True)


def log_to_terminal() -> None:
    """Use this handler in this process if standard error is a terminal; otherwise nothing changes."""
    if sys.stderr.isatty():
        logging.getLogger().handlers[:] = [TerminalLog()]
