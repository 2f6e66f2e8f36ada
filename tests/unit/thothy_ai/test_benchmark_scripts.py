"""Every benchmark that is run by hand answers --help before it measures anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_help(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
