"""One home of the embedded stack, and the commands that are run in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.server_folder import server_folder

THOTHY = [sys.executable, "-m", "thothy_ai.cli"]


class Home:
    """One home, and commands that are run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")}
        self.environment = {**kept, "THOTHY_HOME": str(folder), "OMP_NUM_THREADS": "1"}
        for port in ("THOTHY_METRICS_PORT", "THOTHY_HTTP_PORT"):
            self.environment[port] = "0"  # two stacks that start at once might choose the same

    def run(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*THOTHY, *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=timeout
        )

    def up(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*THOTHY, "up", *options], env=self.environment, stdout=subprocess.PIPE, text=True)


@contextmanager
def fresh_home() -> Iterator[Home]:
    """An empty home that is gone afterwards."""
    with server_folder("thothy-home-") as folder:
        yield Home(folder)


def processes_of(home: Home) -> list[str]:
    """Command lines of the processes that were given this home."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(home.folder).encode() in (process / "environ").read_bytes() + (process / "cmdline").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
