"""`thothy engine --null` as a process with a database, and the registrar beside it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from thothy_ai.settings import PREFIX, Settings

REGISTRAR = b"thothy_ai.worker.registration.registrar"


@dataclass
class EngineProcess:
    """One engine; its registrar is found by the home that both were given."""

    popen: subprocess.Popen[str]
    home: Path
    url: str

    def registrars(self) -> list[int]:
        """Process ids of the registrars of this home."""
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if self._is_registrar(folder)]

    def kill_registrar(self) -> int:
        [pid] = self.registrars()
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self) -> int:
        self.popen.terminate()
        return self.popen.wait(PATIENCE)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(PATIENCE)

    def _is_registrar(self, folder: Path) -> bool:
        home = str(self.home).encode()
        try:
            return REGISTRAR in (folder / "cmdline").read_bytes() and home in (folder / "environ").read_bytes()
        except OSError:
            return False


@contextmanager
def engine_process(settings: Settings, *arguments: str, number: int = 0, **more: str) -> Iterator[EngineProcess]:
    """A null engine that registers itself; killed, if it still lives, when the block is left."""
    url = f"unix://{settings.home}/e{number}.sock"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    given = {f"{PREFIX}{name.upper()}": value for name, value in more.items()}
    popen = subprocess.Popen(
        [*THOTHY, "engine", "--null", "--url", url, *arguments],
        env={**kept, **settings.environment(), **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with popen:
        try:
            yield EngineProcess(popen, settings.home, url)
        finally:
            popen.kill()
