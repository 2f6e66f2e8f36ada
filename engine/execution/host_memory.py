"""How much memory this process may still take on its machine: what the kernel can free, within its cgroups' limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_UNLIMITED = 1 << 60  # version 1 writes a huge number for no limit, version 2 "max"


class HostMemory(NamedTuple):
    """Bytes."""

    available: int
    total: int


class _Files(NamedTuple):
    """The names that a cgroup version has for a limit, the usage, and the file pages in it that can be dropped."""

    limit: str
    usage: str
    droppable: str


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")


def host_memory(root: Path = Path("/")) -> HostMemory:
    """The machine's memory, or that of the narrowest cgroup around this process. `root` holds proc and sys."""
    machine = _machine(root)
    rooms = [machine, *_cgroups(root)]
    return HostMemory(min(room.available for room in rooms), min(room.total for room in rooms))


def _machine(root: Path) -> HostMemory:
    lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
    kilobytes = {fields[0]: int(fields[1]) for fields in lines}
    return HostMemory(1024 * kilobytes["MemAvailable:"], 1024 * kilobytes["MemTotal:"])


def _cgroups(root: Path) -> Iterator[HostMemory]:
    """The limited ones that this process is in, with their parents."""
    for folder, mount, files in _mounted(root):
        for parent in (folder, *folder.parents):
            if parent.is_relative_to(mount) and (room := _room(parent, files)) is not None:
                yield room


def _mounted(root: Path) -> Iterator[tuple[Path, Path, _Files]]:
    """(this process's folder, the folder of the hierarchy, its files); in a container the two are often the same."""
    mounts = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield mounts / path.lstrip("/"), mounts, _VERSION_2
        elif "memory" in controllers.split(","):
            yield mounts / "memory" / path.lstrip("/"), mounts / "memory", _VERSION_1


def _room(folder: Path, files: _Files) -> HostMemory | None:
    """What a cgroup leaves; None if it has no limit, or is not visible from here."""
    try:
        limit = int((folder / files.limit).read_text())
        if limit >= _UNLIMITED:
            return None
        usage = int((folder / files.usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return HostMemory(max(0, limit - usage + int(stat.get(files.droppable, 0))), limit)
