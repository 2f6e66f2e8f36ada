"""`SkewedClock`: sets the wall clock of one process ahead or back while the process runs.

It compiles and preloads a library of ours, because Python, Rust and C code all read the clock.
"""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

COMPILE_SECONDS = 60


class SkewedClock:
    """The skew, and the environment of a process that gets it. Without a C compiler, clocks cannot be skewed."""

    def __init__(self, folder: Path) -> None:
        self._skew = folder / "skew"
        self._library = folder / "clock.so"
        self.seconds = 0

    def build(self) -> bool:
        """Compile the library; returns whether that was possible."""
        compiler = shutil.which("cc")
        if compiler is None:
            return False
        self.set(0)
        with as_file(files("thothy_ai.chaos") / "clock.c") as source:
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
            built = subprocess.run(command, capture_output=True, check=False, timeout=COMPILE_SECONDS)
        return built.returncode == 0

    def environment(self) -> dict[str, str]:
        """The variables that give a process this clock; empty without the library."""
        if not self._library.exists():
            return {}
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._skew)}

    def set(self, seconds: int) -> None:
        """Set the clock ahead or, if negative, back. The running process sees it at once."""
        self.seconds = seconds
        with self._skew.open("r+b" if self._skew.exists() else "wb") as file:  # not replaced: the process has it mapped
            file.write(seconds.to_bytes(8, "little", signed=True))
