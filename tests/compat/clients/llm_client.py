"""Simon Willison's `llm`, configured as its documentation says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL, URL = os.environ["COMPAT_MODEL"], os.environ["OPENAI_BASE_URL"]


@pytest.fixture
def llm(tmp_path: Path):
    fields = {"model_id": "ours", "model_name": MODEL, "api_base": URL, "supports_schema": "true"}
    lines = [f"{name}: {value}" for name, value in fields.items()]
    (tmp_path / "extra-openai-models.yaml").write_text("- " + "\n  ".join(lines) + "\n")

    def run(*arguments: str) -> str:
        command = (sys.executable, "-m", "llm", *arguments)
        environment = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt(llm, stream: bool) -> None:
    assert llm("-m", "ours", "-o", "max_tokens", "20", *([] if stream else ["--no-stream"]), "Say hello.").strip()


def test_a_schema(llm) -> None:
    options = ("-o", "max_tokens", "200", "-o", "temperature", "0")
    answer = llm("-m", "ours", *options, "--schema", "name, age int", "A dog.")
    assert json.loads(answer).keys() >= {"name", "age"}  # llm does not forbid others
