"""Where servers that tests start keep their data."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

MEMORY = Path("/dev/shm")
ROOM = 2 * 2**30  # bytes that must be free there: several test processes have servers at once
SUFFIX = "-tests"
SETTLED = 60  # seconds after which a folder is locked by the process that made it, or was left behind


@contextmanager
def server_folder(prefix: str = "thothy-", *, ignore_cleanup_errors: bool = False) -> Iterator[Path]:
    """A temporary folder that Postgres, which may have to run as nobody, can reach; pytest's own are closed to it.

    It is in memory where there is room: a copied database is 600 files, which take a disk ten times as long.
    """
    where = MEMORY if _has_room() else None
    if where:
        _remove_those_of_killed_tests()
    with TemporaryDirectory(SUFFIX, prefix, where, ignore_cleanup_errors=ignore_cleanup_errors) as name:
        Path(name).chmod(0o755)
        with _open(name) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield Path(name)


def _has_room() -> bool:
    """Containers often have little of it, from which nothing may be executed."""
    if not os.access(MEMORY, os.W_OK):
        return False
    return shutil.disk_usage(MEMORY).free > ROOM and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC


def _remove_those_of_killed_tests() -> None:
    """Unlike a disk, memory is missed."""
    for left in MEMORY.glob(f"thothy-*{SUFFIX}"):
        with suppress(OSError), _open(left) as folder:  # BlockingIOError, if its process lives
            if time.time() - os.fstat(folder).st_mtime > SETTLED:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)


@contextmanager
def _open(folder: str | Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
