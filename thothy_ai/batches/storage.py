"""`FileStore`: stores the contents of files in their rows, and larger ones in a folder.

Each schema has its own subfolder, so installations and other programs can share the folder.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Container
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, cast
from uuid import UUID

from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

ORPHANED_SECONDS = 3600.0  # by then, a file in the folder has its row or never gets one
OURS = re.compile(r"[0-9a-f]{32}(?:\.part)?")  # names of the files written here


class FileStore:
    """Owns the folder; rows are written by its users."""

    def __init__(self, settings: Settings) -> None:
        self._folder = (settings.files_folder or settings.home / "files") / settings.database_schema
        self._limit = settings.files_in_database

    def spool(self) -> BinaryIO:
        """A temporary file for writing, held in memory while it is small."""
        return cast("BinaryIO", tempfile.SpooledTemporaryFile(max_size=min(self._limit, 2**20)))

    def place(self, file_id: UUID, content: BinaryIO, size: int) -> bytes | None:
        """The content for this file's row; None if it was moved to the folder. Raises `OSError`."""
        content.seek(0)
        if size <= self._limit:
            return content.read()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.path(file_id).with_suffix(".part")
        with part.open("wb") as written:
            shutil.copyfileobj(content, written, 2**20)
            written.flush()
            os.fsync(written.fileno())
        part.replace(self.path(file_id))
        return None

    def open(self, file_id: UUID, content: bytes | None) -> BinaryIO:
        """Open a file, given the content in its row. Raises `OSError` if it should be in the folder and is not."""
        return io.BytesIO(content) if content is not None else self.path(file_id).open("rb")

    def path(self, file_id: UUID) -> Path:
        """The file's path in the folder, if it is stored there."""
        return self._folder / file_id.hex

    def sweep(self, kept: Container[str]) -> None:
        """Remove all files from the folder except these, given by their ids in hexadecimal."""
        try:
            paths = [path for path in self._folder.iterdir() if OURS.fullmatch(path.name) and path.name not in kept]
        except FileNotFoundError:  # no file was ever placed there
            return
        except OSError as error:
            logger.warning("files that nobody needs cannot be removed: %s", error)
            return
        for path in paths:
            try:
                found = path.lstat()
                if S_ISREG(found.st_mode) and time.time() - found.st_mtime > ORPHANED_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning("a file that nobody needs cannot be removed: %s", error)
