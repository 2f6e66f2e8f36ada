"""`doctor` finds a THOTHY_* variable that is not a setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from thothy_ai.admin.doctor import Level, examine
from thothy_ai.settings import Settings


@pytest.mark.parametrize(
    ("name", "says", "fix"),
    [
        (
            "THOTHY_WORKER_INFLIGHT",
            "THOTHY_WORKER_INFLIGHT is not a setting; did you mean THOTHY_WORKER_IN_FLIGHT?",
            "rename it to THOTHY_WORKER_IN_FLIGHT, or unset it",
        ),
        ("THOTHY_COLOUR", "THOTHY_COLOUR is not a setting, and has no effect", "unset it"),
    ],
)
def test_a_variable_that_is_no_setting_is_a_warning(
    clean_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, says: str, fix: str
) -> None:
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    monkeypatch.setenv(name, "1")
    found = [finding for finding in examine(Settings.load, ["settings"]) if finding.level is Level.WARNING]
    assert [(finding.says, finding.fix) for finding in found] == [(says, fix)]
