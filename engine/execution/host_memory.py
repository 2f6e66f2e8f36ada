"""The host memory that this process can still use: what the kernel can free, within the limits of its cgroups."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_UNLIMITED = 1 << 60  # no limit: version 1 writes a huge number, version 2 "max"


class HostMemory(NamedTuple):
    """Memory in bytes within one limit."""

    available: int
    total: int


class _Files(NamedTuple):
    """A cgroup version's names for the limit, the usage, and the file pages in it that can be dropped."""

    limit: str
    usage: str
    droppable: str


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")


def host_memory(root: Path = Path("/")) -> HostMemory:
    """The memory of the machine or, if narrower, of a cgroup around this process. `root` contains proc and sys."""
    lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
    kilobytes = {fields[0]: int(fields[1]) for fields in lines}
    limits = [HostMemory(1024 * kilobytes["MemAvailable:"], 1024 * kilobytes["MemTotal:"])]
    for folder, mount, files in _cgroups(root):
        for parent in (each for each in (folder, *folder.parents) if each.is_relative_to(mount)):
            with suppress(OSError, ValueError):  # has no limit, or is not visible from here
                limit, usage = (int((parent / name).read_text()) for name in (files.limit, files.usage))
                stat = dict(line.split() for line in (parent / "memory.stat").read_text().splitlines())
                if limit < _UNLIMITED:
                    limits.append(HostMemory(max(0, limit - usage + int(stat.get(files.droppable, 0))), limit))
    return HostMemory(min(limit.available for limit in limits), min(limit.total for limit in limits))


def return_freed() -> None:
    """Return freed memory to the kernel. glibc's heap would keep it: up to a model's size after a conversion of its
    weights.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries don't have it
    if trim is not None:
        trim(0)


def _cgroups(root: Path) -> Iterator[tuple[Path, Path, _Files]]:
    """(this process's cgroup, its hierarchy's root, its files); in a container, cgroup and root are often the same."""
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
