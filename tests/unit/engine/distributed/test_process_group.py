"""What ranks find each other by is this machine's alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.support.two_ranks import two_ranks

LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
LISTENING = "0A"  # <net/tcp_states.h>


def listeners(pid: int) -> set[str]:
    """The addresses, as the kernel writes them, at which a process waits for TCP connections."""
    files = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files.add(str(file.readlink()))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        address.partition(":")[0]
        for _, address, _, state, *_, inode in (line[:10] for line in lines)
        if state == LISTENING and f"socket:[{inode}]" in files
    }


def test_ranks_listen_on_the_loopback_interface_only() -> None:
    with two_ranks() as group:
        assert listeners(os.getpid())
        for pid in (os.getpid(), group._others[0]._process.pid):
            assert listeners(pid) <= LOOPBACK
