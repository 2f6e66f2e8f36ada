"""Several texts and beams of models with states or windows: transformers' own, whatever of the prompt is cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tests.support.loading import load_model
from tests.support.local_client import LocalEngineClient
from tests.support.oracle import ROOMY
from tests.support.patience import PATIENCE
from tests.support.scripted_backend import run_in_loop
from tests.support.sweep import spread
from tests.support.tiny_models import RECURRENT, reference_model, tiny_model
from tests.support.windows import WINDOWS
from thothy_ai.engine.api import BeamSearch, GenerationRequest, GenerationResult, SamplingParams
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.text.frontend import Frontend, TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import TokenBytes

CPU = torch.device("cpu")
PROMPT = tuple(torch.randint(3, 131, (37,), generator=torch.Generator().manual_seed(5)).tolist())
VOCABULARY = TokenBytes(tuple(chr(0x100 + token).encode() for token in range(131)), drops_first_space=False)
NEW = 12  # tokens, over several blocks
MODELS: dict[str, tuple[str, dict[str, Any]]] = {  # beams outgrow all windows
    **{family: (family, {}) for family in RECURRENT},
    **{
        name: WINDOWS[name]
        for name in WINDOWS
        if name.startswith(("gemma3", "gpt_oss", "gemma4", "mistral,", "llama4, chunks"))
    },
}
CACHES: dict[str, dict[str, Any]] = {
    "cached": {},
    "no kept states": {"kept_states": 0},
    "no cache, chunks": {"prefix_cache": False, "token_budget": 9},
    "preempted": {"kv_tokens": 96},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def folder(name: str) -> Path:
        family, overrides = MODELS[name]
        return tiny_model(family, tmp_path_factory.mktemp(family), **overrides)

    return cache(folder)


def results(
    folder: Path, tokenizer: PreTrainedTokenizerFast, changes: dict[str, Any], *requests: GenerationRequest
) -> list[GenerationResult]:
    """Of all requests at a time."""
    options: EngineOptions = replace(ROOMY, max_context=80, overlap=True, **changes)
    cores: list[EngineCore] = []

    def make_core(on_events: OnEvents) -> EngineCore:
        cores.append(build_core(load_model(folder, device=CPU, dtype=torch.float32), options, on_events))
        return cores[0]

    frontend = Frontend(TextTools(PromptEncoder(tokenizer), VOCABULARY), make_core)
    cores[0].start()

    made: list[GenerationResult] = []

    async def body() -> None:
        client = LocalEngineClient(frontend)
        await client.start()
        generations = [await client.submit(request) for request in requests]
        made.extend([await generation.result() for generation in generations])
        await client.close()

    try:
        run_in_loop(body())
    finally:
        frontend.stop()
        assert cores[0].join(PATIENCE)
    return made


@pytest.mark.parametrize(("name", "caches"), spread(MODELS, [*CACHES]))
def test_beams_are_those_of_transformers(
    name: str, caches: str, folders: Callable[[str], Path], tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = folders(name)
    sampling = SamplingParams(max_tokens=NEW, ignore_eos=True)
    request = GenerationRequest("b", token_ids=PROMPT, sampling=sampling, beam_search=BeamSearch(width=3), n=3)
    [result] = results(folder, tokenizer, CACHES[caches], request)
    model = reference_model(folder)
    model.generation_config.eos_token_id = None
    settings = GenerationConfig(
        max_new_tokens=NEW, do_sample=False, num_beams=3, num_return_sequences=3, eos_token_id=None, pad_token_id=0
    )
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        wanted = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    assert [choice.token_ids for choice in result.choices] == [tuple(row) for row in wanted[:, len(PROMPT) :].tolist()]


@pytest.mark.parametrize("name", MODELS)
def test_several_texts_do_not_depend_on_what_is_cached(
    name: str, folders: Callable[[str], Path], tokenizer: PreTrainedTokenizerFast
) -> None:
    sampling = SamplingParams(max_tokens=NEW, temperature=1.0, seed=7, ignore_eos=True)
    requests = [GenerationRequest(f"r{n}", token_ids=PROMPT, sampling=sampling, n=n) for n in (4, 1)]
    made: dict[str, list[list[tuple[int, ...]]]] = {}
    for caches, changes in CACHES.items():
        found = results(folders(name), tokenizer, changes, *requests)
        made[caches] = [[choice.token_ids for choice in result.choices] for result in found]
    several, alone = made["no cache, chunks"]
    assert len(set(several)) == 4
    assert alone == several[:1]
    assert all(each == [several, alone] for each in made.values())
