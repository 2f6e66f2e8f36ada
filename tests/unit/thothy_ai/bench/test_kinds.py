"""`thothy bench drain --kinds` on a tiny shape: three drains whose figures fit together, and every output valid."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.small_tokenizer import write_tokenizer
from thothy_ai.bench import command
from thothy_ai.bench.kind_drain import KindRun, drain, validity, without_schemas
from thothy_ai.bench.models import random_folder
from thothy_ai.bench.requests import Backlog
from thothy_ai.bench.service.backlog import as_requests, engine_requests, make_jobs
from thothy_ai.cli import app
from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason, GenerationResult, Usage
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.factory import make_engine

SMALL = ["--shape", "tiny", "--device", "cpu", "--jobs", "2", "--kind", "hook", "--kv-tokens", "8192"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_the_figures_fit_together(tokenizer: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "drain", "--kinds", *SMALL, "--tokenizer", str(tokenizer), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["title"] == "Drain of jobs: tiny (random weights) float32; 2 jobs of hook"
    figures = {name: value.split("; ") for name, value in report["figures"]}
    assert figures["runs, in this order"] == ["schemas, first time", "schemas, again", "no schemas"]
    seconds = [float(value) for value in figures["seconds"]]
    ratios = [float(value) for value in figures["times the seconds without schemas"]]
    for ratio, value in zip(ratios, seconds, strict=True):  # each is rounded
        assert (value - 0.006) / (seconds[2] + 0.006) <= ratio + 0.001
        assert (ratio - 0.001) * (seconds[2] - 0.006) <= value + 0.006
    first, _, without = figures["output tokens"]
    assert first == without
    assert len(set(figures["prompt tokens"])) == 1
    assert len(set(figures["prefix cache hit rate"])) == 1, "only the prompts' system message is shared"
    masks = [float(value.removesuffix(" s")) for value in figures["masks in all"]]
    assert masks[0] > 0
    for valid, cut in zip(
        figures["outputs that match their schema"], figures["outputs cut at max_tokens"], strict=True
    ):
        assert int(valid) + int(cut) == 2
    assert figures["invalid outputs"] == ["0", "0"]


def test_a_house_prompt_is_shared_by_all_jobs() -> None:
    one, other, *_ = engine_requests(Backlog(2, house_words=50))
    assert one.messages[0] == other.messages[0]
    without = engine_requests(Backlog(2))[0].messages
    assert [message.role for message in one.messages] == [message.role for message in without] == ["system", "user"]
    added = len(one.messages[0].content.split()) - len(without[0].content.split())
    assert added == pytest.approx(50, abs=2)


def test_its_requests_have_the_kv_budget_that_a_worker_would_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_KV_BUDGETS", "hook=512")
    engine = EngineInfo("s", "m", "cpu", "float32", 16, 10, 8192, 0.0, min_kv_budget=512)
    refusing = [replace(engine, min_kv_budget=513), replace(engine, keeps_all="it has windows")]
    jobs = make_jobs(Backlog(1, "hook"))
    sent = [as_requests(jobs, engine=each)[0].kv_budget for each in (None, engine, *refusing)]
    assert sent == [512, 512, None, None]
    assert as_requests(make_jobs(Backlog(1, "trend_summary")))[0].kv_budget is None


def test_the_run_without_schemas_has_the_same_lengths_and_nothing_else_changes(tokenizer: Path, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{2,9}$"}}, "required": ["a"]}
    requests = [
        replace(request, schema=json.dumps(schema | {"additionalProperties": False}))
        for request in engine_requests(Backlog(3, "hook"))
    ]
    engine = make_engine(EngineOptions(url="", model=random_folder("tiny", tokenizer, tmp_path), device="cpu"))
    try:
        first = drain(engine, requests, "first")
        bare = drain(engine, without_schemas(requests, first), "bare")
    finally:
        engine.backend.stop()
        engine.wait_ended()
        engine.close()
    assert validity(requests, first).valid == 3, "all end before max_tokens"
    assert [result.usage.output_tokens for result in bare.results] == [
        result.usage.output_tokens for result in first.results
    ]
    assert [result.usage.prompt_tokens for result in bare.results] == [
        result.usage.prompt_tokens for result in first.results
    ]
    assert first.gained("output_tokens") == first.output_tokens == bare.gained("output_tokens")
    assert bare.gained("steps") >= max(result.usage.output_tokens for result in bare.results)
    assert first.gained("replayed_steps") == 0


def result(text: str, reason: FinishReason = FinishReason.STOP) -> GenerationResult:
    return GenerationResult("a", text, (1,), reason, Usage(1, 0, 1, 0.0))


def test_invalid_outputs_are_counted_and_those_cut_are_not_judged() -> None:
    schema = {"type": "object", "properties": {"hook": {"type": "string", "pattern": "^[A-Z][a-z .]{2,30}$"}}}
    request = replace(engine_requests(Backlog(1, "hook"))[0], schema=json.dumps(schema))
    texts = ['{"hook":"Everybody swims."}', '{"hook":"a"}', '{"hook":"Al']
    ends = [FinishReason.STOP, FinishReason.STOP, FinishReason.LENGTH]
    run = KindRun("run", 1.0, tuple(map(result, texts, ends)), EngineStats(), EngineStats())
    checked = validity([request] * 3, run)
    assert (checked.valid, checked.invalid, checked.cut) == (1, 1, 1)
    assert checked.first_flaw == "output.hook: pattern"
    assert validity([replace(request, schema=None)] * 3, run).invalid == 0


PAGES = """
from typing import Annotated
from thothy_ai.jobs import Artifact, JobKind, Message, OneCall, Sampling
from thothy_ai.jobs.api.requests import SourceRequest
from thothy_ai.jobs.schema import prose

class PageArtifact(Artifact):
    title: Annotated[str, prose(3, 12)]
    body: Annotated[str, prose(3, 30)]

class Page(SourceRequest[PageArtifact]):
    product: str

KIND = JobKind(
    name="page", request=Page, artifact=PageArtifact,
    plan=OneCall(
        artifact=PageArtifact,
        prompt=lambda request, _: (Message("user", request.source[:300] + request.product),),
        sampling=lambda _: Sampling(max_tokens=120, temperature=0.5),
        checks=lambda *_: (),
    ),
    locale=lambda _: "en", source=lambda request: request.source,
)
"""


def test_a_user_s_kind_of_several_fields(tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.jobs.registry._extra", {})
    (tmp_path / "pages.py").write_text(PAGES)
    monkeypatch.setenv("THOTHY_KINDS", str(tmp_path / "pages.py"))
    arguments = ["--kinds", "--kind", "page", "--shape", "tiny", "--device", "cpu", "--jobs", "2", "--json"]
    done = CliRunner().invoke(app, ["bench", "drain", *arguments, "--tokenizer", str(tokenizer)])
    assert done.exit_code == 0, done.output
    figures = dict(json.loads(done.stdout)["figures"])
    assert figures["jobs"] == "2: 2 page"
    assert (figures["outputs that match their schema"], figures["invalid outputs"]) == ("2; 2", "0; 0")


def test_without_the_service_s_libraries_kinds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--kinds"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "thothy: --kinds needs the service's libraries: run thothy bench drain --kinds\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kinds", "--shape", "tiny"], "pass --tokenizer FOLDER"),
        (["--kinds", "--shape", "tiny", "--tokenizer", "/nowhere"], "/nowhere: not a folder with a tokenizer"),
        (["--kinds", "--kind", "hok"], "unknown kind 'hok'"),
        (["--kinds", "w.json"], "either a workload FILE or --kinds"),
        ([], "either a workload FILE or --kinds"),
        (["w.json", "--kind", "hook"], "--kind goes with --kinds"),
        (["--kinds", "--urgent", "3"], "--urgent goes with a workload FILE"),
        (["--kinds", "--profile"], "--profile goes with a workload FILE"),
        (["--kinds", "--draw", "0"], "--draw goes with a workload FILE"),
    ],
)
def test_what_does_not_go_together_is_one_line(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["bench", "drain", *arguments, "--device", "cpu"])
    assert done.exit_code == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("thothy: ")
    assert words in last
