"""Requests that ask for more than others: what transformers makes of them with its own processors, and the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import Tokens, random_prompts
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api import EngineStats, FinishReason, LogitBias, SamplingParams, TokenLogprob
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

NEW_TOKENS = 24
TINY_POOL = 64  # for texts that are longer than the oracles'
TOP = 5


class AdditivePenalties(LogitsProcessor):
    """Frequency and presence penalties as OpenAI defines them, over one row; transformers has none."""

    def __init__(self, prompt: int, frequency: float, presence: float) -> None:
        self._prompt, self._frequency, self._presence = prompt, frequency, presence

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        counts = torch.bincount(input_ids[0, self._prompt :], minlength=scores.shape[1])
        return scores - self._frequency * counts - self._presence * (counts > 0)


@dataclass(frozen=True)
class Expected:
    """A continuation by transformers, with the log-probability of each of its tokens by the model's own logits."""

    tokens: Tokens
    logprobs: tuple[float, ...]
    top: Tensor  # [tokens, TOP]
    stopped: bool


def generated(folder: Path, prompt: Tokens, sampling: SamplingParams, device: torch.device) -> Expected:
    """Greedy, fp32, ended by the request's stop tokens alone."""
    model = reference_model(folder).to(device)
    model.generation_config.eos_token_id = None
    settings = GenerationConfig(
        max_new_tokens=sampling.max_tokens,
        min_new_tokens=sampling.min_tokens or None,
        do_sample=False,
        eos_token_id=list(sampling.stop_token_ids) or None,
        pad_token_id=0,
        repetition_penalty=sampling.repetition_penalty,
        sequence_bias=[[[bias.token], bias.value] for bias in sampling.logit_bias] or None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    ids = torch.tensor([prompt], device=device)
    additive = AdditivePenalties(len(prompt), sampling.frequency_penalty, sampling.presence_penalty)
    with torch.inference_mode():
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=settings,
            logits_processor=LogitsProcessorList([additive]),
        )
    tokens = made.sequences[0, len(prompt) :].tolist()
    logprobs = torch.cat(made.logits).to(torch.float32).log_softmax(dim=-1).cpu()
    chosen = logprobs.gather(1, torch.tensor(tokens)[:, None]).squeeze(1).tolist()
    stopped = tokens[-1] in sampling.stop_token_ids
    kept = len(tokens) - stopped
    return Expected(tuple(tokens[:kept]), tuple(chosen[:kept]), logprobs.topk(TOP).values[:kept], stopped)


def sampling_of(plain: Tokens) -> tuple[SamplingParams, ...]:
    """Parameters that change this plain continuation: its own tokens are banned, penalized, or end it."""
    base = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True, logprobs=TOP)
    banned, liked, disliked = list(dict.fromkeys((*plain, 7, 8, 9)))[:3]
    biases = (LogitBias(banned, -100.0), LogitBias(liked, 1.5), LogitBias(disliked, -0.75))
    return (
        replace(base, frequency_penalty=0.6, presence_penalty=0.3),
        replace(base, logit_bias=biases, repetition_penalty=1.2, frequency_penalty=-0.2),
        replace(base, stop_token_ids=tuple(range(64)), min_tokens=7),
        replace(base, stop_token_ids=tuple(range(64, 128)), min_tokens=15, presence_penalty=1.0),
        base,
        replace(base, stop_token_ids=(plain[4],)),
        replace(base, logit_bias=biases[:1], stop_token_ids=(plain[1],), min_tokens=2, repetition_penalty=0.9),
        replace(base, repetition_penalty=1.4),
    )


@dataclass(frozen=True)
class Asked:
    """A model, and requests over it with what transformers makes of them."""

    loaded: LoadedModel
    requests: tuple[CoreRequest, ...]
    expected: tuple[Expected, ...]

    @classmethod
    def of(cls, family: str, folder: Path, device: torch.device) -> Asked:
        """Each of the usual prompts with other parameters."""
        model = tiny_model(family, folder)
        loaded = load_model(model, device=device, dtype=torch.float32, cache_dir=None)
        prompts = random_prompts(loaded.config.vocab_size)
        plain = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
        requests = tuple(
            CoreRequest(str(place), prompt, sampling_of(generated(model, prompt, plain, device).tokens)[place])
            for place, prompt in enumerate(prompts)
        )
        expected = tuple(generated(model, each.prompt, each.sampling, device) for each in requests)
        return cls(loaded, requests, expected)

    def check(self, options: EngineOptions) -> EngineStats:
        """Run all requests together; compare tokens, ends and log-probabilities. Returns the engine's counters."""
        fitting = replace(options, kv_tokens=max(TINY_POOL, options.kv_tokens))
        with EngineDriver(lambda on_events: build_core(self.loaded, fitting, on_events)) as driver:
            outcome = driver.run(self.requests)
            stats = driver.core.stats()
        for request, expected in zip(self.requests, self.expected, strict=True):
            assert tuple(outcome.tokens[request.id]) == expected.tokens, request
            reason = outcome.finished[request.id].reason
            assert reason is (FinishReason.STOP if expected.stopped else FinishReason.LENGTH), request
            check_logprobs(outcome.logprobs[request.id], expected)
        return stats


def check_logprobs(ours: Sequence[TokenLogprob | None], expected: Expected) -> None:
    """Within 1e-4 of those of transformers, of the tokens and of the likeliest."""
    assert len(ours) == len(expected.tokens)
    drawn = [each for each in ours if each is not None]
    assert len(drawn) == len(ours)
    torch.testing.assert_close([each.logprob for each in drawn], list(expected.logprobs), rtol=0, atol=1e-4)
    top = torch.tensor([each.top_logprobs for each in drawn])
    torch.testing.assert_close(top.view(-1, TOP), expected.top, rtol=0, atol=1e-4)
    assert all(len(set(each.top_tokens)) == TOP for each in drawn)
