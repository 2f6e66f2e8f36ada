"""A drain on a tiny model: everything is counted, and no token that the engine should not have chosen passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.tiny_models import tiny_model
from thothy_ai.bench.check import WrongTokensError, check, spread
from thothy_ai.bench.drain import BenchCore, Drained, DrainFailedError, as_requests
from thothy_ai.bench.figures import PeerResult, check_figures, drain_figures, peer_figures
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.urgent import urgent_figures, urgent_requests
from thothy_ai.bench.workload import TokenDraw, Workload, template_jobs, with_house_prompt
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.weights.loader import LoadedModel

JOBS = template_jobs([["hook", 40, 5 + 3 * index, 6 + index % 4] for index in range(12)])
OPTIONS = EngineOptions(url="", device="cpu", dtype="float32", kv_tokens=2048, token_budget=64)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return bench_model("tiny", OPTIONS)


def requests(run: str = "drain") -> list[CoreRequest]:
    return as_requests(JOBS, TokenDraw(512, run), run)


def drained_by(loaded: LoadedModel, options: EngineOptions) -> Drained:
    drain = BenchCore(loaded, options)
    try:
        drain.run(requests("warm-up"))
        return drain.run(requests())
    finally:
        drain.close()


@pytest.fixture(scope="module")
def drained(loaded: LoadedModel) -> Iterator[Drained]:
    return drained_by(loaded, OPTIONS)


def test_a_drain_counts_what_is_its_own(drained: Drained) -> None:
    figures = dict(drain_figures(drained, "12", "GPU-hour"))
    assert figures["jobs"] == "12"
    assert figures["prompt tokens"] == str(sum(job.prompt_tokens for job in JOBS))
    assert figures["output tokens"] == str(sum(job.output_tokens for job in JOBS))
    rate = float(figures["jobs per GPU-hour"].replace(",", ""))
    assert rate == pytest.approx(12 / drained.seconds * 3600, rel=0.01)
    cached = drained.after.core.cached_tokens - drained.before.core.cached_tokens
    assert 0.2 < cached / sum(job.prompt_tokens for job in JOBS) < 0.6
    assert 0 < max(drained.kv_used) <= 1
    assert max(drained.running) <= 12
    assert figures["preemptions"] == "0"


def test_every_job_comes_back_once_with_its_tokens(drained: Drained) -> None:
    outputs = {request.id: output for request, output in drained.finished}
    assert sorted(outputs) == sorted(request.id for request in requests())
    for request in requests():
        assert len(outputs[request.id]) == request.sampling.max_tokens


def test_peers_are_compared_by_their_seconds(drained: Drained) -> None:
    ((name, value),) = peer_figures([PeerResult("other", 2 * drained.seconds)], drained)
    assert name.startswith("other")
    assert value.endswith("2.00 x ours")


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        replace(OPTIONS, kv_tokens=192, block_size=8, max_rows=3, overlap=True),
        replace(OPTIONS, dtype="bfloat16"),
        replace(OPTIONS, weights="fp8"),
        replace(OPTIONS, kv_dtype="fp8"),
    ],
    ids=["float32", "a tiny pool", "bfloat16", "fp8 weights", "fp8 KV"],
)
def test_right_tokens_pass(options: EngineOptions) -> None:
    model = bench_model("tiny", options)
    checked = check(drained_by(model, options), model.model, options)
    assert checked.jobs == 4
    assert checked.tokens > 4 * 6
    assert 0 <= checked.mean <= checked.worst <= checked.tolerance
    assert checked.agreeing > 0.9


def test_a_single_wrong_token_does_not_pass(loaded: LoadedModel, drained: Drained) -> None:
    request, output = drained.finished[0]
    wrong = (*output[:-1], (output[-1] + 1) % 512)
    altered = replace(drained, finished=((request, wrong), *drained.finished[1:]))
    with pytest.raises(WrongTokensError, match=rf"{request.id}: token {len(output) - 1} "):
        check(altered, loaded.model, OPTIONS)


def test_no_one_judges_tokens_that_rounding_moves_as_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(OPTIONS, model=tiny_model("qwen3_5_text", tmp_path))
    hybrid = bench_model("tiny", options)
    jobs = as_requests(JOBS, TokenDraw(131, "drain"), "drain")
    drain = BenchCore(hybrid, options)
    try:
        wrong = replace(drained := drain.run(jobs), finished=[(each, (5, *out[1:])) for each, out in drained.finished])
    finally:
        drain.close()
    for tolerance in (None, 1e-9):  # rounding explains more than the second, but not these tokens
        with pytest.raises(WrongTokensError):
            check(wrong, hybrid.model, options, tolerance)
    assert check(drained, hybrid.model, options).noise is None
    monkeypatch.setattr("thothy_ai.bench.check._GAP_OF_NOISE", 1e9)
    unjudged = check(wrong, hybrid.model, options, tolerance=1e-9)
    assert unjudged.noise is not None
    assert "not to be judged" in dict(check_figures(unjudged))["tokens checked against the references"]


def test_tokens_from_another_context_do_not_pass(loaded: LoadedModel, drained: Drained) -> None:
    """As if a block of each prompt's KV were another sequence's: not every job's few tokens depend on it."""

    def elsewhere(prompt: tuple[int, ...]) -> tuple[int, ...]:
        return (*prompt[:8], *reversed(prompt[8:24]), *prompt[24:])

    pairs = [(replace(request, prompt=elsewhere(request.prompt)), output) for request, output in drained.finished]
    altered = replace(drained, finished=tuple(pairs))
    with pytest.raises(WrongTokensError):
        check(altered, loaded.model, OPTIONS)


def test_nan_does_not_pass(loaded: LoadedModel, drained: Drained) -> None:
    def nan_head(hidden: Tensor, /) -> Tensor:
        return torch.full((len(hidden), loaded.config.vocab_size), torch.nan)

    spoilt = replace(loaded.model, decoder=replace(loaded.model.decoder, head=nan_head))
    with pytest.raises(WrongTokensError, match="nan"):
        check(drained, spoilt, OPTIONS)


def test_a_job_cut_short_fails_the_drain(loaded: LoadedModel) -> None:
    drain = BenchCore(loaded, replace(OPTIONS, kv_tokens=64, block_size=16))
    try:
        with pytest.raises(DrainFailedError, match="4 of 30 tokens: length"):
            drain.run(as_requests(template_jobs([["hook", 40, 20, 30]]), TokenDraw(512, "x"), "long"))
    finally:
        drain.close()


def test_the_sample_is_spread_over_the_drain() -> None:
    finished = [(request, ()) for request in requests()]
    assert [request.id for request, _ in spread(finished, 4)] == ["drain-0", "drain-4", "drain-7", "drain-11"]
    assert len(spread(finished, 100)) == 12
    assert len(spread(finished[:1], 8)) == 1


def test_the_core_takes_no_job_before_all_are_submitted(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    drain = BenchCore(loaded, OPTIONS)
    submit = drain.core.submit

    def slowly(request: CoreRequest) -> None:
        time.sleep(0.01)
        submit(request)

    monkeypatch.setattr(drain.core, "submit", slowly)
    try:
        drained = drain.run(requests())
    finally:
        drain.close()
    assert drained.running[0] > 1


def test_urgent_jobs_are_submitted_one_after_the_other_and_timed(loaded: LoadedModel) -> None:
    later = urgent_requests(requests(), seconds=1.0, every=0.2)
    assert [request.priority for request in later.requests] == [1, 1, 1, 1]
    drain = BenchCore(loaded, replace(OPTIONS, max_rows=2))
    try:
        without = drain.run(requests())
        drained = drain.run(requests("again"), later=later._replace(every=without.seconds / 20))
    finally:
        drain.close()
    assert len(drained.finished) == 12 + 4
    assert len(drained.urgent) == 4
    assert all(job.waited > 0 and 0 < job.compute_seconds < drained.seconds for job in drained.urgent)
    figures = dict(urgent_figures(without, drained))
    assert figures["urgent jobs"] == "4"
    own = float(figures["seconds that they computed themselves"])
    assert own == pytest.approx(sum(job.compute_seconds for job in drained.urgent), abs=0.01)


def test_a_drain_too_short_for_an_urgent_job_says_so(drained: Drained) -> None:
    assert not urgent_requests(requests(), seconds=1.0, every=5.0).requests
    assert "too short" in dict(urgent_figures(drained, drained))["urgent jobs"]


def test_a_house_prompt_begins_every_prompt() -> None:
    workload = with_house_prompt(Workload("one", JOBS), 30)
    draw = TokenDraw(512, "seed")
    prompts = [draw.prompt(job) for job in workload.jobs]
    assert {prompt[:30] for prompt in prompts} == {prompts[0][:30]}
    assert [prompt[30:] for prompt in prompts] == [draw.prompt(job) for job in JOBS]
    assert with_house_prompt(workload, 0) is workload
