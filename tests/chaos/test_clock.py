"""A skewed clock applies to everything in its process, changes while that runs, and does not affect waiting."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from thothy_ai.chaos.clock import SkewedClock

CLOCK_STEP = 1.0  # seconds that clocks may differ by: ids count in milliseconds, and the machine's own is corrected
LOOK = """
import sys, time
from datetime import datetime
from uuid_utils.compat import uuid7
for _ in sys.stdin:
    began = time.monotonic()
    time.sleep(0.01)
    print(time.time(), datetime.now().timestamp(), uuid7().int >> 80, time.monotonic() - began, flush=True)
"""


def test_a_running_process_sees_its_clock_jump(tmp_path: Path) -> None:
    clock = SkewedClock(tmp_path)
    assert clock.build()
    with subprocess.Popen(
        [sys.executable, "-c", LOOK], env=clock.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for skew in (0, 3_600, -86_400):
            clock.set(skew)
            before = time.time() + skew
            print(file=process.stdin, flush=True)
            wall, date, uuid_ms, waited = map(float, process.stdout.readline().split())
            after = time.time() + skew
            for seen in (wall, date, uuid_ms / 1000) if skew >= 0 else (wall, date):  # ids never go back
                assert before - CLOCK_STEP <= seen <= after + CLOCK_STEP
            assert 0.005 < waited <= after - before + CLOCK_STEP
        process.stdin.close()
