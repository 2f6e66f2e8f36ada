"""A registrar that ends as soon as it is started ends the engine, which no job would be sent to, unless it serves."""

from __future__ import annotations

import subprocess
import sys

from tests.support.patience import PATIENCE

SCRIPT = """
import importlib, threading
registered = importlib.import_module("thothy_ai.worker.registration.registered")  # the package names its function so
from thothy_ai.worker.registration.messages import Registration

registered.MODULE, registered.FIRST_PAUSE, registered.MAX_PAUSE = {module!r}, 0.01, 0.01
registration = Registration("00000000-0000-0000-0000-000000000000", "box", "box", "tiny", "cpu", (), 1, 0.0)
registered.Registrations(registration, {{}}).start()
threading.Event().wait()
"""


SERVING = """
import itertools, os
started, popen = itertools.count(1), registered._popen

def counted(environment):
    if next(started) > 2 * registered.MAX_FAILURES:
        os._exit(0)
    return popen(environment)

registered._popen = counted
registrations = registered.Registrations(registration, {})
registrations.ready("http://127.0.0.1:1")
registrations.start()
threading.Event().wait()
"""


def test_the_engine_ends_with_its_error() -> None:
    command = [sys.executable, "-c", SCRIPT.format(module="thothy_ai.no_such_module")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert "No module named thothy_ai.no_such_module" in done.stderr
    assert done.stderr.splitlines()[-1] == "thothy engine: the registrar ended 5 times in a row, with status 1"


def test_an_engine_that_serves_goes_on() -> None:
    prepared = SCRIPT.format(module="thothy_ai.no_such_module").partition("registered.Registrations(")[0]
    command = [sys.executable, "-c", prepared + SERVING]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode == 0
