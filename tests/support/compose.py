"""compose.yaml as the docker-compose binary reads it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.fetched import fetched

ROOT = Path(__file__).parents[2]
CPU = ("compose.yaml",)
GPU = ("compose.yaml", "deploy/compose.gpu.yaml")


def compose(
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    files: Sequence[str] = CPU,
    profile: str | None = None,
    env_file: str = "/dev/null",
) -> subprocess.CompletedProcess[str]:
    """Run it. The tests fail, with the reason, if it cannot be obtained."""
    named = [part for file in files for part in ("-f", file)]
    chosen = ["--profile", profile] if profile else []
    return subprocess.run(
        [fetched("fetch-compose"), *named, *chosen, "--env-file", env_file, *arguments],
        cwd=ROOT, env={"PATH": os.environ["PATH"], **(variables or {})}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def configuration(**chosen: Any) -> dict[str, Any]:
    """The whole configuration, resolved."""
    done = compose("config", "--format", "json", **chosen)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def environment_of(service: Mapping[str, Any]) -> dict[str, str]:
    """What a container would see: a variable without a value is not set."""
    return {name: value for name, value in service["environment"].items() if value is not None}
