"""The command from its arguments to its report, as called from a shell or a script."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from thothy_ai.bench import command
from thothy_ai.bench.models import default_shape
from thothy_ai.bench.options import parse
from thothy_ai.bench.progress import Progress
from thothy_ai.bench.workload import Order
from thothy_ai.cli import app
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution.host_memory import HostMemory


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"jobs": [["hook", 40, 20 + index, 5] for index in range(6)]}))
    return path


def test_thothy_bench_drain_prints_the_figures(work: Path) -> None:
    arguments = ["bench", "drain", str(work), "--shape", "tiny", "--device", "cpu"]
    done = CliRunner().invoke(app, [*arguments, "--peer-seconds", "100", "--peer-name", "Slowpoke 1"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "Drain: tiny float32; 6 jobs of small, listed"
    for name in ("seconds", "jobs per compute-hour", "prefix cache hit rate", "preemptions", "steps", "KV pool in use"):
        assert any(line.startswith(name) for line in lines), name
    assert any(line.startswith("tokens checked against the references") and "20 of 4 jobs" in line for line in lines)
    assert any(line.startswith("start-up, process to first job done") for line in lines)
    assert any(line.startswith("Slowpoke 1") and line.endswith("x ours") for line in lines)


def test_json_has_the_same_figures(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main([str(work), "--shape", "tiny", "--jobs", "3", "--order", "source", "--json", "--no-prefix-cache"])
    report = json.loads(capsys.readouterr().out)
    figures = dict(report["figures"])
    assert report["title"] == "Drain: tiny float32; 3 of 6 jobs of small, source"
    assert (figures["jobs"], figures["output tokens"], figures["prefix cache hit rate"]) == ("3 of 6", "15", "0.0%")
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
    assert ended.value.code == 2
    last = said.err.splitlines()[-1]
    assert last.startswith("thothy: ")
    assert words in last
    assert not said.out


@pytest.mark.parametrize("arguments", [[], ["w.json", "--shape", "huge"], ["w.json", "--jobs", "0"], ["w.json", "x"]])
def test_usage_errors_exit_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench", "drain", *arguments])
    assert done.exit_code == 2
    assert done.stderr.startswith("thothy: ")
    assert len(done.stderr.splitlines()) == 1


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
    assert (options.order, options.shape, options.jobs) == (Order.SHUFFLED, None, None)


def test_the_parser_needs_no_torch_and_the_module_none_of_the_service_s_libraries(work: Path) -> None:
    code = (
        "import sys, runpy\n"
        "try: runpy.run_module('thothy_ai.bench', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'pydantic', 'typer', 'celery', 'sqlalchemy', 'redis'} & sys.modules.keys()))"
    )
    loaded = [
        subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout
        for arguments in (["--help"], [str(work), "--shape", "tiny", "--device", "cpu"])
    ]
    assert [text.splitlines()[-1] for text in loaded] == ["[]", "['torch']"]


def test_a_shape_beyond_the_memory_is_refused_with_the_numbers_before_a_weight_is_drawn(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.engine.model_check.sizing.host_memory", lambda: HostMemory(9_800_000_000, 10**10))
    monkeypatch.setattr("thothy_ai.bench.models.RandomWeights", None)
    with pytest.raises(SystemExit) as ended:
        command.main([str(work), "--shape", "llama-8b", "--device", "cpu"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "thothy: llama-8b needs 32.1 GB for weights in float32, and this machine has 9.8 GB available: "
        "choose --shape qwen3-0.6b or pass --model FOLDER with a smaller model"
    )


def test_the_default_on_a_cpu_is_a_small_shape() -> None:
    assert default_shape(EngineOptions(url="", device="cpu")) == "smollm2-135m"


@pytest.mark.parametrize("content", [None, "not JSON", '{"job": []}', '{"jobs": []}', '{"jobs": [["hook", 1, 2, 0]]}'])
def test_a_wrong_file_is_one_line_and_exits_2(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    if content is not None:
        path.write_text(content)
    done = CliRunner().invoke(app, ["bench", "drain", str(path)])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"thothy: {path}: ")


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    progress = Progress(stream, every_seconds=3600)
    progress.say("Loading")
    progress.update("1 of 2")
    assert stream.getvalue() == "Loading\n"
    Progress(stream, every_seconds=0).update("2 of 2")
    assert stream.getvalue() == "Loading\n2 of 2\n"
