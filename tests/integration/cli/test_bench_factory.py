"""`thothy bench factory`: the same jobs through an engine at its socket and through one behind HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.door import served_door
from tests.support.served_engine import served
from thothy_ai.cli import app
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.settings import Settings


def test_engines_are_compared_by_the_same_jobs(tmp_path: Path, clean_environment: None) -> None:
    engine, url = NullEngine(), f"unix://{tmp_path}/engine.sock"
    with served(engine, url), served_door(Settings(engine_url=url)) as address:
        options = ["--jobs", "8", "--warm-up", "0", "--gpus", "1", "--gpus", "2", "--price", "3", "--json"]
        ran = CliRunner().invoke(app, ["bench", "factory", "--engine", url, "--engine", f"{address}/v1", *options])
    engine.stop()
    assert ran.exit_code == 0, ran.output
    ours, far = json.loads(ran.stdout)
    assert (ours["jobs"], ours["open"], ours["gpus"], ours["declared"]) == (8, 0, 1, False)
    assert (far["jobs"], far["open"], far["gpus"], far["declared"]) == (8, 0, 2, True)
    for run in (ours, far):
        hours = run["drain_seconds"] * run["gpus"] / 3600
        assert run["jobs_per_gpu_hour"] == pytest.approx(8 / hours)
        total = run["report"]["total"]
        assert run["accepted_per_gpu_hour"] == pytest.approx(total["jobs_with_artifact"] / hours)
        assert total["jobs_with_artifact"] + total["jobs_to_edit"] == total["jobs"]["succeeded"]
        assert run["failure_rate"] == 1 - total["jobs"]["succeeded"] / 8
    assert ours["report"]["total"]["prompt_tokens"] == far["report"]["total"]["prompt_tokens"]


def test_values_belong_to_all_engines_or_to_each() -> None:
    engines = ["--engine", "unix:///a", "--engine", "unix:///b", "--engine", "unix:///c"]
    ran = CliRunner().invoke(app, ["bench", "factory", *engines, "--gpus", "1", "--gpus", "2"])
    assert ran.exit_code == 2
    assert "--gpus is given 2 times" in ran.stderr
