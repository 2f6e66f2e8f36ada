"""The files of a stack's home: its lock, and `stack.env`, in which other commands find the stack's addresses."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from thothy_ai.embedded.cause import describe_os_error
from thothy_ai.embedded.endpoint import remove_socket
from thothy_ai.errors import ConfigError, ServiceStartError, StackRunningError, ThothyError
from thothy_ai.settings import PREFIX, STACK_ENV, STACK_LOCK, Settings

SHARED_KEYS = (
    "database_url", "redis_url", "engine_url", "engine_token", "model", "kinds", "webhook_secrets",
    "http_host", "http_port", "http_tls_certificate",
)  # fmt: skip


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the home's lock, and remove files that a killed stack left behind. The lock ends with the process.

    Raises `StackRunningError`, OSError.
    """
    descriptor = os.open(home / STACK_LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "a+", encoding="ascii") as lock:
        os.fchmod(descriptor, 0o600)  # an account that can open the file can hold the lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise StackRunningError(f"a stack already runs in {home} (process {lock.read().strip()})") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        _remove_leftovers(home)
        try:
            yield
        finally:
            _remove_leftovers(home)
            lock.truncate(0)


@contextlib.contextmanager
def announced(settings: Settings) -> Iterator[None]:
    """Publish the addresses for other commands in this home. Raises OSError."""
    wanted = {f"{PREFIX}{name.upper()}" for name in SHARED_KEYS}
    quoted = str.maketrans({"\\": "\\\\", "'": "\\'"})
    lines = [
        f"{name}='{value.translate(quoted)}'\n"
        for name, value in settings.environment().items()
        if name in wanted and value != "0"  # port 0: this stack serves no door
    ]
    file = settings.home / STACK_ENV
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.writelines(lines)
    fresh.rename(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def unusable(home: Path, error: OSError) -> ThothyError:
    """The typed error for a home that the stack cannot use because of `error`."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        file = next((path for path in (home, *home.parents) if path.is_file()), home)
        return ConfigError(f"the home {home} cannot be used: {file} is a file; set THOTHY_HOME to a folder")
    return ServiceStartError(f"the home {home} cannot be used: {describe_os_error(error)}")


def _remove_leftovers(home: Path) -> None:
    (home / STACK_ENV).unlink(missing_ok=True)
    remove_socket(home)
