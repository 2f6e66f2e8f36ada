"""Starts an engine's child processes, each with a channel to its parent."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def start_child(module: str, *files: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Run a module with its end of a socket pair as its argument; returns the process and our end.

    The open `files` are its further arguments. The signals that end an engine stay blocked in the child, since this
    process handles them.
    """
    ours, theirs = socket.socketpair()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the process is started with them blocked
    try:
        with theirs:
            passed = [theirs.fileno(), *files]
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *map(str, passed)],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},  # imports as here
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child, ours


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent is killed, even in the middle of a computation.

    On other systems than Linux this process only sees the channel end, once it runs Python code again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_at_once(code: int) -> NoReturn:
    """Skip the interpreter's teardown: torch aborts the process when it frees memory of a failed device."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
