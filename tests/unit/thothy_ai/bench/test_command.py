"""The command from its arguments to its report, as called from a shell or a script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from thothy_ai.bench import command
from thothy_ai.bench.options import parse
from thothy_ai.bench.workload import Order
from thothy_ai.cli import app


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"jobs": [["hook", 40, 20 + index, 5] for index in range(6)]}))
    return path


def test_thothy_bench_drain_prints_the_figures(work: Path) -> None:
    arguments = ["bench", "drain", str(work), "--shape", "tiny", "--device", "cpu"]
    done = CliRunner().invoke(app, [*arguments, "--peer-seconds", "100", "--peer-name", "Slowpoke 1"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "Drain: tiny float32; 6 jobs of small, listed"
    for name in ("seconds", "jobs per GPU-hour", "prefix cache hit rate", "preemptions", "steps", "KV pool in use"):
        assert any(line.startswith(name) for line in lines), name
    assert any(line.startswith("tokens checked against the references") and "30 of 6 jobs" in line for line in lines)
    assert any(line.startswith("start-up, process to first job done") for line in lines)
    assert any(line.startswith("Slowpoke 1") and line.endswith("x ours") for line in lines)


def test_json_has_the_same_figures(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main([str(work), "--shape", "tiny", "--jobs", "3", "--order", "source", "--json", "--no-prefix-cache"])
    report = json.loads(capsys.readouterr().out)
    figures = dict(report["figures"])
    assert report["title"] == "Drain: tiny float32; 3 jobs of small, source"
    assert (figures["jobs"], figures["output tokens"], figures["prefix cache hit rate"]) == ("3", "15", "0.0%")
    assert report["kernels"] == []


def test_transformers_drains_the_same_jobs(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main([str(work), "--shape", "tiny", "--device", "cpu", "--peer", "transformers", "--json"])
    name, value = json.loads(capsys.readouterr().out)["figures"][-1]
    assert name.startswith("transformers 5")
    assert value.endswith("x ours")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile"], "no GPU is available"),
        (["--peer", "vllm"], "not installed in"),
        (["--device", "cuda:99"], "not there"),
        (["--model", "/nowhere"], "no such file"),
    ],
)
def test_an_error_is_one_line(
    arguments: list[str], words: str, work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        command.main([str(work), "--shape", "tiny", *arguments])
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert not said.out


@pytest.mark.parametrize("arguments", [[], ["w.json", "--shape", "huge"], ["w.json", "--jobs", "0"], ["w.json", "x"]])
def test_usage_errors_exit_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench", "drain", *arguments])
    assert done.exit_code == 2
    assert "usage: " in done.output


def test_options_reach_the_engine() -> None:
    line = (
        "w.json --weights fp8 --kv-dtype fp8 --kv-tokens 100 --max-rows 7 --block-size 8 --token-budget 9 "
        "--memory-utilization 0.5 --no-overlap --no-graphs --order shuffled"
    )
    options = parse(line.split())
    engine = options.engine
    assert (engine.weights, engine.kv_dtype, engine.kv_tokens, engine.max_rows) == ("fp8", "fp8", 100, 7)
    assert (engine.block_size, engine.token_budget, engine.memory_utilization) == (8, 9, 0.5)
    assert (engine.overlap, engine.graphs, engine.prefix_cache) == (False, False, True)
    assert (options.order, options.model_name, options.jobs) == (Order.SHUFFLED, "llama-8b", None)


def test_the_parser_needs_no_torch_and_the_module_none_of_the_service_s_libraries(work: Path) -> None:
    code = (
        "import sys, runpy\n"
        "try: runpy.run_module('thothy_ai.bench', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'pydantic', 'typer', 'celery', 'sqlalchemy', 'redis', 'msgpack'} & sys.modules.keys()))"
    )
    loaded = [
        subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout
        for arguments in (["--help"], [str(work), "--shape", "tiny", "--device", "cpu"])
    ]
    assert [text.splitlines()[-1] for text in loaded] == ["[]", "['torch']"]
