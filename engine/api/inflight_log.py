"""Which requests an engine has begun to work on, in a file that outlives its processes.

    bytes 0-15   the file's magic, or a mark that too many requests were admitted at once: the rest is then void
    bytes 16-31  the engine session's UUID
    then slots of 16 bytes: the digest of a request's id, or zeros

An engine that dies suddenly cannot say which requests may have killed it. Its processes therefore write each request
into a shared mapping before they begin it, and remove it after its end. The kernel keeps the file's pages when the
processes die, and a worker, which opened the file when it connected, reads them afterwards. A write copies 16 bytes: it
needs no system call, and no message can be lost on its way.

The frontend's input thread, each thread that compiles grammars and the core's thread have separate slots, so that no
lock is needed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

_MAGIC = b"thothy admitted1"
_OVERFLOWN = b"thothy admitted*"
_SLOT = 16  # bytes
_HEADER = 2 * _SLOT
_FREE = bytes(_SLOT)
_OWNER_ONLY = 0o600
SUFFIX = ".admitted"


class Slots(NamedTuple):
    """The slots of one thread, by number."""

    first: int
    slots: int


TEXT: Final = Slots(0, 64)  # prompts tokenized at once, at most
GRAMMARS: Final = tuple(Slots(64 + thread, 1) for thread in range(4))  # one per compiling thread
CORE: Final = Slots(68, 4028)  # running and preempted sequences: more than any engine has rows
_SIZE = _HEADER + _SLOT * (CORE.first + CORE.slots)

Buffer = mmap.mmap | bytearray


class Admissions:
    """Records requests in the slots of one thread, which alone uses this object. Without a file, nobody reads it."""

    def __init__(self, part: Slots, buffer: Buffer | None = None) -> None:
        self._buffer = bytearray(_SIZE) if buffer is None else buffer
        self._free = list(range(part.first + part.slots - 1, part.first - 1, -1))
        self._slots: dict[str, int] = {}

    def enter(self, core_id: str) -> None:
        """Record that the engine is about to begin this request; no effect if it has begun already."""
        if core_id in self._slots:
            return
        if not self._free:
            self._buffer[:_SLOT] = _OVERFLOWN  # the file no longer tells which requests have begun
            return
        slot = self._slots[core_id] = self._free.pop()
        self._write(slot, _digest(client_id(core_id)))

    def leave(self, core_id: str) -> None:
        """Record that this request has ended; no effect if it never began."""
        if (slot := self._slots.pop(core_id, None)) is not None:
            self._write(slot, _FREE)
            self._free.append(slot)

    @contextlib.contextmanager
    def entered(self, core_id: str) -> Iterator[None]:
        """Keep the request entered while the block runs."""
        self.enter(core_id)
        try:
            yield
        finally:
            self.leave(core_id)

    def _write(self, slot: int, value: bytes) -> None:
        start = _HEADER + slot * _SLOT
        self._buffer[start : start + _SLOT] = value


class AdmissionFile:
    """An open admission file, for writers and readers."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer

    @classmethod
    def create(cls, path: Path, session_id: str) -> AdmissionFile:
        """Create the file, replacing an earlier engine's. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _OWNER_ONLY)
        try:
            os.ftruncate(descriptor, _SIZE)
            buffer = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        buffer[:_HEADER] = _MAGIC + UUID(session_id).bytes
        new.replace(path)
        return cls(buffer)

    @classmethod
    def open(cls, path: Path, session_id: str, *, writes: bool = False) -> AdmissionFile | None:
        """Open this session's file; None if it is missing or belongs to another session."""
        try:
            descriptor = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            buffer = mmap.mmap(descriptor, _SIZE, access=mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ)
        except (OSError, ValueError):  # too short
            return None
        finally:
            os.close(descriptor)
        known = buffer[:_SLOT] in {_MAGIC, _OVERFLOWN} and buffer[_SLOT:_HEADER] == UUID(session_id).bytes
        return cls(buffer) if known else None

    @classmethod
    def remove(cls, path: Path | None, session_id: str) -> None:
        """Remove this session's file, unless another engine has replaced it."""
        if path is not None and cls.open(path, session_id) is not None:
            path.unlink(missing_ok=True)

    def writable(self, part: Slots) -> Admissions:
        """The slots of the thread that owns this part; the file must be open for writing."""
        return Admissions(part, self._buffer)

    def begun(self, core_ids: Iterable[str]) -> tuple[str, ...]:
        """The requests that have, or may have, begun and not ended."""
        if self._buffer[:_SLOT] != _MAGIC:  # too many were admitted to tell
            return tuple(core_ids)
        slots = self._buffer[_HEADER:]
        admitted = {slots[start : start + _SLOT] for start in range(0, len(slots), _SLOT)}
        return tuple(each for each in core_ids if _digest(client_id(each)) in admitted)


def admissions_in(file: AdmissionFile | None, part: Slots) -> Admissions:
    """One thread's slots in this file; without a file, slots that nobody reads."""
    return Admissions(part) if file is None else file.writable(part)


def client_id(core_id: str) -> str:
    """The client's own id of a request: without the connection's number in front and the candidate's behind."""
    number, dot, rest = core_id.partition(".")
    return (rest if dot and number.isdigit() else core_id).partition("\0")[0]


def _digest(id_: str) -> bytes:
    return blake2b(id_.encode(errors="surrogatepass"), digest_size=_SLOT).digest()
