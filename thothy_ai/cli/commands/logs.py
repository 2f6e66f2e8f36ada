"""`thothy logs`: the logs of the embedded stack, even after it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import INTERRUPTED, fail, load_settings, usage
from thothy_ai.cli.views.tables import printable

if TYPE_CHECKING:
    from thothy_ai.embedded.logs import LogLine

app = typer.Typer()

POLL_SECONDS = 0.25
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "white")


@app.command()
def logs(
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", show_default=False, help="Default: all services.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Number of last lines to show of each service.")
    ] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then show lines as they are added.")] = False,
) -> None:
    """Show the logs of the embedded stack, ordered by time: those of a running stack, or of the last one.

    Services: engine, worker, dispatcher, reaper, postgres, valkey. With several engines, `engine` and `worker` stand
    for all of them, and `engine-1` for one.

    Example: thothy logs worker engine --follow
    """
    from thothy_ai.embedded.logs import ROLES, Log, merged, role_of, services_of

    home = load_settings().home.absolute()
    if unknown := [service for service in services or () if role_of(service) not in ROLES]:
        usage(f"unknown service {unknown[0]!r}; available: {', '.join(ROLES)}")
    wanted = services_of(home, services or ())
    if not wanted:
        of = f" of {', '.join(services)}" if services else ""
        fail(f"no logs{of} in {home / 'logs'}; `thothy up` writes them, and THOTHY_HOME names another home")
    try:
        read = [Log(home, service) for service in wanted]
        _print(merged(log.last(lines) for log in read))
        while follow:
            _print(merged(log.added() for log in read))
            time.sleep(POLL_SECONDS)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"cannot read {error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _print(lines: Iterable[LogLine]) -> None:
    from thothy_ai.embedded.logs import ROLES, role_of

    width = max(map(len, ROLES))
    for line in lines:
        label = typer.style(f"{line.service:<{width}} |", fg=COLOURS[ROLES.index(role_of(line.service))])
        typer.echo(f"{label} {printable(line.text)}")
