"""Where the engine of an embedded stack listens.

A Unix socket's path has at most 107 bytes. If the home's path is too long, the socket is in a private folder elsewhere.
Only if no such folder can be made does the engine listen on a TCP port. Every account of the machine can reach that
port, so the engine requires a token there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from thothy_ai.embedded.process import free_port
from thothy_ai.foreign import DeclaredEngine

log = logging.getLogger(__name__)

MAX_SOCKET_PATH = 107  # bytes; sun_path holds 108, the last of them NUL
FALLBACK = "/tmp"  # noqa: S108 - only private folders are made in it


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The engine's address and the token that it requires, None on a Unix socket. `declared` belongs to a server over
    HTTP.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    declared: DeclaredEngine | None = None

    @property
    def secret(self) -> SecretStr | None:
        """The token, as settings hold it."""
        return SecretStr(self.token) if self.token else None


def engine_endpoint(home: Path, suffix: str = "") -> Endpoint:
    """An endpoint for an engine of the stack in `home`. Logs the place and the reason if it is not in the home itself.

    `suffix` distinguishes the sockets of several engines.
    """
    path = home / f"engine{suffix}.sock"
    if _fits(path):
        return Endpoint(f"unix://{path}")
    for folder in _folders(home):
        if not _fits(folder / path.name):
            continue
        with suppress(OSError):  # the folder exists, or cannot be made
            folder.mkdir(mode=0o700)
        if _is_private(folder):
            log.info("the path of %s is too long for a socket: the engine listens at %s", path, folder / path.name)
            return Endpoint(f"unix://{folder / path.name}")
    endpoint = Endpoint(f"tcp://127.0.0.1:{free_port()}", secrets.token_urlsafe(32))
    log.warning(
        "the path of %s is longer than the %d bytes that a socket's may have, and no private folder with a shorter one "
        "can be made: the engine listens on a TCP port, %s, and requires a token (THOTHY_ENGINE_TOKEN) of its clients",
        path,
        MAX_SOCKET_PATH,
        endpoint.url,
    )
    return endpoint


def remove_socket(home: Path) -> None:
    """Remove the socket files and their folder, wherever `engine_endpoint` placed them."""
    _unlink_sockets(home)
    for folder in _folders(home):
        if _is_private(folder):
            _unlink_sockets(folder)
            with suppress(OSError):  # the folder holds other files
                folder.rmdir()


def _unlink_sockets(folder: Path) -> None:
    for path in folder.glob("engine*.sock"):
        path.unlink(missing_ok=True)


def _folders(home: Path) -> Iterator[Path]:
    """Folders for the socket, by preference. Their names derive from the home, so that other commands find them."""
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for parent in (runtime, tempfile.gettempdir(), FALLBACK):
        if parent and Path(parent).is_absolute():
            yield Path(parent) / f"thothy-{os.geteuid()}-{digest}"


def _is_private(folder: Path) -> bool:
    """Whether this is a folder, not a link, that belongs to this account and that no other account can enter."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_SOCKET_PATH
