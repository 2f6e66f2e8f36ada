"""Both processes of an engine obey THOTHY_LOG_LEVEL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer

OF_THE_PARENT, OF_THE_CORE = "thothy_ai.engine.process.main", "thothy_ai.engine.process.build"


def logged(level: str, folder: Path) -> dict[str, set[str]]:
    """The levels that each logger wrote, from the start of an engine to its end."""
    model = tiny_model("llama", folder)
    make_tokenizer().save_pretrained(model)
    log = folder / "log"
    variables = {"THOTHY_LOG_LEVEL": level, "THOTHY_ENGINE_URL": f"unix://{folder}/s", "THOTHY_HOME": str(folder)}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "thothy_ai.cli", "engine", "--model", str(model), "--device", "cpu"],
            env=os.environ | variables,
            stdout=subprocess.PIPE, stderr=file,
        )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            assert b"ready at" in process.stdout.readline(), log.read_text()
            process.terminate()
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()  # what has failed may run on, and would be waited for
    assert process.returncode == 0, log.read_text()
    found: dict[str, set[str]] = {}
    for line in re.finditer(r"^[\d-]+ [\d:,]+ ([A-Z]+) ([\w.]+): ", log.read_text(), re.MULTILINE):
        found.setdefault(line[2], set()).add(line[1])
    return found


@pytest.mark.usefixtures("clean_environment")
def test_information_is_logged_by_default_level(tmp_path: Path) -> None:
    found = logged("INFO", tmp_path)
    assert found[OF_THE_PARENT] == found[OF_THE_CORE] == {"INFO"}
    assert "DEBUG" not in set().union(*found.values())


@pytest.mark.usefixtures("clean_environment")
def test_warnings_alone_are_logged_if_asked(tmp_path: Path) -> None:
    assert logged("WARNING", tmp_path) == {}
