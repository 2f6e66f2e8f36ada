"""A registrar that ends as soon as it is started ends the engine, which no job would be sent to."""

from __future__ import annotations

import subprocess
import sys

PATIENCE = 60.0
SCRIPT = """
import importlib, threading
registered = importlib.import_module("thothy_ai.worker.registration.registered")  # the package names its function so
from thothy_ai.worker.registration.messages import Registration

registered.MODULE, registered.FIRST_PAUSE, registered.MAX_PAUSE = {module!r}, 0.01, 0.01
registration = Registration("00000000-0000-0000-0000-000000000000", "box", "box", "tiny", "cpu", (), 1, 0.0)
registered.Registrations(registration, {{}}).start()
threading.Event().wait()
"""


def test_the_engine_ends_with_its_error() -> None:
    command = [sys.executable, "-c", SCRIPT.format(module="thothy_ai.no_such_module")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert "No module named thothy_ai.no_such_module" in done.stderr
    assert done.stderr.splitlines()[-1] == "thothy engine: the registrar ended 5 times in a row, with status 1"
