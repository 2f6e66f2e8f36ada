"""Greedy and fp32, a request with an adapter gets the tokens of a model with the adapter merged into its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Quant

from benchmarks.checkpoints import SCHEMES
from tests.support.adapter_oracle import AdapterOracle, adaptable, adapter_oracle
from tests.support.engine_driver import EngineDriver
from tests.support.gguf_files import write_gguf
from tests.support.graphs_without_gpu import rerun_captured
from tests.support.loading import load_model
from tests.support.oracle import MATRIX_AXES, NEW_TOKENS, ROOMY, matrix, options, random_prompts
from tests.support.patience import PATIENCE
from tests.support.peft_folders import adapter_tensors, write_adapter
from tests.support.published_formats import write_dequantized
from tests.support.quantized_models import quantized_model
from tests.support.tiny_models import FAMILIES, tiny_model
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import AdapterLoadError, InvalidRequestError, UnknownAdapterError
from thothy_ai.engine.execution.runner import Runner

MIXED = ("", "one", "two", "two", "one", "")


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], AdapterOracle]:
    return cache(lambda family: adapter_oracle(family, tmp_path_factory.mktemp(family)))


@pytest.mark.parametrize(("family", *MATRIX_AXES), matrix(FAMILIES[:1]))
def test_tokens_equal_those_of_merged_weights(
    family: str, oracles, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    stats = oracles(family).check(
        options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs), MIXED
    )
    assert stats.scheduler.preemptions == 0 or preempted
    assert stats.adapters.copies == 2


def test_preempted_sequences_keep_their_adapter(oracles) -> None:
    stats = oracles("llama").check(options(preempted=True, chunked=True, overlap=True, prefix_cache=True), ("one",))
    assert stats.scheduler.preemptions > 0


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_every_family_takes_adapters(family: str, oracles) -> None:
    oracles(family).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True), MIXED)


def test_adapters_change_tokens(oracles) -> None:
    texts = [oracles("llama").expected(name) for name in ("", "one", "two")]
    assert all(a != b for first, second in combinations(texts, 2) for a, b in zip(first, second, strict=True))


RANKS = {
    "one": {"r": 16, "rank_pattern": {}, "lora_alpha": 5},
    "large": {"r": 256},
    "two": {"r": 1, "use_rslora": True, "alpha_pattern": {"q_proj": 3, r"layers\.1\.mlp\.up_proj": 7}},
}


def test_ranks_from_1_to_256_and_patterns(tmp_path: Path) -> None:
    oracle = adapter_oracle("llama", tmp_path, RANKS)
    roomy = options(preempted=False, chunked=True, overlap=True, prefix_cache=True)
    oracle.check(replace(roomy, adapter_rank=256), ("one", "large", "", "two"))


@pytest.mark.parametrize("name", ["AWQ, groups of 32", "GPTQ, groups of 32, asymmetric, act-order, version 2"])
def test_quantized_bases(name: str, tmp_path: Path) -> None:
    folder = quantized_model(SCHEMES[name], tmp_path, "qwen2")
    plain = write_dequantized(folder, tmp_path / "plain")
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    adapter = write_adapter(tmp_path / "one", adapter_tensors(adaptable(plain), 4), 4)
    oracle = AdapterOracle(loaded, plain, {"one": adapter}, random_prompts(loaded.config.vocab_size))
    oracle.check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True), ("", "one", "one"))


def test_a_base_whose_blocks_gguf_quantized(tmp_path: Path) -> None:
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "tie_word_embeddings": False}
    source = tiny_model("llama", tmp_path, hidden_size=256, intermediate_size=512, **heads)
    file = write_gguf(source, tmp_path / "m.gguf", architecture="llama", choose=lambda _: Quant.Q4_1)
    packed, _ = (
        load_model(file, device=torch.device("cpu"), dtype=torch.float32, weights=weights, cache_dir=tmp_path / "cache")
        for weights in ("stored", "auto")
    )
    folders = (tmp_path / "cache" / "gguf").iterdir()
    (plain,) = (each for each in folders if "quantization" not in (each / "config.json").read_text())
    adapter = write_adapter(tmp_path / "one", adapter_tensors(adaptable(plain), 4), 4)
    oracle = AdapterOracle(packed, plain, {"one": adapter}, random_prompts(packed.config.vocab_size))
    oracle.check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True), ("", "one", "one"))


def test_more_adapters_than_slots(tmp_path: Path) -> None:
    oracle = adapter_oracle("llama", tmp_path, {str(number): {"r": 4} for number in range(5)})
    roomy = options(preempted=False, chunked=False, overlap=True, prefix_cache=True)
    stats = oracle.check(replace(roomy, adapter_slots=2), ("0", "1", "2", "", "3", "4"))
    assert (stats.adapters.resident, stats.adapters.copies) == (2, 5)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_next"])
@pytest.mark.parametrize("chunked", [False, True])
def test_activated_adapters_leave_the_tokens_before_them_to_the_base(
    family: str, chunked: bool, tmp_path: Path
) -> None:
    """Compared with the base's keys and values up to the invocation, and those of merged weights from there on."""
    invocation = (3, 5)
    fields = {"r": 4, "alora_invocation_tokens": [*invocation]}
    oracle = adapter_oracle(family, tmp_path, {"one": fields, "two": fields})
    source = oracle.prompts[-1]
    prompts = [(*source, *invocation, *tail) for tail in ((), (9,), (9, 8, 7), (3, 4, 1, 2, 6))]
    sampling = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    requests = [
        CoreRequest(f"{name or 'base'} {number}", prompt, sampling, adapter=name)
        for number, prompt in enumerate(prompts)
        for name in ("", "one", "two")
    ]
    setting = options(preempted=False, chunked=chunked, overlap=True, prefix_cache=True)
    with EngineDriver(lambda on_events: oracle.core(replace(setting, max_rows=3), on_events)) as driver:
        outcome = driver.run(requests)
        cached = driver.core.stats().core.cached_tokens
    for request in requests:
        wanted = oracle.activated(request.adapter, request.prompt, len(source))
        assert tuple(outcome.tokens[request.id]) == wanted, request.id
    assert cached >= 6 * (len(source) // 4) * 4  # most find the source, whoever computed it


def test_a_prompt_that_does_not_activate_the_adapter_is_refused(tmp_path: Path) -> None:
    oracle = adapter_oracle("llama", tmp_path, {"one": {"r": 4, "alora_invocation_tokens": [3, 5]}})
    with EngineDriver(lambda on_events: oracle.core(ROOMY, on_events)) as driver:
        with pytest.raises(InvalidRequestError, match="activate"):
            driver.submit(CoreRequest("a", (5, 3), SamplingParams(max_tokens=1), adapter="one"))
        with pytest.raises(InvalidRequestError, match="kv_budget: one is activated inside the prompt"):
            driver.submit(CoreRequest("b", (1, 3, 5), SamplingParams(max_tokens=40), adapter="one", kv_budget=16))
        driver.core.start()


def test_unloading_one_in_use_and_loading_its_name_again(oracles) -> None:
    """Requests keep the weights that they were accepted with, and find nothing of others in the prefix cache."""
    oracle = oracles("llama")
    sampling, prompt = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True), oracle.prompts[-1]
    with EngineDriver(lambda on_events: oracle.core(ROOMY, on_events)) as driver:
        core = driver.core
        driver.submit(CoreRequest("old", prompt, sampling, adapter="one"))
        core.unload_adapter("one").result(timeout=0)
        with pytest.raises(UnknownAdapterError, match="one"):
            driver.submit(CoreRequest("refused", prompt, sampling, adapter="one"))
        core.start()
        core.load_adapter("one", str(oracle.adapters["two"])).result(PATIENCE)
        driver.submit(CoreRequest("new", prompt, sampling, adapter="one"))
        while driver.collected.finished.keys() != {"old", "new"}:
            driver.gather()
        assert [each.name for each in core.adapters()] == ["one", "two"]
    assert tuple(driver.collected.tokens["old"]) == oracle.expected("one")[-1]
    assert tuple(driver.collected.tokens["new"]) == oracle.expected("two")[-1]
    assert core._adapters._library._held.keys() == {2}  # the weights of the first are gone


def test_an_engine_without_slots_refuses_adapters(oracles) -> None:
    with pytest.raises(AdapterLoadError, match="--adapter-slots"):
        oracles("llama").core(replace(ROOMY, adapter_slots=0), lambda _: None)


@pytest.mark.parametrize("overlap", [False, True])
def test_graphs_are_captured_for_steps_with_adapters_and_without(
    oracles, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, what was captured runs again; real graphs are tests/gpu's."""
    runners = rerun_captured(monkeypatch, (1, 4, 8))
    start = Runner.start_adapters

    def started(runner: Runner, *sizes: Any) -> None:
        start(runner, *sizes)
        runner._decode.capture_adapted()

    monkeypatch.setattr(Runner, "start_adapters", started)
    point = options(preempted=False, chunked=False, overlap=overlap, prefix_cache=True, graphs=True)
    oracles("llama").check(point, MIXED)
    assert runners[0]._decode.adapted.replays > 5
    oracles("llama").check(point, ("",))
    assert (runners[1]._decode.adapted.replays, runners[1]._decode.graphs.replays > 5) == (0, True)
