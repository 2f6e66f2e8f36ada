"""The command line of a service process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from thothy_ai.embedded.process import service_argv


def test_a_service_is_not_imported_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "thothy_ai.py").write_text("raise SystemExit('the wrong module')")
    done = subprocess.run(service_argv("worker", "--help"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "thothy worker" in done.stdout
