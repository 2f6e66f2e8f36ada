"""`thothy up` as an operator uses it: start, look, enqueue, drain, stop; nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = (
    "Three makers of clay crocks in Lyon say that home fermentation has become a habit. Orders doubled within a year, "
    "and most come from people under thirty. Workshops on kimchi and sauerkraut are booked out until spring. "
    "The makers now lend crocks to schools, and publish recipes that need nothing but salt, water and patience."
)
THOTHY = [sys.executable, "-m", "thothy_ai.cli"]


class Home:
    """One home, and commands typed in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")}
        self.environment = {**kept, "THOTHY_HOME": str(folder), "OMP_NUM_THREADS": "2"}

    def run(self, *arguments: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*THOTHY, *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=timeout
        )

    def up(self) -> subprocess.Popen[str]:
        return subprocess.Popen([*THOTHY, "up"], env=self.environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="thothy-up-") as folder:
        Path(folder).chmod(0o755)
        yield Home(Path(folder))


def processes_of(home: Home) -> list[str]:
    """Command lines of the processes that were given this home."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(home.folder).encode() in (process / "environ").read_bytes() + (process / "cmdline").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_up_until_ctrl_c(home: Home) -> None:
    stack = home.up()
    try:
        assert stack.stdout is not None
        said = []
        while "Ctrl-C" not in (line := stack.stdout.readline()):
            assert line, f"it ended: {said} {[log.read_text() for log in home.folder.glob('logs/*')]}"
            said.append(line)
        assert "Ready after" in "".join(said)

        examined = home.run("doctor", "--json")
        assert examined.returncode == 0, examined.stdout
        enqueued = home.run("enqueue", "trend_summary", "--source", SOURCE, "--audience", "shop owners", "--json")
        job_id = json.loads(enqueued.stdout)["id"]
        drained = home.run("drain", "--timeout", "2m", "--json")
        assert drained.returncode == 0, drained.stderr
        report = json.loads(drained.stdout)
        assert report["total"]["output_tokens"] > 0
        assert report["total"]["jobs_per_compute_hour"] is not None
        assert home.run("artifacts", "show", job_id).returncode == 0
    finally:
        stack.send_signal(signal.SIGINT)
        rest, _ = stack.communicate(timeout=90)
    assert (stack.returncode, rest.splitlines()[-1]) == (0, "Stopped.")
    assert processes_of(home) == []
    assert not (home.folder / "stack.env").exists()
    assert "no stack runs in" in home.run("jobs", "list").stderr


def test_up_with_a_model_that_is_not_there(home: Home) -> None:
    done = home.run("up", "--model", "/no/such/model")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("thothy: ")
    assert "/no/such/model" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert processes_of(home) == []
