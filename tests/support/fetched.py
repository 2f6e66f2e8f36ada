"""Programs that the scripts of deploy/ fetch."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def fetched(script: str) -> str:
    """Run it and return the path that it prints. One process at a time: two would wait for the same package lists."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with (cache / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = {**os.environ, "PYTHON": sys.executable}
        done = subprocess.run([ROOT / "deploy" / script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
