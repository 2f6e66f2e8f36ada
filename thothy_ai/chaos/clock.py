"""`SkewedClock`: the wall clock of one process, set ahead or back while it runs.

A library of our own, compiled here and preloaded, because leases and time stamps are read by Python, Rust and C alike.
"""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

COMPILE_SECONDS = 60


class SkewedClock:
    """The environment of a process with a skewed clock, and the skew. Without a C compiler, clocks stay right."""

    def __init__(self, folder: Path) -> None:
        self._skew = folder / "skew"
        self._library = folder / "clock.so"
        self.seconds = 0

    def build(self) -> bool:
        """Compile the library; whether that was possible."""
        compiler = shutil.which("cc")
        if compiler is None:
            return False
        self.set(0)
        with as_file(files("thothy_ai.chaos") / "clock.c") as source:
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
            built = subprocess.run(command, capture_output=True, check=False, timeout=COMPILE_SECONDS)
        return built.returncode == 0

    def environment(self) -> dict[str, str]:
        """The variables that give a process this clock; none when there is no library."""
        if not self._library.exists():
            return {}
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._skew)}

    def set(self, seconds: int) -> None:
        """Set the clock ahead, or back when negative, at once in the running process."""
        self.seconds = seconds
        with self._skew.open("r+b" if self._skew.exists() else "wb") as file:  # the same file: it is mapped
            file.write(seconds.to_bytes(8, "little", signed=True))
