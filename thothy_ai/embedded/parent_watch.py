"""Runs a program that dies with its parent: `python parent_watch.py PARENT SIGNAL UID GID PROGRAM ARGS...`.

This is a separate script on the standard library alone: between fork and exec, a process with threads must not run
Python, and the account that the program runs as may be unable to read this package. UID -1 keeps the account.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, death_signal: int, uid: int, gid: int, program: list[str]) -> None:
    """Become `program`, or exit with one line that says why that failed."""
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":  # after setuid, which clears the death signal
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the death signal was set
        sys.exit("the parent is gone")
    try:
        os.execv(program[0], program)  # noqa: S606 - deliberately without a shell
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    PARENT, SIGNAL, UID, GID = map(int, sys.argv[1:5])
    main(PARENT, SIGNAL, UID, GID, sys.argv[5:])
