"""docs/testing.md, followed word for word in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text("utf-8")
FILE = re.compile(r"save (?:it|this) as `(\w+\.py)`:\n+```python\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def test_the_page_s_tests_pass_without_any_server(tmp_path: Path) -> None:
    files = FILE.findall(PAGE)
    assert [name for name, _ in files] == ["newsletter.py", "test_newsletter.py"]
    for name, text in files:
        (tmp_path / name).write_text(text, "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("THOTHY_", "PYTEST"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    [command] = COMMAND.findall(PAGE)
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=tmp_path, env=kept | {"PATH": path}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert sorted(found.name for found in tmp_path.iterdir() if found.suffix == ".py") == sorted(
        name for name, _ in files
    )
