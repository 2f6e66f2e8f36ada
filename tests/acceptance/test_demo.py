"""The newcomer's first command, in an empty home: a mixed queue drains, and nothing is left behind."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.home import fresh_home, processes_of
from thothy_ai.demo.plan import demo_jobs


@pytest.mark.timeout(1800)
def test_the_demo_drains_its_queue_and_leaves_nothing_running() -> None:
    with fresh_home() as home:
        done = home.run("demo", timeout=1500)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"Enqueued {len(demo_jobs())} jobs" in done.stdout
        assert len(demo_jobs()) >= 40
        report = " ".join(done.stdout.split())
        assert "jobs per compute-hour" in report
        assert "jobs still open 0 0 0 0 0" in report.replace("│", "")
        assert re.search(r"rejected: wrong_language( -)* \d+", report)
        found = re.search(r"^Artifacts: (.+)$", done.stdout, re.MULTILINE)
        assert found is not None
        artifacts = [json.loads(path.read_text()) for path in sorted((home.folder / found[1]).glob("*.json"))]
        assert {artifact["kind"] for artifact in artifacts} >= {"hook", "report_section", "trend_summary"}
        assert {artifact["verdict"] for artifact in artifacts} == {"accepted"}
        assert processes_of(home) == []
