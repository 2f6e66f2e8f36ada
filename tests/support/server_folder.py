"""Where servers that tests start keep their data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

MEMORY = Path("/dev/shm")
ROOM = 2 * 2**30  # bytes that must be free there: several test processes have servers at once


@contextmanager
def server_folder(prefix: str = "thothy-test-", *, ignore_cleanup_errors: bool = False) -> Iterator[Path]:
    """A temporary folder that Postgres, which may have to run as nobody, can reach; pytest's own are closed to it.

    It is in memory where there is room: a copied database is 600 files, which take a disk ten times as long.
    """
    where = MEMORY if _has_room() else None
    with TemporaryDirectory(prefix=prefix, dir=where, ignore_cleanup_errors=ignore_cleanup_errors) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _has_room() -> bool:
    """Containers often have little of it, from which nothing may be executed."""
    if not os.access(MEMORY, os.W_OK):
        return False
    return shutil.disk_usage(MEMORY).free > ROOM and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
