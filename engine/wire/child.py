"""Processes of an engine's own, each with a channel to the one that started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def start_child(module: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Run a module with its end of a socket pair as its argument; returns the process and our end.

    The signals that end an engine stay blocked there: they are this process's to handle.
    """
    ours, theirs = socket.socketpair()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the process is started with them blocked
    try:
        with theirs:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},  # imports as here
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child, ours
