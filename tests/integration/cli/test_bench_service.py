"""`thothy bench service` on a tiny shape: real Postgres, Valkey, worker and engine process."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tests.support.small_tokenizer import write_tokenizer
from thothy_ai.cli import app


def numbers(value: str) -> list[float]:
    return [float(part.split()[0].rstrip("%").replace(",", "")) for part in value.split("; ")]


def test_the_same_jobs_both_ways(tmp_path: Path, clean_environment: None) -> None:
    tokenizer = write_tokenizer(tmp_path)
    arguments = ["bench", "service", "--shape", "tiny", "--device", "cpu", "--jobs", "4", "--kind", "hook", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--tokenizer", str(tokenizer), "--kv-tokens", "16384", "--seed", "3"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["title"] == "Service: tiny (random weights) float32; 4 jobs of hook"
    assert report["where"] == "cpu, one worker with up to 1,024 jobs in flight"
    figures = dict(report["figures"])
    first, before, service, after = numbers(figures["seconds"])
    ratio = float(figures["service over the bare engine around it"])  # all are rounded
    bare = (before + after) / 2
    assert (service - 0.006) / (bare + 0.006) <= ratio + 0.001
    assert (ratio - 0.001) * (bare - 0.006) <= service + 0.006
    assert min(first, before, service, after) > 0
    assert len(set(numbers(figures["prompt tokens"]))) == 1
    assert min(numbers(figures["output tokens"])) > 0
    assert all(0 < share <= 100 for share in numbers(figures["time in steps, launch gaps included"]))
    assert len(set(numbers(figures["prefix cache hit rate"]))) == 1, "each drain begins with a cold cache"
    tenths = [list(map(numbers, run.split())) for run in figures["the same by tenth of the run"].split("; ")]
    assert [len(shares) for shares in tenths] == [10] * 4
    tasks, _, _ = figures["tasks of the judging processes: number, mean time, mean wait"].split(", ")
    assert int(tasks) >= 2 * 4, "a task for each job's calls, and one for its outputs"
    assert figures["attempts"] == "4 of 4 jobs, one each"
    outcomes = figures["their outcomes (random weights write no text that validators accept)"]
    assert sum(int(part.split()[0]) for part in outcomes.split(", ")) == 4


def test_jobs_of_several_calls(tmp_path: Path, clean_environment: None) -> None:
    tokenizer = write_tokenizer(tmp_path)
    arguments = ["bench", "service", "--shape", "tiny", "--device", "cpu", "--jobs", "4", "--kind", "translation"]
    more = ["--tokenizer", str(tokenizer), "--kv-tokens", "65536", "--json"]
    done = CliRunner().invoke(app, [*arguments, *more])
    assert done.exit_code == 0, done.output
    figures = dict(json.loads(done.stdout)["figures"])
    assert figures["jobs"] == "4"
    assert int(figures["generations"]) > 4, "a call for each part of a text"
    assert len(set(numbers(figures["prompt tokens"]))) == 1


def test_a_wrong_model_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "service", "--shape", "tiny", "--tokenizer", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].endswith("not a folder with a tokenizer that names its end-of-text token")
